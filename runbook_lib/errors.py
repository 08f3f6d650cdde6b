"""The errors that a person reads.

A message is one or more whole sentences: what was attempted, on what, what was found, and what to do next.
Only errors that some caller tells apart get a class of their own.
"""


class RunbookError(Exception):
    """Something that a person can understand and mend.  Shown as its message alone, never as a traceback."""

    def _render_traceback_(self) -> list[str]:
        """What IPython prints in a notebook instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class Refused(RunbookError):
    """The request is understood and not carried out.

    ``exception`` names the entry of the parameter ``allow`` that would permit it, if one would.
    """

    def __init__(self, message: str, exception: str | None = None) -> None:
        self.exception = exception
        if exception is not None:
            message = f"{message} To go on all the same, add allow={exception}; the record keeps it."
        super().__init__(message)


class NoSuchBranch(RunbookError):
    """A branch that was named does not exist."""


class CannotTell(RunbookError):
    """A question has no answer from what is there: a file does not parse, a ref does not exist."""


class Unreachable(RunbookError):
    """A service on the network did not answer, refused us, or limits our rate: trying later may help."""
