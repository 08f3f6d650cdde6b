"""The forge's pages for people, to which each ``html_url`` leads.  All text is escaped; there are no scripts."""

from functools import cache
from typing import TYPE_CHECKING

from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule
from werkzeug.wrappers import Response

from runbook_lib.practice.github.errors import not_found
from runbook_lib.practice.github.shapes import timestamp
from runbook_lib.practice.hub import Hub
from runbook_lib.practice.serving import NumberConverter
from runbook_lib.practice.state import CommentRecord

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def _templates() -> "Environment":
    # Few worlds show a page, and they are to start quickly.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("runbook_lib.practice.github")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined)


def page_for(hub: Hub, path: str) -> Response:
    """Return the page at a path.  Raises ApiError 404 for any other path."""
    try:
        show, parts = _PAGES.match(path, "GET")
    except HTTPException:
        raise not_found() from None
    arguments = dict(parts)
    if arguments.pop("repository", hub.repository) != hub.repository:
        raise not_found()
    response: Response = show(hub, **arguments)
    return response


def page(hub: Hub, template: str, title: str, **values: object) -> Response:
    """Return the page that a template makes of these values."""
    home = f"/{hub.repository}"
    html = _templates().get_template(template).render(hub=hub, home=home, title=title, timestamp=timestamp, **values)
    policy = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return Response(html, headers=policy, content_type="text/html; charset=utf-8")


def _front_page(hub: Hub) -> Response:
    return page(hub, "front.html", hub.repository, tickets=hub.tickets(), runs=hub.runs(lambda run: True))


def _ticket_page(hub: Hub, number: int) -> Response:
    ticket = hub.ticket(number)
    comments = hub.store.all(CommentRecord, number)
    runs = hub.runs(lambda run: run.pull == number)
    return page(hub, "ticket.html", f"#{number} {ticket.title}", ticket=ticket, comments=comments, runs=runs)


def _run_page(hub: Hub, run_id: int) -> Response:
    state = hub.run(run_id)
    title = f"Run {state.run.run_number}: {state.run.title}"
    return page(hub, "run.html", title, state=state, run=state.run, jobs=hub.jobs(state))


def _job_page(hub: Hub, run_id: int, job_id: int) -> Response:
    for state in hub.all_attempts(run_id):
        for job in hub.jobs(state):
            if job.record.id == job_id:
                status = job.status.conclusion or job.status.status
                log = job.log if job.status.status == "completed" else ""
                return page(hub, "job.html", job.planned.name, status=status, log=log)
    raise not_found()


def _commit_page(hub: Hub, sha: str) -> Response:
    commit_id = hub.home.resolve(sha)
    if commit_id is None:
        raise not_found()
    message = hub.home.commit(commit_id).message
    diff = hub.home.git("show", "--format=", "--no-color", commit_id)
    return page(hub, "commit.html", message.splitlines()[0], message=message, diff=diff)


_RUN = "/<path:repository>/actions/runs/<number:run_id>"
_PAGES = Map(
    [
        Rule("/", endpoint=_front_page),
        Rule("/<path:repository>", endpoint=_front_page),
        Rule("/<path:repository>/pull/<number:number>", endpoint=_ticket_page),
        Rule("/<path:repository>/issues/<number:number>", endpoint=_ticket_page),
        Rule(_RUN, endpoint=_run_page),
        Rule(f"{_RUN}/job/<number:job_id>", endpoint=_job_page),
        Rule("/<path:repository>/commit/<sha>", endpoint=_commit_page),
    ],
    converters={"number": NumberConverter},
    strict_slashes=False,
    merge_slashes=False,
).bind("127.0.0.1")
