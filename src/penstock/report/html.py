"""One self-contained page from a report's plain data: styles, script and drawings are all inside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.core.errors import ArtefactError
from penstock.core.pages.document import asset, document
from penstock.core.pages.markup import Markup, tag
from penstock.report import cluster_section, data_sections, sections, setting_sections, training_sections
from penstock.report.cluster_section import is_on_cluster

READABLE_VERSION = 1
_PARTS = {
    "headline": sections.headline,
    "training": training_sections.training,
    "time": training_sections.time,
    "cluster": cluster_section.cluster,
    "workflow": data_sections.workflow,
    "embeddings": data_sections.embeddings,
    "data": data_sections.data,
    "configuration": setting_sections.configuration,
    "machine": setting_sections.machine,
}
_NAVIGATION = {
    "training": "Training",
    "time": "Time",
    "cluster": "Cluster",
    "workflow": "Workflow",
    "embeddings": "Embeddings",
    "data": "Data",
    "configuration": "Configuration",
    "machine": "Machine",
}


def render(report: Mapping[str, Any], live: int | None = None) -> str:
    """The page. With `live`, the number of its state, it asks where it came from for what has changed since.

    Args:
        report: plain data, as `RunRecorder.report` gives it.
        live: the number of the state that is shown; None for a page that stays as it is.

    Returns:
        The page as HTML.

    Raises:
        ArtefactError: it is no report.

    >>> page = render({"version": 1, "title": "<script>alert(1)</script>", "state": "done"})
    >>> "<script>alert" in page, "&lt;script&gt;alert(1)" in page
    (False, True)
    """
    if report.get("version") != READABLE_VERSION:
        raise ArtefactError(
            f"this is not a run's report of version {READABLE_VERSION} (its version is {report.get('version')!r}); "
            "write it again with this version of Penstock"
        )
    title = str(report.get("title") or "Training run")
    return document(
        f"{title} · Penstock",
        render_parts(report).values(),
        links={key: name for key, name in _NAVIGATION.items() if key != "cluster" or is_on_cluster(report)},
        footer=_footer(report),
        style=asset("penstock.report", "report.css"),
        script=asset("penstock.report", "report.js"),
        connects=live is not None,
        data_live=live,
    )


def render_parts(report: Mapping[str, Any]) -> dict[str, Markup]:
    """The page's parts by name: what a live page exchanges."""
    return {name: part(report) for name, part in _PARTS.items()}


def _footer(report: Mapping[str, Any]) -> Markup:
    version = ((report.get("machine") or {}).get("versions") or {}).get("penstock")
    made = f"Penstock {version}" if version else "Penstock"
    note = tag("span", id="live-note", class_="quiet-text")
    return tag("p", f"{made} · the same as data: ", tag("code", "report.json"), " ", note)
