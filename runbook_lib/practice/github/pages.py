"""The forge's pages for people, to which each ``html_url`` leads.  Text is escaped or harmless HTML; no scripts."""

import re
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

from werkzeug.wrappers import Response

from runbook_lib.practice.github.api import ApiCall, Route
from runbook_lib.practice.hub import Hub
from runbook_lib.practice.serving import not_found
from runbook_lib.practice.state import CommentRecord
from runbook_lib.text.sanitize import clean_html

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

#: The box of a task, and how it is shown.
_BOX = re.compile(r"^( {0,3}[-*] )\[([ xX])\] ")
_BOXES = {" ": "☐", "x": "☑", "X": "☑"}


@cache
def _templates() -> "Environment":
    # Few worlds show a page, and they are to start quickly.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("runbook_lib.practice.github")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.filters["markdown"] = _markdown
    return environment


def _markdown(text: str, home: str) -> "Markup":
    """Return harmless HTML for a text in GitHub's style: ``#12`` is a link, boxes are read-only.

    HTML comments are hidden.
    """
    import mistune
    from markupsafe import Markup

    def link_tickets(md: mistune.Markdown) -> None:
        def parse(inline: mistune.InlineParser, match: re.Match[str], state: mistune.InlineState) -> int:
            if state.in_link or state.brackets:  # the text of another link
                inline.process_text(match[0], state)
            else:
                label = [{"type": "text", "raw": match[0]}]
                url = f"{home}/issues/{match[0][1:]}"
                state.append_token({"type": "link", "children": label, "attrs": {"url": url}})
            return match.end()

        md.inline.register("ticket", r"(?<![\w&/#])#[0-9]{1,9}\b", parse)

    render = mistune.create_markdown(escape=False, plugins=["strikethrough", "table", "url", link_tickets])
    lines = [_BOX.sub(lambda match: f"{match[1]}{_BOXES[match[2]]} ", line) for line in text.splitlines()]
    return Markup(clean_html(str(render("\n".join(lines)))))


def _minute(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def page(hub: Hub, template: str, title: str, **values: object) -> Response:
    """Return the page that a template makes of these values."""
    home = f"{hub.url}/{hub.repository}"
    html = _templates().get_template(template).render(hub=hub, home=home, title=title, minute=_minute, **values)
    policy = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return Response(html, headers=policy, content_type="text/html; charset=utf-8")


def _front_page(call: ApiCall) -> Response:
    hub = call.hub
    return page(hub, "front.html", hub.repository, tickets=hub.tickets(), runs=hub.runs(lambda run: True))


def _ticket_page(call: ApiCall, number: int) -> Response:
    hub, ticket = call.hub, call.hub.ticket(number)
    comments = hub.store.all(CommentRecord, number)
    runs = hub.runs(lambda run: run.pull == number)
    return page(hub, "ticket.html", f"#{number} {ticket.title}", ticket=ticket, comments=comments, runs=runs)


def _run_page(call: ApiCall, run_id: int) -> Response:
    state = call.hub.run(run_id)
    title = f"Run {state.run.run_number}: {state.run.title}"
    return page(call.hub, "run.html", title, state=state, run=state.run, jobs=call.hub.jobs(state))


def _job_page(call: ApiCall, run_id: int, job_id: int) -> Response:
    job = call.hub.job(job_id)
    status = job.status.conclusion or job.status.status
    log = job.log if job.status.status == "completed" else ""
    return page(call.hub, "job.html", job.planned.name, status=status, log=log)


def _commit_page(call: ApiCall, sha: str) -> Response:
    repository = call.hub.home
    commit_id = repository.resolve(sha)
    if commit_id is None:
        raise not_found()
    message = repository.commit(commit_id).message
    diff = repository.git("show", "--format=", "--no-color", commit_id)
    return page(call.hub, "commit.html", message.splitlines()[0], message=message, diff=diff)


_RUN = "/<owner>/<repo>/actions/runs/<number:run_id>"
PAGES = (
    Route("GET", "/", _front_page),
    Route("GET", "/<owner>/<repo>", _front_page),
    Route("GET", "/<owner>/<repo>/pull/<number:number>", _ticket_page),
    Route("GET", "/<owner>/<repo>/issues/<number:number>", _ticket_page),
    Route("GET", _RUN, _run_page),
    Route("GET", f"{_RUN}/job/<number:job_id>", _job_page),
    Route("GET", "/<owner>/<repo>/commit/<sha>", _commit_page),
)
