"""The frame of all commands: an answer as text or, with ``--json``, as a document, and its exit status."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import click

CANNOT_TELL = 2


class ClosedPipe(Exception):
    """The reader has closed the pipe (``runbook check | head``).  click would report an OSError as status 1."""


@dataclass(frozen=True)
class Answer:
    """The answer of a command: its exit status, the document for ``--json``, and lines for a terminal.

    ``remarks`` go to standard error.
    """

    status: int
    document: Mapping[str, Any]
    lines: Iterable[str]
    remarks: Iterable[str] = ()


class Command(click.Command):
    """A command that returns its answer, or its exit status: 0 yes, 1 no, 2 cannot tell.

    ``click.pass_obj`` gives a command True for ``--json``.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        option = click.Option(
            ["--json"], is_flag=True, expose_value=False, help="Print JSON, for errors too.",
            callback=lambda context, _, given: setattr(context, "obj", given),
        )  # fmt: skip
        self.params.append(option)

    def invoke(self, ctx: click.Context) -> int:
        """Run the command, print its answer, and return its exit status.  Raises ClosedPipe."""
        try:
            answer: Answer | int = super().invoke(ctx)
            if isinstance(answer, int):
                return answer
            if ctx.obj:
                print_json(answer.document)
                return answer.status
            for line in answer.lines:
                print(line)
            for remark in answer.remarks:
                print(remark, file=sys.stderr)
            return answer.status
        except BrokenPipeError:
            raise ClosedPipe from None


def command(example: str, group: Any = click, **settings: Any) -> Callable[[Callable[..., Answer | int]], Command]:
    """Make a command of a function, whose docstring is the help; ``example`` is a call, as in ``check ~/clone``.

    ``group`` has the command if it is not one of ``runbook`` itself.
    """
    name = example.split()[0 if group is click else 1]
    made: Callable[[Callable[..., Answer | int]], Command] = group.command(
        name, cls=Command, epilog=f"Example: runbook {example}", **settings
    )
    return made


def print_json(document: Mapping[str, Any]) -> None:
    """Print a document; its format has version 1, unless it says otherwise."""
    print(json.dumps({"version": 1, **document}, indent=2, allow_nan=False))
