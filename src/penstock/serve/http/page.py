"""The page that a browser sees first: what is served here, and how to ask. It loads nothing from elsewhere."""

from __future__ import annotations

import json
from html import escape
from typing import Any

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Penstock: {model}</title><link rel="icon" href="data:,">
<style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }}
body {{ max-width: 52rem; margin: 2rem auto; padding: 0 1rem }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere }}
pre {{ padding: 1rem; border: 1px solid #8886; border-radius: .5rem; font-size: .85rem }}
table {{ border-collapse: collapse; width: 100% }}
th, td {{ text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #8884; vertical-align: top }}
</style></head><body>
<h1>{model}</h1>
<p>Model <code>{fingerprint}</code> from <code>{directory}</code>. {feed}</p>
<p><a href="healthz">health</a> · <a href="metrics">metrics</a> · <a href="schema">schema</a> ·
<a href="docs">OpenAPI page</a> (loads its scripts from the net) · <a href="openapi.json">OpenAPI as JSON</a></p>
<h2>Ask for predictions</h2>
<pre>curl -s {url}predict -H 'Content-Type: application/json' -d '{example}'</pre>
<h2>Columns of a row</h2>
<table><thead><tr><th>column</th><th>type</th><th>takes</th></tr></thead><tbody>{columns}</tbody></table>
</body></html>
"""


def front_page(health: dict[str, Any], schema: dict[str, Any], url: str) -> str:
    """HTML from what `/healthz` and `/schema` say; `url` is where the service was asked, with a slash at its end."""
    feed = health["feed"]
    rows = []
    for column in schema["columns"]:
        kind = f"list of {column['dtype']}" if column["is_list"] else column["dtype"]
        cells = "".join(f"<td>{escape(text)}</td>" for text in (column["name"], kind, column["accepts"]))
        rows.append(f"<tr>{cells}</tr>")
    return _PAGE.format(
        model=escape(health["model"]["class"]),
        fingerprint=escape(health["model"]["fingerprint"]),
        directory=escape(health["model"]["directory"]),
        feed="" if feed is None else f"Feed: packet {feed['packet']}.",
        url=escape(url),
        example=escape(json.dumps(schema["example"], ensure_ascii=False)),
        columns="".join(rows),
    )
