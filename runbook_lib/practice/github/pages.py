"""The forge's pages for people: what lies behind an ``html_url``.  Everything shown is escaped; there is no script."""

import re
from collections.abc import Iterable
from html import escape

from runbook_lib.practice.ci import evidence
from runbook_lib.practice.github import shapes
from runbook_lib.practice.github.protocol import Answer, not_found
from runbook_lib.practice.hub import Hub, shown
from runbook_lib.practice.state import Comment, Ticket

_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1f2328}"
    "pre{white-space:pre-wrap;background:#f6f8fa;padding:.8rem;border-radius:6px;overflow-wrap:anywhere}"
    "table{border-collapse:collapse}td,th{border:1px solid #d1d9e0;padding:.3rem .6rem;text-align:left}"
    ".note{background:#fff8c5;border:1px solid #d4a72c;padding:.5rem .8rem;border-radius:6px}"
    ".label{border:1px solid #d1d9e0;border-radius:1em;padding:0 .6em;margin-right:.4em}"
)
_NOTE = "This is the practice forge on your own machine. Nothing here has left it."


def page_for(hub: Hub, path: str) -> Answer:
    """The page at a path; 404 for any other."""
    home = re.escape(f"/{hub.repository}")
    for pattern, show in (
        (rf"(?:/|{home}/?)", lambda: _front(hub)),
        (rf"{home}/(?:pull|issues)/([0-9]{{1,9}})", lambda number: _ticket(hub, int(number))),
        (rf"{home}/actions/runs/([0-9]{{1,15}})", lambda number: _run(hub, int(number))),
        (rf"{home}/actions/runs/([0-9]{{1,15}})/job/([0-9]{{1,15}})", lambda run, job: _job(hub, int(run), int(job))),
        (rf"{home}/commit/([0-9a-f]{{40}})", lambda sha: _commit(hub, sha)),
    ):
        if match := re.fullmatch(pattern, path):
            return show(*match.groups())
    raise not_found()


def page(hub: Hub, title: str, *parts: str) -> Answer:
    """A page; its parts are HTML already."""
    html = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<style>{_STYLE}</style></head><body><p class="note">{_NOTE}</p>'
        f'<p><a href="/{escape(hub.repository)}">{escape(hub.repository)}</a></p><h1>{escape(title)}</h1>'
        f"{''.join(parts)}</body></html>"
    )
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    headers = {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": policy}
    return Answer(200, html.encode(), headers)


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of cells that are HTML already."""
    lines = (f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{escape(head)}</th>' for head in heads)}</tr>{''.join(lines)}</table>"


def link(path: str, text: str) -> str:
    """A link to a page of this forge."""
    return f'<a href="{escape(path)}">{escape(text)}</a>'


def _address(hub: Hub, ticket: Ticket) -> str:
    return f"/{hub.repository}/{'pull' if ticket.is_pull else 'issues'}/{ticket.number}"


def _status(ticket: Ticket) -> str:
    return "merged" if ticket.merged is not None else f"{ticket.state}, draft" if ticket.draft else ticket.state


def _front(hub: Hub) -> Answer:
    tickets = hub.tickets()
    rows = ([link(_address(hub, it), f"#{it.number} {it.title}"), _status(it), escape(it.author)] for it in tickets)
    return page(hub, hub.repository, "<h2>Pull requests and issues</h2>", table(("", "state", "by"), rows), _runs(hub))


def _runs(hub: Hub, number: int | None = None) -> str:
    found = hub.runs(lambda run: number in (None, run.pull))
    rows = (
        [
            link(f"/{hub.repository}/actions/runs/{it.run.id}", f"run {it.run.run_number}"),
            f"<code>{it.run.head_sha[:10]}</code>",
            it.seen.conclusion or it.seen.status,
        ]
        for it in found
    )
    return f"<h2>CI runs</h2>{table(('run', 'of', 'state'), rows)}" if found else "<h2>CI runs</h2><p>None.</p>"


def _ticket(hub: Hub, number: int) -> Answer:
    it = hub.ticket(number)
    labels = "".join(f'<span class="label">{escape(name)}</span>' for name in it.labels)
    branches = ""
    if it.is_pull:
        head = f"{it.head_owner}:{it.head_ref}"
        sha = link(f"/{hub.repository}/commit/{it.head_sha}", it.head_sha[:10])
        branches = f"<p>{escape(head)} ({sha}) into {escape(it.base_ref)}</p>"
    comments = (
        f"<h3>{escape(each.author)}, {shapes.moment(each.created)}</h3><pre>{escape(each.body)}</pre>"
        for each in hub.store.all(Comment, it.number)
    )
    return page(
        hub, f"#{it.number} {it.title}", f"<p><b>{_status(it)}</b>, by {escape(it.author)}. {labels}</p>", branches,
        f"<pre>{escape(it.body or 'No description.')}</pre>", _runs(hub, it.number) if it.is_pull else "",
        "<h2>Comments</h2>", *comments,
    )  # fmt: skip


def _run(hub: Hub, number: int) -> Answer:
    state = hub.run(number)
    run = state.run
    rows = (
        [
            link(f"/{hub.repository}/actions/runs/{run.id}/job/{job.id}", job.planned.name),
            escape(job.planned.platform),
            seen.conclusion or seen.status,
        ]
        for job, seen in shown(state, hub.clock())
    )
    of = link(f"/{hub.repository}/pull/{run.pull}", f"#{run.pull}") if run.pull else escape(run.head_branch)
    about = (
        f"<p><b>{state.seen.conclusion or state.seen.status}</b>, attempt {state.attempt.attempt}, of "
        f"{of} at <code>{run.head_sha}</code>, "
        f"tested as merge commit <code>{run.merge_sha}</code>.</p>"
    )
    return page(hub, f"Run {run.run_number}: {run.title}", about, table(("job", "platform", "state"), rows))


def _job(hub: Hub, run_id: int, job_id: int) -> Answer:
    state = hub.run(run_id)
    for attempt in hub.attempts(state.run):
        at = hub.run(run_id, attempt.attempt)
        for job, seen in shown(at, hub.clock()):
            if job.id == job_id:
                planned = evidence.as_seen(job.planned, attempt.started, seen)
                text = evidence.log(planned, attempt.started + planned.starts)
                log = f"<pre>{escape(text)}</pre>" if seen.status == "completed" else ""
                return page(hub, job.planned.name, f"<p><b>{seen.conclusion or seen.status}</b></p>", log)
    raise not_found()


def _commit(hub: Hub, sha: str) -> Answer:
    if hub.home.resolve(sha) is None:
        raise not_found()
    it = hub.home.commit(sha)
    diff = hub.home.git("show", "--format=", "--no-color", sha)
    return page(hub, it.message.splitlines()[0], f"<pre>{escape(it.message)}</pre><pre>{escape(diff)}</pre>")
