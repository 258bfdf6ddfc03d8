"""Fifty clients at two desks of one database, one of which is killed among them: what people
allowed is used as often as they said, and never more. Behind PgBouncer in transaction mode as well.
"""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path
from threading import Event as Flag
from typing import Any

import httpx
import pytest

from approvals import grants
from approvals.gate import bounded_grants
from approvals.models import Approval, ApprovalState, GateKey
from ledger import sealer
from tests import pooler as poolers
from tests.approvals.cast import agree, change, put_in_force
from tests.approvals.door import planned
from tests.approvals.security_key import DESK, SecurityKey
from tests.approvals.test_signed import enrol, signed_yes
from tests.processes import Process
from workspaces import keys
from workspaces.models import Agent

pooler, named_pooler = poolers.pooler, poolers.named_pooler
pytestmark = pytest.mark.django_db(transaction=True)
CLIENTS, KILLED_AFTER, TRIES_MAX = 50, 12, 30
PAY = {"tool": "pay.refund", "args": {"amount": 10, "currency": "EUR"},
       "targets": [{"type": "contact", "id": "contact7"}]}  # fmt: skip
BOUNDED = {"uses": 9, "for": "1d", "amount": "args.amount", "each": 100, "sum": 500}
WAYS = ["straight", pytest.param("pooled", marks=poolers.needed)]

Ask = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


@pytest.fixture(autouse=True)
def heads(settings: Any, tmp_path: Path) -> Iterator[str]:
    settings.AMENDS_URL, settings.AMENDS_HEADS_FOLDER = DESK, str(tmp_path / "heads")
    sealer._last.clear()
    yield settings.AMENDS_HEADS_FOLDER
    sealer._last.clear()


@pytest.fixture(params=WAYS)
def ask_all(request: pytest.FixtureRequest, processes: Any, acme: Any, ada: Any, heads: str) -> Ask:
    """Ask side by side, at either desk; who gets no answer asks the other one."""
    told = {"AMENDS_HEADS_FOLDER": heads}
    if request.param == "pooled":
        told |= request.getfixturevalue("named_pooler")()
    with processes.side_by_side():
        webs = [processes.web(**told), processes.web(**told)]
    agent = Agent.objects.create(workspace=acme, name="payer", owner=ada)
    _, token = keys.create_key(agent, by=None, name="test")

    def ask_all(bodies: list[dict[str, Any]], *, kills: bool = True) -> list[dict[str, Any]]:
        enough = Flag()
        answered: list[dict[str, Any]] = []

        def one(numbered: tuple[int, dict[str, Any]]) -> dict[str, Any]:
            number, body = numbered
            for web in islice(cycle(turned(webs, number)), TRIES_MAX):
                found = answer_of(web, token, body)
                if found is not None:
                    answered.append(found)
                    if len(answered) >= KILLED_AFTER:
                        enough.set()
                    return found
            raise AssertionError("no desk answers")

        with ThreadPoolExecutor(CLIENTS + 1) as threads:
            asked = [threads.submit(one, each) for each in enumerate(bodies)]
            if kills:
                assert enough.wait(120)
                webs[0].kill()
            return [each.result(timeout=120) for each in asked]

    return ask_all


def turned(webs: list[Process], number: int) -> list[Process]:
    return webs if number % 2 else webs[::-1]


def answer_of(web: Process, token: str, body: dict[str, Any]) -> dict[str, Any] | None:
    """What the desk says, or None where it is not there (any more)."""
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    address = f"{web.url}/api/v1/actions/begin"
    try:
        answer = httpx.post(address, content=json.dumps(body), headers=headers, timeout=60)
    except httpx.TransportError:
        return None
    if answer.status_code in {500, 502}:
        raise AssertionError(answer.text)
    found: dict[str, Any] = answer.json()
    return None if answer.status_code in {429, 503} else found


def tries(number: int, **more: Any) -> list[dict[str, Any]]:
    """So many tries at one call, each by a client of its own."""
    return [planned(attempt=f"t{n}", key="k", **(PAY | more)) for n in range(number)]


def waiting() -> Approval:
    return Approval.objects.get(state=ApprovalState.WAITING)


def proceeding(answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in answers if one.get("answer") == "proceed"]


def test_a_bounded_grant_lets_nine_pass(
    ask_all: Any, acme: Any, ada: Any, ben: Any, finance: Any
) -> None:
    put_in_force(acme, ada, {"policies": {"pay.*": [{"approval": "MANUAL", "bounded": BOUNDED}]}})
    ask_all(tries(1), kills=False)
    terms = {"uses": "9", "hours": "2", "each": "60", "sum": "500", "target": "one"}
    question = waiting()
    grant = bounded_grants.approve_with_more(
        question, by=ben, seen=question.digest, typed=terms, reason="returns"
    )

    calls = [
        planned(attempt=f"t{n}", key=f"k{n}", action=f"a{n}", run=f"run-{n % 7}", **PAY)
        for n in range(CLIENTS)
    ]
    went_on = proceeding(ask_all(calls))

    assert len(went_on) == len({one["action"] for one in went_on}) == 9
    drawn = grants.Drawdown.of(grants.drawn(grant))
    assert (drawn.calls, int(drawn.total)) == (9, 90)


def test_a_changed_call_is_made_once_and_as_it_was_changed(
    ask_all: Any, acme: Any, ada: Any, ben: Any, cleo: Any, finance: Any
) -> None:
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "MANUAL"}}})
    ask_all(tries(1, accepts_changed_arguments=True), kills=False)
    change(ben, amount="8")
    agree(cleo)

    answers = ask_all(tries(CLIENTS, accepts_changed_arguments=True))

    [made] = proceeding(answers)
    assert made["arguments"]["amount"] == 8
    assert {one.get("status") for one in answers if one is not made} == {409}
    assert [one.state for one in Approval.objects.order_by("pk")] == ["withdrawn", "used"]


def test_a_signed_yes_is_used_once(
    ask_all: Any, acme: Any, ada: Any, ben: Any, django_capture_on_commit_callbacks: Any
) -> None:
    def seal() -> None:
        with django_capture_on_commit_callbacks(execute=True):
            sealer.seal(acme)

    rule = {"approval": "MANUAL", "risk": "HIGH"}
    put_in_force(acme, ada, {"policies": {"pay.*": rule}, "signedFrom": "HIGH"})
    blue = SecurityKey(ben)
    enrol(acme, ben, blue)
    seal()
    ask_all(tries(1), kills=False)
    seal()
    signed_yes(waiting(), ben, blue)

    answers = ask_all(tries(CLIENTS))

    assert len(proceeding(answers)) == 1
    assert Approval.objects.get().state == ApprovalState.USED
    assert GateKey.objects.count() == 1
