"""All keys of a desk are changed while an agent acts and Ben decides: nothing is lost, all that is
sealed can be read, and nothing that was masked is taken for another value."""

import itertools
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event as Flag
from typing import Any

import httpx
import pytest
from cryptography.fernet import Fernet
from django.core.management import call_command

from approvals.models import Approval, ApprovalState
from ledger import audit, logkeys, sealer
from tests.approvals.cast import put_in_force
from tests.approvals.door import planned
from tests.config.test_worker import soon
from tests.crash.person import Person
from tests.processes import Process
from workspaces import keys

pytestmark = pytest.mark.django_db(transaction=True)
CARD, OTHER = "4242 4242 4242 4242", "5555 5555 5555 4444"


def begin(web: Process, token: str, **asked: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {token}"}
    address = f"{web.url}/api/v1/actions/begin"
    return httpx.post(address, json=planned(**asked), headers=headers, timeout=60)


def pay(web: Process, token: str, card: str = CARD) -> httpx.Response:
    about = {"targets": [{"type": "card", "id": "tok_1"}], "key": "pay", "action": "pay"}
    return begin(web, token, tool="pay.charge", args={"card": card}, attempt="pay", **about)


def test_every_key_is_changed_while_an_agent_acts_and_ben_decides(
    processes: Any, acme: Any, ada: Any, ben: Any, agent: Any, key: str, settings: Any
) -> None:
    rules = {"pay.*": {"approval": "MANUAL"}, "note.*": {"approval": "AUTO"}}
    put_in_force(acme, ada, {"policies": rules})
    old, new = os.environ["AMENDS_SECRET_KEYS"], Fernet.generate_key().decode()
    session = os.environ["DJANGO_SECRET_KEY"]
    both = {"AMENDS_SECRET_KEYS": f"{new},{old}", "DJANGO_SECRET_KEY": "another " * 8,
            "DJANGO_SECRET_KEY_FALLBACKS": session}  # fmt: skip
    with processes.side_by_side():
        first, second = processes.web(), processes.web(**both)
        third = processes.web(**both | {"AMENDS_SECRET_KEYS": new})
    statuses: Counter[int] = Counter()
    over, webs, numbers = Flag(), [first, second], itertools.count()

    def act() -> None:
        """Notes with a card in each, every second one asked again by the next web."""
        while not over.is_set():
            number = next(numbers)
            about = {"key": f"n{number}", "action": f"n{number}", "attempt": f"n{number}",
                     "tool": "note.write", "args": {"text": CARD}}  # fmt: skip
            for web in tuple(webs):
                with suppress(httpx.TransportError):  # it was stopped
                    statuses[begin(web, tokens[-1], **about).status_code] += 1

    tokens = [key]
    with ThreadPoolExecutor(2) as threads:
        acting = [threads.submit(act) for _ in range(2)]
        try:
            assert pay(first, key).json()["answer"] == "wait"
            webs[:] = [second]  # who knows the old one alone is replaced before
            first.stop()
            settings.AMENDS_SECRET_KEYS = [new, old]
            call_command("rotate_secrets")
            assert pay(second, key).json()["answer"] == "wait"
            Person(ben, second.url, acme).approves(Approval.objects.get())
            logkeys.rotate(acme, by=ada)
            sealer.seal(acme)
            tokens.append(keys.create_key(agent, by=ada, name="next")[1])
            webs[:] = [second, third]
            settings.AMENDS_SECRET_KEYS = [new]
            [former] = agent.keys.filter(name="test")
            keys.revoke(former, by=ada)
            assert soon(lambda: statuses[200] > 20 + 10 * statuses[503]), "“too busy” is rare"
        finally:
            over.set()
        for one in acting:
            one.result(timeout=60)

    assert statuses.keys() <= {200, 401, 503}
    assert statuses[401] <= 4, "but for what was on its way with the key that was revoked"
    assert soon(lambda: pay(third, key).status_code == 401)
    assert pay(third, tokens[-1], OTHER).json()["type"].endswith("key-reused")
    assert pay(third, tokens[-1]).json()["answer"] == "proceed"
    assert Approval.objects.get().state == ApprovalState.USED
    sealer.seal(acme)
    assert all(one.ok for one in audit.audit(acme))
