"""The pages of the practice forge, for people: files without scripts, to which the URLs of its objects lead."""

from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from runbook_lib.practice.hub import Hub, JobState, RunState
from runbook_lib.practice.store import CommentRecord, JobRecord, RunRecord, TicketRecord

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
    runs = [hub.run(run.id) for run in hub.store.all(RunRecord) if hub.store.all(JobRecord, run.id)]
    for ticket in hub.tickets():
        _write(hub, folder / ticket.page / f"{ticket.number}.html", f"#{ticket.number} {ticket.title}", _ticket(
            hub, ticket, [state for state in runs if state.run.pull == ticket.number]
        ))  # fmt: skip
        if ticket.is_pull:
            for sha in (*hub.home.log(ticket.base_sha, ticket.head_sha), *filter(None, [ticket.merge_sha])):
                _write_commit(hub, folder, sha)
    for state in runs:
        place = folder / "actions/runs" / f"{state.run.id}.html"
        _write(hub, place, f"Run {state.run.run_number}: {state.run.title}", _run(hub, state))
        for attempt in hub.all_attempts(state.run.id):
            for job in hub.jobs(attempt):
                file = folder / "actions/runs" / str(state.run.id) / "job" / f"{job.record.id}.html"
                if job.status.status == "completed" and job.status.conclusion != "skipped" and not file.exists():
                    _write(hub, file, job.planned.name, f"<p>{_status(job)}</p><pre>{escape(job.log)}</pre>")


def _write(hub: Hub, file: Path, title: str, body: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    page = _PAGE.format(title=escape(title), body=body, now=_minute(hub.clock()))
    file.write_text(page, encoding="utf-8", errors="replace")


def _write_commit(hub: Hub, folder: Path, sha: str) -> None:
    file, message = folder / "commit" / f"{sha}.html", hub.home.commit(sha).message
    if not file.exists():
        diff = hub.home.git("show", "--format=", "--no-color", sha)
        _write(hub, file, message.split("\n")[0], f"<pre>{escape(message)}</pre><pre>{escape(diff)}</pre>")


def _minute(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _status(state: JobState | RunState) -> str:
    return state.status.conclusion or state.status.status.replace("_", " ")


def _link(address: str, text: str) -> str:
    return f'<a href="{address}.html">{escape(text)}</a>'


def _table(rows: Iterable[Iterable[str]]) -> str:
    lines = ("</td><td>".join(cells) for cells in rows)
    return f"<table>{''.join(f'<tr><td>{line}</td></tr>' for line in lines)}</table>"


def _ticket(hub: Hub, ticket: TicketRecord, runs: Iterable[RunState]) -> str:
    state = "merged" if ticket.merged is not None else f"{ticket.state}{', draft' if ticket.draft else ''}"
    labels = f"; {', '.join(ticket.labels)}" if ticket.labels else ""
    body = f"<p>{state}, by {ticket.author}{escape(labels)}</p>"
    if ticket.is_pull:
        head = _link(f"../commit/{ticket.head_sha}", ticket.head_sha[:10])
        body += f"<p>{escape(ticket.head_owner)}:{escape(ticket.head_ref)} ({head}) into {escape(ticket.base_ref)}</p>"
    body += f"<pre>{escape(ticket.body or 'No description.')}</pre>"
    body += _table(
        (_link(f"../actions/runs/{each.run.id}", f"run {each.run.run_number}"), each.run.head_sha[:10], _status(each))
        for each in runs
    )
    for comment in hub.store.all(CommentRecord, ticket.number):
        body += f'<h3 id="issuecomment-{comment.id}">{comment.author}, {_minute(comment.created)}</h3>'
        body += f"<pre>{escape(comment.body)}</pre>"
    return body


def _run(hub: Hub, state: RunState) -> str:
    run = state.run
    place = _link(f"../../pull/{run.pull}", f"#{run.pull}") if run.pull else escape(run.head_branch)
    body = f"<p>{_status(state)}, attempt {state.attempt.attempt}, of {place} at {run.head_sha}, tested as merge commit"
    body += f" {run.merge_sha}.</p>"
    return body + _table(
        (_link(f"{run.id}/job/{job.record.id}", job.record.planned.name), job.record.planned.platform, _status(job))
        for job in hub.jobs(state)
    )
