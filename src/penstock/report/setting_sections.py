"""The parts of a run's page that tell how it was set up: configuration, machine, versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.core.pages.document import section
from penstock.core.pages.markup import Markup, joined, table, tag
from penstock.core.yaml_files import write_yaml
from penstock.report.sections import Report
from penstock.report.words import DASH, data_size, plural


def configuration(report: Report) -> Markup:
    """The settings of the run that were set, by hand or by default."""
    settings = dict(report.get("configuration") or {})
    recipe = settings.pop("recipe", None)
    found = list(flat_settings(settings))
    if not found:
        return section("configuration", "Configuration", tag("p", "None was handed over.", class_="empty"))
    rows = [[tag("code", key), value] for key, value in found]
    places = {"output": report.get("output"), "model": report.get("saved")}
    about = joined([joined([f"{name}: ", tag("code", place)]) for name, place in places.items() if place], " · ")
    content = [tag("div", table(["setting", "value"], rows, "Configuration", "settings"), class_="scroll")]
    if recipe:
        shown = recipe if isinstance(recipe, str) else write_yaml(recipe)
        content.append(tag("details", tag("summary", "Recipe"), tag("pre", shown, class_="scroll", tabindex=0)))
    return section("configuration", "Configuration", *content, about=about or None)


def flat_settings(value: Any, name: str = "") -> Iterable[tuple[str, str]]:
    """Settings of settings under dotted names, with their values in words; what is not set is left out.

    >>> dict(flat_settings({"model": {"name": "DLRM", "top": [64, 32]}, "device": None, "cache": True}))
    {'model.name': 'DLRM', 'model.top': '64, 32', 'cache': 'yes'}
    """
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from flat_settings(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and not any(isinstance(item, (Mapping, list)) for item in value):
        shown = ", ".join(map(str, value[:40])) + (f", … ({len(value)} in all)" if len(value) > 40 else "")
        if value:
            yield name, shown
    elif isinstance(value, list):
        for number, item in enumerate(value[:40]):
            yield from flat_settings(item, f"{name}[{number}]")
    elif value is not None and value != {}:
        yield name, ("yes" if value else "no") if isinstance(value, bool) else str(value)


def machine(report: Report) -> Markup:
    """What the run ran on, and what it could not collect."""
    facts = report.get("machine") or {}
    rows = [
        ["processor", f"{facts.get('processor', DASH)}, {plural(facts.get('cores') or 0, 'core')}"],
        ["memory", data_size(facts["memory_bytes"]) if facts.get("memory_bytes") else DASH],
        ["GPU", ", ".join(facts.get("gpus") or []) or "none used"],
        ["system", f"{facts.get('system', DASH)}, Python {facts.get('python', DASH)}"],
        *[[name, version] for name, version in (facts.get("versions") or {}).items()],
    ]
    content = [tag("div", table(["part", "what"], rows, "Machine and versions", "settings"), class_="scroll")]
    if report.get("problems"):
        listed = [tag("li", problem) for problem in report["problems"]]
        content.append(tag("div", tag("h3", "Not collected"), tag("ul", *listed), class_="problems"))
    return section("machine", "Machine and versions", *content)
