"""The pages of the practice forge, for people: files without scripts, to which the URLs of its objects lead."""

from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

from runbook_lib.practice import evidence
from runbook_lib.practice.forge import PracticeForge
from runbook_lib.practice.runs import moment
from runbook_lib.practice.store import Record

_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>body {{ font: 16px sans-serif; margin: 2rem }} pre {{ white-space: pre-wrap }} td {{ padding: 0 1rem }}</style>
<p>PRACTICE: this is a page of the practice forge on your own machine, as of {now} UTC. Nothing here has left it.</p>
<h1>{title}</h1>
{body}
"""


def write(forge: PracticeForge, folder: Path) -> None:
    """Write a page for each pull request, issue, commit, run and log of a job, below the folder."""
    for path, title, body in _pages(forge):
        file = folder / f"{path}.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        page = _PAGE.format(title=escape(title), body=body, now=f"{moment(forge.clock()):%Y-%m-%d %H:%M}")
        file.write_text(page, encoding="utf-8", errors="replace")


def _pages(forge: PracticeForge) -> Iterator[tuple[str, str, str]]:
    """Yield the path, the title and the body of each page."""
    for ticket in forge.tickets():
        yield f"{'pull' if ticket.base_ref else 'issues'}/{ticket.number}", ticket.title, _ticket(forge, ticket)
        for sha in {*forge.home.log(ticket.base_sha, ticket.head_sha), ticket.merge_commit} if ticket.base_ref else ():
            if sha:
                yield f"commit/{sha}", f"Commit {sha}", _text(forge.home.git("show", "--no-color", sha))
    for run in forge.records():
        listed = forge.listed(run)
        body = f"{forge.conclusion(run) or 'in progress'}, attempt {len(run.attempts)}, of {run.head_branch} "
        body += f"at {run.head_sha}, tested as merge commit {run.merge_sha}."
        shown = [forge.show(it) for it in listed]
        rows = ((_link(f"{run.id}/job/{it.id}", it.name), it.conclusion or "in progress") for it in shown)
        yield f"actions/runs/{run.id}", f"Run {run.id}: {run.title}", _text(body) + _table(rows)
        for it, job in zip(listed, shown, strict=True):
            if job.conclusion not in ("", "skipped"):
                yield f"actions/runs/{run.id}/job/{it.id}", it.job.name, _text(evidence.log(it.job))


def _ticket(forge: PracticeForge, ticket: Record) -> str:
    state = f"{'merged' if ticket.merged else ticket.state}, by {ticket.author}; {', '.join(ticket.labels)}"
    runs = [run for run in forge.records() if run.pull == ticket.number]
    body = _text(state) + _text(ticket.body or "No description.")
    if ticket.base_ref:
        body += _link(f"../commit/{ticket.head_sha}", f"{ticket.head_ref} into {ticket.base_ref}")
    body += _table(
        (_link(f"../actions/runs/{run.id}", f"run {run.id}"), run.head_sha[:10], forge.conclusion(run) or "in progress")
        for run in runs
    )
    for comment in ticket.comments:
        title = f"{comment.author}, {moment(comment.created):%Y-%m-%d %H:%M} UTC"
        body += f'<h3 id="issuecomment-{comment.id}">{title}</h3>{_text(comment.body)}'
    return body


def _text(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def _link(address: str, text: str) -> str:
    return f'<a href="{address}.html">{escape(text)}</a>'


def _table(rows: Iterable[Iterable[str]]) -> str:
    lines = ("</td><td>".join(cells) for cells in rows)
    return f"<table>{''.join(f'<tr><td>{line}</td></tr>' for line in lines)}</table>"
