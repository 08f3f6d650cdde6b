"""The start page's board, with a button to remove an abandoned bump."""

from typing import Any

from runbook_lib.records.status import BumpStatus
from runbook_lib.runner import session
from runbook_lib.steps import start

_TOOLTIP = "Remove this bump from the board until it runs again. Its records, branch and pull request stay."


class Board:
    """The board, and in an interactive session a button for each bump in flight."""

    def __init__(self, audit: str) -> None:
        self._audit = audit
        self._buttons: Any = None

    def refresh(self, audit: str) -> None:
        """Show the current state of the bumps; ``audit`` is the form's value for the archive."""
        self._audit = audit
        start.refresh_board(audit)
        self._offer()

    def show(self) -> None:
        """Show the board."""
        start.show_board(self._audit)
        if session.interactive():
            from ipywidgets import HBox

            from runbook_lib.forms import widgets

            self._buttons = HBox()
            self._buttons.add_class("runbook-dismiss")
            self._offer()
            widgets.show(self._buttons, "")

    def _offer(self) -> None:
        """Offer a button for each bump in flight, except while it runs."""
        if self._buttons is None:
            return
        from ipywidgets import Button

        buttons = []
        for bump in start.bumps_in_flight(self._audit):
            if bump.state == "running":
                continue
            button = Button(description=f"Dismiss {start.title(bump)}", tooltip=_TOOLTIP, layout={"width": "auto"})
            button.on_click(lambda _, bump=bump: self._dismiss(bump))
            buttons.append(button)
        self._buttons.children = buttons

    def _dismiss(self, bump: BumpStatus) -> None:
        start.dismiss(self._audit, bump)
        self.refresh(self._audit)


def show(audit: str) -> Board:
    """Show the board of an archive; ``audit`` is the notebook's parameter."""
    board = Board(audit)
    board.show()
    return board
