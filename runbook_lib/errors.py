"""The errors shown to people.

A message is one or more complete sentences: what failed, on what, why, and how to fix it.
Only errors that some caller distinguishes have a class of their own.
"""


class RunbookError(Exception):
    """An error that its reader can fix.  Shown only as its message and ``fix``, never as a traceback.

    ``fix`` is how, in sentences of its own, where the message does not say it; ``--json`` prints it apart.
    """

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(f"{message} {fix}".rstrip())
        self.message, self.fix = message, fix

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython prints instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class Refused(RunbookError):
    """A valid request that was refused.

    ``exception`` is the named exception that would permit it, as an entry of the decisions; empty if none would.
    """

    def __init__(self, message: str, fix: str = "", *, exception: str = "") -> None:
        self.exception = exception
        if exception:
            entry = f'`- {{what: {exception}, reason: "…"}}`'
            fix += f" To proceed anyway, write under `allow:` in the bump's decisions.yaml: {entry} (an entry that "
            fix += "was made before on other evidence counts again without its `seen`)."
        super().__init__(message, fix.lstrip())


class NoSuchBranch(RunbookError):
    """A branch named by a parameter that does not exist."""


class CannotTell(RunbookError):
    """A question that the data cannot answer: a file does not parse, a ref does not exist."""


class Unreachable(RunbookError):
    """A network service that does not respond, refuses the connection or limits the rate: retrying later may help."""
