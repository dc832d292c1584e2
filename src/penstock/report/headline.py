"""What is read first of a run: its title and a few figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.report.records import metrics_of


def headline(data: Mapping[str, Any]) -> dict[str, Any]:
    """The few figures that are read first."""
    figures, records, training = data["figures"], data["records"], data["training"] or {}
    evaluated = [record for record in records if record["kind"] == "valid"]
    step = (data.get("selected") or {}).get("step")
    last: Mapping[str, Any] = evaluated[-1] if evaluated else {}
    valid = next((record for record in evaluated if record["step"] == step), last)
    trained = [record for record in records if record["kind"] == "train"]
    auc = figures.get("auc", valid.get("auc"))
    best = figures.get("best_auc") or data["best_auc"]
    known = auc is not None and best is not None and best > 0.5
    rows = data["history"].get("rows") or (trained[-1].get("rows") if trained else None)
    shards = [one for one in (data.get("cluster") or {}).get("shards") or [] if one.get("role") == "primary"]
    store = {"rows": sum(s.get("rows", 0) for s in shards), "bytes": sum(s.get("bytes", 0) for s in shards)}
    store = store if shards else data["store"] or {}  # shards tell while they train
    return {
        "auc": auc,
        "best_auc": best,
        "auc_reached": (auc - 0.5) / (best - 0.5) if known else None,
        "log_loss": figures.get("log_loss", valid.get("log_loss")),
        "constant_log_loss": (data.get("labels") or {}).get("constant_log_loss"),
        "metrics": figures.get("metrics") or metrics_of(valid),
        "rows": training.get("rows"),
        "rows_trained": rows,
        "rows_per_second": figures.get("rows_per_second", trained[-1].get("rows_per_second") if trained else None),
        "step": records[-1]["step"] if records else None,
        "steps": training.get("steps"),
        "seconds": data["seconds"],
        "embedding_rows": figures.get("embedding_rows", store.get("rows")),
        "embedding_bytes": store.get("bytes"),
    }


def title(data: Mapping[str, Any]) -> str:
    """The model and the data, by name."""
    asked = data["configuration"].get("model")
    model = (data["training"] or {}).get("model") or (asked.get("name") if isinstance(asked, Mapping) else asked)
    source = data["configuration"].get("data")
    names = [Path(str(path)).name for path in ([source] if isinstance(source, str) else source or [])]
    about = f" on {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "") if names else ""
    return f"{model}{about}" if isinstance(model, str) else f"Training{about}"
