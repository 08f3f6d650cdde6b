"""What pages of ours are made of, and records and notebooks with any text in every field, for the tests of pages."""

import base64
import json
from collections.abc import Mapping
from typing import Any

#: What pages are made of, with the attributes that each may have.
OURS: Mapping[str, set[str]] = {
    "meta": {"charset", "http-equiv", "content", "name"}, "html": {"lang"}, "a": {"href", "class"}, "time": {"title"},
    "div": {"class", "role", "aria-label", "tabindex", "hidden", "style"}, "section": {"class"},
    "table": {"class", "style"}, "th": {"scope", "style"}, "td": {"class", "style", "colspan"}, "tr": {"style"},
    "p": {"class"}, "dl": {"class"},
    "ul": {"class"}, "li": {"class", "style", "aria-current", "data-state", "data-repository", "data-world"},
    "h2": {"class", "id"}, "pre": {"class"}, "nav": {"aria-label"}, "details": {"class", "id", "open"},
    "img": {"alt", "src"}, "input": {"type", "name", "autocomplete"}, "select": {"name"}, "option": {"value"},
    "output": {"aria-live"}, "blockquote": set(), "ol": {"style"}, "small": set(),
} | {name: set() for name in ("head", "title", "style", "body", "main", "script", "h1", "h3", "h4", "hr", "br", "em",
                              "summary", "strong", "code", "span", "dt", "dd", "thead", "tbody", "label", "figure",
                              "figcaption")}  # fmt: skip


def a_run(text: str) -> dict[str, Any]:
    """All fields that a record may have, with that text."""
    effects = [{"at": text, "effect": kind, "target": f"#1 {text}", "before": text, "after": text, "url": text}
               for kind in (text, "edit", "issue", "comment", "label")]  # fmt: skip
    return {
        "who": {"user": text, "host": text, "git": text, "ci": {"service": text, "actor": text, "url": text}},
        "library": {"version": text, "commit": text, "dirty": True}, 
        "inputs": {text: text, "digest": text, "requirements": [{"kind": text, "state": text, "evidence": text}]},
        "links": {text: text, "PR": text}, "warnings": [text], "exceptions": [{"exception": text, "reason": text}],
        "outcome": {"sentence": text, "next": {"because": text}}, "effects": effects,
        "parameters": {text: text, "tag": text, "broken": f"{text}: {text}"},
        "checks": [{"name": text, "status": text, "detail": text}],
    }  # fmt: skip


def a_notebook(text: str) -> dict[str, Any]:
    encoded = base64.b64encode(text.encode("utf-8", "replace")).decode()
    forms = [{"text/html": text}, {"text/plain": text}, {"image/png": text, "text/plain": text},
             {"image/png": encoded, "text/plain": text}, {"image/svg+xml": text}]  # fmt: skip
    outputs = [*({"output_type": "display_data", "data": data} for data in forms),
               {"output_type": "stream", "text": [text]}, {"output_type": "error", "traceback": [text]}]  # fmt: skip
    kinds = ("code", "markdown", "raw")
    return {"cells": [{"cell_type": kind, "source": [text], "outputs": outputs} for kind in kinds]}


def files(text: str) -> dict[str, str]:
    cell = '"' + text.replace('"', '""') + '"'
    return {
        "changes.csv": f"path,line,selector,old,new\n{','.join([cell] * 5)}\n",
        "image-changes.csv": f"component,old,new,change,platform\n{','.join([cell] * 5)}\n",
        "platforms.csv": f"platform,digest\n{cell},{cell}\n",
        "change.diff": f"+++ {text}\n@@ -1 +1 @@ {text}\n+{text}\n",
        "failures.csv": f"job,class,cause,url\n{','.join([cell] * 4)}\n",
        "verdicts.csv": f"file,verdict,reasons,url\n{','.join([cell] * 4)}\n",
        "executed.ipynb": json.dumps(a_notebook(text)),
    }  # fmt: skip
