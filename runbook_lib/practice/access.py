"""What the parts of the practice forge share: the account, transactions, and the rules of every write."""

import functools
import json
import os
import sqlite3
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from runbook_lib.errors import Unreachable
from runbook_lib.practice.accounts import ENGINEER, PracticeAccount
from runbook_lib.practice.hub import Hub, InvalidRequest, PracticeRefusal
from runbook_lib.practice.store import TicketRecord
from runbook_lib.text.redact import Redactor

_LONGEST_BODY, _LONGEST_TITLE = 65536, 256  # characters

T = TypeVar("T")
P = ParamSpec("P")
A = TypeVar("A", bound="ForgeAccess")


def transaction(
    method: Callable[Concatenate[A, P], T],
) -> Callable[Concatenate[A, P], T]:
    """Carry out a method in one transaction of the stored state, which an error undoes."""

    @functools.wraps(method)
    def call(self: A, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            with self.hub.store.transaction():
                return method(self, *args, **kwargs)
        except (sqlite3.Error, subprocess.CalledProcessError) as error:
            raise Unreachable(f"The practice forge failed: {error}. Run the same command again.") from error

    return call


class ForgeAccess:
    """The forge as ``account`` sees it; the URLs of its objects lead to the folder ``pages``."""

    def __init__(self, hub: Hub, pages: Path, account: PracticeAccount = ENGINEER) -> None:
        self.hub, self.account, self._pages = hub, account, pages

    @property
    def repository(self) -> str:
        """``owner/name``."""
        return self.hub.repository

    def close(self) -> None:
        """Do nothing: the file is closed with the process."""

    def url(self, page: str) -> str:
        """Return the URL of a page, such as ``pull/10``, which the end of a run writes."""
        return (self._pages / f"{page}.html").as_uri()

    def public(self, value: T) -> T:
        """Return text or data as it would be published: without secrets and characters that UTF-8 cannot encode."""
        text = json.dumps(Redactor(os.environ).data(value), ensure_ascii=False)
        public: T = json.loads(text.encode("utf-8", "replace"))
        return public

    def require_write(self) -> None:
        """Raise PracticeRefusal if the account may not write to the repository."""
        if not self.account.may_write:
            raise PracticeRefusal("Must have admin rights to Repository.", 403)

    def require_author(self, ticket: TicketRecord) -> None:
        if self.account.login != ticket.author:
            self.require_write()

    def common_fields(self, resource: str, title: str, body: str) -> dict[str, object]:
        """Return the fields that a new issue and a new pull request have in common.  Raises InvalidRequest."""
        title, now = self.text(resource, "title", title), self.hub.clock()
        if not title:
            raise InvalidRequest(resource, field="title", code="missing_field")
        body = self.text(resource, "body", body)
        return {"author": self.account.login, "title": title, "body": body, "created": now, "updated": now}

    def text(self, resource: str, name: str, text: str) -> str:
        """Return a text as it is published.  Raises InvalidRequest for one that is too long."""
        longest = _LONGEST_TITLE if name == "title" else _LONGEST_BODY
        if len(text) > longest:
            message = f"{name} is too long (maximum is {longest} characters)"
            raise InvalidRequest(resource, field=name, message=message)
        return self.public(text)


def moment(seconds: float) -> datetime:
    """Return a time as GitHub shows it, in whole seconds; ``seconds`` since 1970."""
    return datetime.fromtimestamp(int(seconds), UTC)
