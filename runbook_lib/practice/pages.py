"""The pages of the practice forge, for people: files without scripts, to which the URLs of its objects lead."""

from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from runbook_lib.practice.hub import Attempt, Hub, ListedJob
from runbook_lib.practice.store import StoredRun, Ticket

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; border: 1px solid gray; border-radius: 6px; padding: .8rem }}
table {{ border-collapse: collapse }}
td {{ border: 1px solid gray; padding: .3rem .6rem }}
</style>
</head>
<body>
<p>PRACTICE: this is a page of the practice forge on your own machine, as of {now}. Nothing here has left it.</p>
<h1>{title}</h1>
{body}
</body>
</html>
"""


def write(hub: Hub, folder: Path) -> None:
    """Write a page for each pull request, issue, commit, run and log of a job, below the folder."""
    for ticket in hub.tickets():
        _write(hub, folder / f"{ticket.page}.html", f"#{ticket.id} {ticket.title}", _ticket(hub, ticket))
        if ticket.base_ref:
            for sha in (*hub.home.log(ticket.base_sha, ticket.head_sha), *filter(None, [ticket.merge_sha])):
                _write_commit(hub, folder, sha)
    for run in hub.store.all(StoredRun):
        attempts, place = hub.attempts(run), folder / f"actions/runs/{run.id}"
        _write(hub, place.with_suffix(".html"), f"Run {run.id}: {run.title}", _run(hub, attempts[-1]))
        for job in (job for attempt in attempts for job in hub.jobs(attempt)):
            file = place / "job" / f"{job.id}.html"
            if job.status.status == "completed" and job.status.conclusion != "skipped" and not file.exists():
                _write(hub, file, job.planned.name, f"<p>{_status(job)}</p><pre>{escape(job.log)}</pre>")


def _write(hub: Hub, file: Path, title: str, body: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    page = _PAGE.format(title=escape(title), body=body, now=_minute(hub.clock()))
    file.write_text(page, encoding="utf-8", errors="replace")


def _write_commit(hub: Hub, folder: Path, sha: str) -> None:
    file = folder / "commit" / f"{sha}.html"
    if not file.exists():
        title, shown = hub.home.show(sha, "%s"), hub.home.git("show", "--format=%B", "--no-color", sha)
        _write(hub, file, title, f"<pre>{escape(shown)}</pre>")


def _minute(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _status(state: ListedJob | Attempt) -> str:
    return state.status.conclusion or state.status.status.replace("_", " ")


def _link(address: str, text: str) -> str:
    return f'<a href="{address}.html">{escape(text)}</a>'


def _table(rows: Iterable[Iterable[str]]) -> str:
    lines = ("</td><td>".join(cells) for cells in rows)
    return f"<table>{''.join(f'<tr><td>{line}</td></tr>' for line in lines)}</table>"


def _ticket(hub: Hub, ticket: Ticket) -> str:
    state = "merged" if ticket.merged else f"{ticket.state}{', draft' if ticket.draft else ''}"
    labels = f"; {', '.join(ticket.labels)}" if ticket.labels else ""
    body = f"<p>{state}, by {ticket.author}{escape(labels)}</p>"
    if ticket.base_ref:
        head = _link(f"../commit/{ticket.head_sha}", ticket.head_sha[:10])
        body += f"<p>{escape(ticket.head_owner)}:{escape(ticket.head_ref)} ({head}) into {escape(ticket.base_ref)}</p>"
    body += f"<pre>{escape(ticket.body or 'No description.')}</pre>"
    body += _table(
        (_link(f"../actions/runs/{each.run.id}", f"run {each.run.id}"), each.run.head_sha[:10], _status(each))
        for each in hub.runs(lambda run: run.pull == ticket.id)
    )
    for comment in ticket.comments:
        title = f"{comment['author']}, {_minute(comment['created'])}"
        body += f'<h3 id="issuecomment-{comment["id"]}">{title}</h3><pre>{escape(comment["body"])}</pre>'
    return body


def _run(hub: Hub, attempt: Attempt) -> str:
    run = attempt.run
    place = _link(f"../../pull/{run.pull}", f"#{run.pull}") if run.event == "push" else escape(run.head_branch)
    body = f"<p>{_status(attempt)}, attempt {attempt.number}, of {place} at {run.head_sha}, tested as merge commit"
    body += f" {run.merge_sha}.</p>"
    return body + _table(
        (_link(f"{run.id}/job/{job.id}", job.planned.name), job.planned.platform, _status(job))
        for job in hub.jobs(attempt)
    )
