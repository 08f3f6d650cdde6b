"""The archive of the first format that is stored beside the tests (archive-1/README.md), and how one is forged."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runbook_lib.records.chain import head_bytes, read_head, sha256
from runbook_lib.records.statement import RUN, to_bytes

KEPT = Path(__file__).parent / "archive-1"
_ROOT = Path("practice/practice-Megatron-LM/main")
#: The bumps of the archive: three records, one, and one.
DEV, LTS, MISTYPED = _ROOT / "dev-26.04-py3", _ROOT / "lts-26.04-py3", _ROOT / "dev-26.4-py3"
BUMPS = (DEV, LTS, MISTYPED)


def rewrite(bump: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Change the predicates of a bump, oldest first, and make folders, files, hashes and head fit them."""
    last, _ = read_head(bump)
    documents: list[dict[str, Any]] = []
    while last is not None:
        documents.insert(0, json.loads((bump / last["record"] / RUN).read_bytes()))
        last = documents[0]["predicate"]["previous"]
    names = [it["predicate"]["id"] for it in documents]
    change([it["predicate"] for it in documents])
    for name, document in zip(names, documents, strict=True):
        predicate = document["predicate"]
        predicate["previous"] = last
        (bump / name).rename(bump / predicate["id"])
        (bump / predicate["id"] / RUN).write_bytes(to_bytes(document))
        last = {"record": predicate["id"], "sha256": sha256(bump / predicate["id"] / RUN)}
    (bump / "head").write_bytes(head_bytes(last, []))
