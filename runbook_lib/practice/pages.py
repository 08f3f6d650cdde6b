"""The pages of the practice forge, for people: files without scripts, to which the URLs of its objects lead."""

from collections.abc import Iterator
from html import escape
from pathlib import Path

from runbook_lib.practice import evidence
from runbook_lib.practice.forge import PracticeForge
from runbook_lib.practice.runs import moment
from runbook_lib.practice.store import Record, matching
from runbook_lib.record.report import page

_ABOUT = "PRACTICE: this is a page of the practice forge on your own machine. Nothing here has left it."


def write(forge: PracticeForge, folder: Path) -> None:
    """Write a page for each pull request, issue, commit, run and log of a job, below the folder."""
    for path, title, body in _pages(forge):
        file = folder / f"{path}.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        now = f"{moment(forge.clock()):%Y-%m-%d %H:%M} UTC"
        file.write_bytes(page(title, f"<p>{_ABOUT} Written {now}.</p><h1>{escape(title)}</h1>{body}"))


def _pages(forge: PracticeForge) -> Iterator[tuple[str, str, str]]:
    """Yield the path, the title and the body of each page."""
    for ticket in forge.tickets():
        yield f"{'pull' if ticket.base_ref else 'issues'}/{ticket.number}", ticket.title, _ticket(forge, ticket)
        for sha in {*forge.home.log(ticket.base_sha, ticket.head_sha), ticket.merge_commit} if ticket.base_ref else ():
            if sha:
                yield f"commit/{sha}", f"Commit {sha}", _text(forge.home.git("show", "--no-color", sha))
    for run in forge.records():
        rows = []
        for job in forge.listed(run):
            conclusion = forge.show(job).conclusion
            rows.append(f"{_link(f'{run.id}/job/{job.id}', job.name)}: {conclusion or 'in progress'}")
            if conclusion not in ("", "skipped"):
                yield f"actions/runs/{run.id}/job/{job.id}", job.name, _text(evidence.log(job))
        about = f"Attempt {len(run.attempts)}, of {run.head_branch} at {run.head_sha}, tested as {run.merge_sha}."
        yield f"actions/runs/{run.id}", f"Run {run.id}: {run.title}", _text(about) + "<br>".join(rows)


def _ticket(forge: PracticeForge, ticket: Record) -> str:
    state = "merged" if ticket.merged else ticket.state
    body = _text(f"{state}, by {ticket.author}; {', '.join(ticket.labels)}") + _text(ticket.body)
    if ticket.base_ref:
        body += _link(f"../commit/{ticket.head_sha}", f"{ticket.head_ref} into {ticket.base_ref}")
    for run in matching(forge.records(), pull=ticket.number):
        body += f"<p>{_link(f'../actions/runs/{run.id}', f'Run {run.id}')}: {forge.conclusion(run) or 'in progress'}"
    for comment in ticket.comments:
        title = f"{comment.author}, {moment(comment.created):%Y-%m-%d %H:%M} UTC"
        body += f'<h3 id="issuecomment-{comment.id}">{title}</h3>{_text(comment.body)}'
    return body


def _text(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def _link(address: str, text: str) -> str:
    return f'<a href="{address}.html">{escape(text)}</a>'
