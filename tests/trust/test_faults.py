"""Every kind of request meets every kind of fault: it is done after all, or told in a sentence, and never twice."""

import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import fault_kinds
import httpx
import pytest
from fault_calls import CALLS, At, Call, Clients, outcome, practice
from fault_kinds import KINDS, Kind
from fault_proxy import Proxy, Stranger
from figures import Figures

from runbook_lib.practice.accounts import GITLAB_TOKEN, TOKEN

#: Seconds that the library may want to wait for a server that asks for it, over all attempts of one call.
MOST = 15 * 60.0
#: The library's time limits while a fault keeps it waiting, so that the tests need not wait as long as a person.
_SHORT = httpx.Timeout(0.15)
SHORT = {
    "runbook_lib.clients.github.connection.TIMEOUT": _SHORT,
    "runbook_lib.clients.github.connection.DEADLINE": 0.4,
    "runbook_lib.clients.gitlab.client.TIMEOUT": 0.15, "runbook_lib.clients.gitlab.client.DEADLINE": 0.4,
    "runbook_lib.clients.gitlab.client.PAUSES": (0.1,),
    "runbook_lib.transport.ranges.TIMEOUT": _SHORT, "runbook_lib.transport.ranges.LIMIT": 0.4,
    "runbook_lib.clients.registry.connection.TIMEOUT": _SHORT,
    "runbook_lib.clients.registry.connection.DEADLINE": 0.4,
}  # fmt: skip
#: Faults after which a read is tried again: one that meets them once is carried out.
PASSING = (
    "connection reset after the request", "connection closed after the request", "500, JSON", "500, HTML",
    "500, empty", "502, HTML", "503, Retry-After", "504, empty",
)  # fmt: skip


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[At]:
    with practice(tmp_path_factory.mktemp("practice")) as made:
        yield made


@pytest.fixture(scope="module")
def truth(at: At) -> dict[str, Any]:
    """What each call returns, and what stands on the forge after it, where nothing goes wrong."""
    found: dict[str, Any] = {}
    with at.clients() as on:
        for name, call in CALLS.items():
            at.back_to(call.stage or "ended")
            how, came = outcome(at, on, call)
            assert how == "done", f"{name}: {came}"
            found[name] = at.made() if call.stage else came
    return found


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    made = Stranger()
    fault_kinds.STRANGER[0] = made.url
    yield made
    made.close()


@contextmanager
def short(slow: bool) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for place, value in SHORT.items() if slow else ():
            patch.setattr(place, value)
        yield


def proxy_of(at: At, call: Call) -> Proxy:
    return at.images if call.target == "registry" else at.forge


def chosen(name: str, kind: Kind) -> dict[str, Call]:
    return {
        what: call for what, call in CALLS.items()
        if not (name == "204" and call.method == "DELETE")  # which is how success is told
        and (not kind.targets or call.target in kind.targets) and not (kind.lie and call.trusts)
    }  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_every_call_succeeds(at: At, truth: dict[str, Any], stranger: Stranger, figures: Figures, name: str) -> None:
    kind = KINDS[name]
    wrong: list[str] = []
    with ExitStack() as undo:
        with short(kind.slow):
            hurt = undo.enter_context(at.clients())
        healthy = undo.enter_context(at.clients()) if kind.slow else hurt
        for what, call in chosen(name, kind).items():
            for times in (10**9, 1) if kind.passing else (10**9,):
                at.back_to(call.stage or "ended")
                at.slept.clear()
                with short(kind.slow), at.clients() if kind.ends else nullcontext(hurt) as on:
                    how, problems = met(at, on, call, kind, truth[what], times)
                problems += recovered(at, healthy, call, truth[what])
                if name in PASSING and times == 1 and not call.stage and how != "done":
                    problems.append("a read was not tried again")
                wrong += [f"{what} ({'always' if times > 1 else 'once'}), {how}: {it}" for it in problems]
                figures.fault(name, how)
    assert not wrong, "\n".join(wrong)
    assert TOKEN.encode() not in stranger.received, "the token went to another host"
    assert GITLAB_TOKEN.encode() not in stranger.received, "the token went to another host"


@pytest.mark.parametrize("name", ["connection refused", "reset before the request", "closed before the request"])
def test_every_call_succeeds_without_a_user(at: At, truth: dict[str, Any], figures: Figures, name: str) -> None:
    wrong: list[str] = []
    with at.clients() as on:
        for what, call in CALLS.items():
            at.back_to(call.stage or "ended")
            proxy = proxy_of(at, call)
            with proxy.refusing() if "refused" in name else proxy.rude(reset="reset" in name):
                try:
                    how, came = outcome(at, on, call)
                except Exception:
                    how, came = "raw", traceback.format_exc()[-1500:]
            if how != "told" or not is_sentence(came):
                wrong.append(f"{what}: {how}: {came}")
            wrong += [f"{what}: {it}" for it in recovered(at, on, call, truth[what])]
            figures.fault(name, "told")
    assert not wrong, "\n".join(wrong)


def met(at: At, on: Clients, call: Call, kind: Kind, right: Any, times: int) -> tuple[str, list[str]]:
    """How the call ended while it met the fault, and what is wrong with that."""
    proxy = proxy_of(at, call)
    with proxy.broken(kind.work, call.method, call.route, times) as fault:
        try:
            how, came = outcome(at, on, call)
        except Exception:
            return "told", [f"a raw exception\n{traceback.format_exc()[-1500:]}"]
        problems = ["it hung"] if fault.outlasted else []
    if not fault.struck and not kind.slow:
        problems.append("the fault met no request")
    if sum(at.slept) > MOST:
        problems.append(f"it would have slept for {sum(at.slept):.0f} s")
    if how == "done" and (at.made() if call.stage else came) != right and came != call.absent:
        problems.append(f"it says that it was done, and came to {came!r:.300}")
    if how == "told" and not is_sentence(came):
        problems.append(f"no sentence: {came!r:.300}")
    return how, problems


def recovered(at: At, on: Clients, call: Call, right: Any) -> list[str]:
    """What is wrong when the same is asked for again, with nothing in the way."""
    try:
        how, came = outcome(at, on, call)
    except Exception:
        return [f"a raw exception afterwards\n{traceback.format_exc()[-1500:]}"]
    now = at.made() if call.stage else came
    if how != "done" or now != right:
        return [f"afterwards it was {how}, and came to {now if how == 'done' else came!r:.600}"]
    return []


def is_sentence(text: str) -> bool:
    """At least one whole sentence without a traceback or a token."""
    plain = text.strip()
    return (
        len(plain) > 20 and plain[-1] in ".?)\"'}" and "Traceback" not in plain and "\n  File" not in plain
        and TOKEN not in plain and GITLAB_TOKEN not in plain
    )  # fmt: skip
