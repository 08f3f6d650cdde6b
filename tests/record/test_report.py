"""The report: what it tells, in which order, and that it loads and runs nothing."""

import json
from dataclasses import asdict
from pathlib import Path

from archives import BUMP, elements, words

from runbook_lib.decisions import Decision
from runbook_lib.record import report

RUN = {
    "notebook": {"name": "bump"}, "state": "waiting", "bump": asdict(BUMP), "mode": "publish",
    "started": "2026-04-01T00:00:00.000Z", "ended": "2026-04-01T00:09:00.000Z",
    "who": {"git": "Ada <ada@example.org>", "user": "ada", "host": "h"},
    "outcome": {"sentence": "Waiting for CI.", "next": {"because": "Run it again."}},
    "inputs": {
        "digest": "sha256:d1", "head_commit": "c0ffee",
        "requirements": [
            {"name": "a green pipeline on GitLab", "state": "unknown", "evidence": "GitLab cannot be read."}
        ],
    },
    "links": {"pull request": "https://forge/7"},
    "exceptions": [
        vars(Decision("allow", "unverified-tag", "no access", by="Bob", at="2026-04-01T00:03:00Z")),
        vars(Decision("accept", "gpt.json", "new cuBLAS", "slower", by="Cy", at="2026-04-01")),
    ],
    "decisions": [{"kind": "accept", "subject": "gpt.json", "why": "slower by 4 %"}],
    "warnings": ["Disk is nearly full."],
}  # fmt: skip


def output(kind: str, **fields: object) -> dict[str, object]:
    return {"output_type": kind, "metadata": {}, **fields}


def page(folder: Path, *outputs: dict[str, object], prose: str = "## Pins\n\nMoves them.") -> str:
    code = {"cell_type": "code", "source": "the_source()", "metadata": {}, "execution_count": 1, "outputs": outputs}
    cells = [{"cell_type": "markdown", "source": prose, "metadata": {}}, code]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    (folder / "executed.ipynb").write_text(json.dumps(notebook))
    (folder / "changes.csv").write_text("path,line,old,new\ndocker/Dockerfile,3,pytorch:26.02-py3,pytorch:26.04-py3\n")
    report.write_report(folder, RUN)
    return (folder / "report.html").read_text()


def test_somebody_who_knows_nothing_finds_the_answers_before_the_notebook(tmp_path: Path) -> None:
    text = words(page(tmp_path, output("stream", name="stdout", text="\x1b[1mdone\x1b[0m it")))
    summary, notebook = text.split(" Moves them.")
    for told in (
        "bump 26.04-py3: Waiting for CI.", "Run it again.", "26.04-py3 sha256:d1", "c0ffee", "https://forge/7",
        "run by Ada <ada@example.org>", "allow unverified-tag no access Bob", "accept gpt.json (slower) new cuBLAS Cy",
        "a green pipeline on GitLab unknown GitLab cannot be read.",
        "docker/Dockerfile:3 pytorch:26.02-py3 pytorch:26.04-py3",
        "accept gpt.json slower by 4 %", "Disk is nearly full.",
    ):  # fmt: skip
        assert told in summary, (told, summary)
    assert notebook == " done it"
    assert "the_source" not in text


def test_headings_tables_and_plots_are_those_of_the_notebook(tmp_path: Path) -> None:
    svg = output("display_data", data={"image/svg+xml": "<svg xmlns='http://www.w3.org/2000/svg'/>", "text/plain": "p"})
    png = output("display_data", data={"image/png": "iVBORw0KGgo=\n", "text/html": "<b>not this</b>"})
    table = output("display_data", data={"text/html": "<table><tr><td>one</td></tr></table>", "text/plain": "other"})
    error = output("error", ename="E", evalue="", traceback=["\x1b[31mTraceback\x1b[0m", "<b>E</b>"])
    found = page(tmp_path, svg, png, table, error, prose="# One\n## Two\n### Three")
    assert [tag for tag, _ in elements(found) if tag in ("h1", "h2", "h3")] == ["h1", "h1", "h2", "h3"]
    assert [it["src"][:20] for tag, it in elements(found) if tag == "img"] == [
        "data:image/svg+xml;b", "data:image/png;base6"
    ]  # fmt: skip
    assert "<td>one</td>" in found
    assert "not this" not in found
    assert "Traceback\n&lt;b&gt;E" in found


def test_a_notebook_that_cannot_be_read_leaves_the_summary(tmp_path: Path) -> None:
    for content in ("", "[]", "{}", "x", "[" * 100_000):
        (tmp_path / "executed.ipynb").write_text(content)
        report.write_report(tmp_path, RUN)
        assert "Waiting for CI." in words((tmp_path / "report.html").read_text())


def test_the_index_links_the_reports_of_all_runs(tmp_path: Path) -> None:
    (tmp_path / "o-r/a b").mkdir(parents=True)
    (tmp_path / "o-r/a b/report.html").touch()
    report.write_index(tmp_path / "index.html", {tmp_path / "o-r": [RUN | {"id": "a b"}, RUN | {"id": "c"}]})
    found = (tmp_path / "index.html").read_text()
    assert [it["href"] for tag, it in elements(found) if tag == "a"] == [
        "o-r/a%20b/report.html", "o-r/c/run.json",
    ]  # fmt: skip
    assert "2026-04-01 00:00 bump: … waiting. Waiting for CI." in words(found)
