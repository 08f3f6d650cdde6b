"""The sync check as GitHub shows it in a pull request: annotations on pin lines, and the job summary."""

from collections.abc import Iterator

from runbook_lib.text import markdown
from runbook_lib.workflow.sync_survey import WARNED, Survey


def annotations(survey: Survey) -> Iterator[str]:
    """Yield a workflow command for each pin with a problem: an error if it decides the outcome, else a warning."""
    for snapshot in survey.snapshots:
        for verdict in snapshot.verdicts:
            if not verdict.sentence:
                continue
            kind = "warning" if verdict.role == WARNED and not survey.strict else "error"
            title = f"base image of {snapshot.name}"
            properties = {"file": verdict.path, "line": str(verdict.line or 1), "title": title}
            fields = ",".join(f"{name}={_escape(value, ':,')}" for name, value in properties.items())
            yield f"::{kind} {fields}::{_escape(verdict.sentence)}"


def _escape(text: str, more: str = "") -> str:
    """Escape characters that would end a workflow command or one of its properties."""
    for sign in f"%\r\n{more}":
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text


def summary(survey: Survey) -> str:
    """Return the table of the pins, as Markdown."""
    rows = survey.rows()
    heads = list(rows[0]) if rows else []
    lines = ["### Base image", "", survey.summary, ""]
    if heads:
        lines += [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for row in rows:
        lines.append(f"| {' | '.join(map(markdown.code, row.values()))} |")
    return "\n".join([*lines, "", *(f"- {markdown.prose(sentence)}" for sentence in survey.sentences), ""])
