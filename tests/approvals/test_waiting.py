"""Waiting for people, racing for a decision, and time running out."""

import asyncio
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.utils import timezone

from approvals import gate, grants, inbox, periodic, signals
from approvals.gate.waiting import waiters
from approvals.models import Approval, ApprovalState
from edge import asgi
from recovery import edge as recovery_edge
from tests.approvals import door
from tests.approvals.cast import told
from tests.approvals.door import Agent as Trip
from tests.approvals.door import planned, visit
from tests.people import person
from tests.worlds import kept
from workspaces import keys
from workspaces.models import Agent
from workspaces.moves import CannotMove

ROOT = Path(__file__).parents[2]
only_bells, statements = door.only_bells, door.statements
pytestmark = pytest.mark.django_db(transaction=True)
BEFORE_THE_WAIT_IS_OVER = 45  # seconds: at its end the state would be read in any case
IRREVERSIBLE = {"class_": "external_irreversible"}


@pytest.fixture
@kept
def trip(key, acme, ada, ben, leads):
    return Trip(key)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("30", 30), ("2.5", 2.5), ("61", 60), ("60.000000000001", 60), ("10000000000", 60),
     ("inf", 60), ("-1", 0), ("nan", 0)],
)  # fmt: skip
def test_who_would_wait_longer_than_anybody_may_waits_as_long_as_that(given, seconds):
    assert asgi.wait_seconds({"query_string": f"wait={given}".encode()}) == seconds


def test_what_is_said_to_clients_of_how_long_they_may_wait_is_how_long_they_may():
    longest = asgi.WAIT_SECONDS_MAX
    told = [
        one.operation.query["wait"][0]["maximum"]
        for one in (*gate.routes, *recovery_edge.routes)
        if one.operation is not None and "wait" in one.operation.query
    ]
    assert told == [longest, longest]
    assert f"within that time, at most {longest} seconds" in (ROOT / "docs/wire.md").read_text()


async def until_waiting(count, asked=()):
    """Nobody rings when somebody begins to wait. Whoever of `asked` is answered waits no more."""
    while waiters.count < count:
        for one in asked:
            assert not one.done(), one.result().text
        await asyncio.sleep(0.02)


def in_a_thread(function, *args):
    """A person in another process, with a connection of their own."""

    def act():
        try:
            function(*args)
        finally:
            connection.close()

    thread = threading.Thread(target=act)
    thread.start()
    return thread


def test_a_waiting_agent_hears_the_decision_at_once(trip, ben, only_bells):
    """The database is asked once when the first one begins to wait, and then not for an hour."""
    trip.begin(**IRREVERSIBLE)
    approval = Approval.objects.get()

    async def story(client):
        path = f"/api/v1/approvals/{approval.pk}?wait=60"
        headers = {"authorization": f"Bearer {trip.token}"}
        waiting = asyncio.create_task(client.get(path, headers=headers))
        await until_waiting(1)
        await asyncio.sleep(0.3)  # so that the database has been asked before
        decide = in_a_thread(lambda: inbox.grant(approval, by=ben, seen=approval.digest))
        said = await asyncio.wait_for(waiting, BEFORE_THE_WAIT_IS_OVER)
        decide.join()
        return said.json()

    assert visit(story)["state"] == "granted"


def test_a_lost_message_costs_seconds_and_no_more(trip, ben, monkeypatch):
    trip.begin(**IRREVERSIBLE)
    approval = Approval.objects.get()
    monkeypatch.setattr(signals, "CHANNEL", "somewhere else")

    async def story(client):
        path = f"/api/v1/approvals/{approval.pk}?wait=20"
        waiting = asyncio.create_task(
            client.get(path, headers={"authorization": f"Bearer {trip.token}"})
        )
        await until_waiting(1)
        seen = approval.digest
        decide = in_a_thread(
            lambda: inbox.reject(approval, by=ben, seen=seen, reason="no, the other card")
        )
        said = await waiting
        decide.join()
        return said.json()

    said = visit(story)
    assert (said["state"], said["reason"]) == ("rejected", "no, the other card")


def test_a_thousand_agents_wait_on_four_connections_and_no_thread(trip, ben):
    trip.begin(**IRREVERSIBLE)
    approval = Approval.objects.get()

    async def story(client):
        path = f"/api/v1/approvals/{approval.pk}?wait=60"
        headers = {"authorization": f"Bearer {trip.token}"}
        threads = threading.active_count()
        asked = [asyncio.create_task(client.get(path, headers=headers)) for _ in range(1000)]
        await until_waiting(1000, asked)
        await asyncio.sleep(0.3)
        held = threading.active_count() - threads
        decide = in_a_thread(lambda: inbox.grant(approval, by=ben, seen=approval.digest))
        said = [answer.json()["state"] for answer in await asyncio.gather(*asked)]
        decide.join()
        return held, said

    held, said = visit(story)

    assert held <= 2
    assert said == ["granted"] * 1000
    assert waiters.count == 0


def test_agents_that_come_back_in_one_moment_are_read_together_and_each_hears_of_its_own(
    trip, acme, ben, statements
):
    other = Agent.objects.create(workspace=acme, name="other-agent")
    tokens = [trip.token, keys.create_key(other, by=None, name="other")[1]]
    for number, token in enumerate(tokens):
        Trip(token).begin(run=f"run_{number}", **IRREVERSIBLE)
    of = dict(zip(tokens, Approval.objects.order_by("pk"), strict=True))
    inbox.reject(of[trip.token], by=ben, seen=of[trip.token].digest, reason="no")
    asked = [(token, of[whose].pk) for token in tokens for whose in tokens] * 50
    statements.clear()

    async def story(client):
        def one(token, pk):
            headers = {"authorization": f"Bearer {token}"}
            return client.get(f"/api/v1/approvals/{pk}", headers=headers)

        return await asyncio.gather(*(one(*each) for each in asked))

    said = visit(story)

    assert [answer.json().get("state", answer.status_code) for answer in said] == [
        "rejected", 404, 404, "waiting"
    ] * 50  # fmt: skip
    assert len(statements) < 10


def test_eight_people_race_and_each_place_is_filled_once(ask, finance, acme):
    people = [person(f"racer{number}", finance) for number in range(8)]
    approval = ask()
    start, heard = threading.Barrier(8), []

    def decide(by):
        start.wait()
        try:
            inbox.grant(approval, by=by, seen=approval.digest)
            heard.append("granted")
        except CannotMove:
            heard.append("too late")

    for thread in [in_a_thread(decide, one) for one in people]:
        thread.join()

    assert sorted(heard) == ["granted"] + ["too late"] * 7
    assert approval.decisions.count() == 1
    assert len(told(acme, "approval.granted")) == 1


def test_eight_uses_of_one_grant_are_one_use(ask, ben, acme):
    approval = ask()
    inbox.grant(approval, by=ben, seen=approval.digest)
    start, used = threading.Barrier(8), []

    def use():
        start.wait()
        used.append(grants.use(approval.pk, approval.digest))

    for thread in [in_a_thread(use) for _ in range(8)]:
        thread.join()

    assert sorted(used) == [False] * 7 + [True]
    assert len(told(acme, "approval.used")) == 1


def test_the_same_person_in_two_browsers_decides_once(ask, ben):
    approval = ask()
    start, heard = threading.Barrier(2), []

    def decide(yes):
        start.wait()
        try:
            if yes:
                inbox.grant(approval, by=ben, seen=approval.digest)
            else:
                inbox.reject(approval, by=ben, seen=approval.digest, reason="no")
            heard.append(yes)
        except CannotMove:
            pass

    for thread in [in_a_thread(decide, yes) for yes in (True, False)]:
        thread.join()

    assert len(heard) == 1
    approval.refresh_from_db()
    assert approval.state == ("granted" if heard[0] else "rejected")


def test_eight_tries_of_one_gated_call_use_the_grant_once(trip, ben):
    trip.begin(attempt="a0", **IRREVERSIBLE)
    approval = Approval.objects.get()
    inbox.grant(approval, by=ben, seen=approval.digest)

    async def story(client):
        headers = {"authorization": f"Bearer {trip.token}"}
        asked = [
            client.post("/api/v1/actions/begin", json=planned(**IRREVERSIBLE), headers=headers)
            for _ in range(8)
        ]
        return [
            said.json().get("answer", said.status_code) for said in await asyncio.gather(*asked)
        ]

    heard = visit(story, connections_max=8)

    assert sorted(map(str, heard)) == ["409"] * 7 + ["proceed"]


def test_what_nobody_answered_expires_and_the_agent_is_told(trip, acme):
    trip.begin(attempt="a1", **IRREVERSIBLE)
    Approval.objects.update(expires_at=timezone.now() - timedelta(seconds=1))

    assert periodic.expire_due() == 1
    assert periodic.expire_due() == 0

    assert Approval.objects.get().state == ApprovalState.EXPIRED
    assert len(told(acme, "approval.expired")) == 1
    assert trip.begin(attempt="a1", **IRREVERSIBLE).json()["code"] == "expired"


def test_half_way_somebody_is_reminded_once(ask, acme, ben, cleo):
    approval = ask()
    Approval.objects.filter(pk=approval.pk).update(remind_at=timezone.now())

    assert periodic.remind_due() == 1
    assert periodic.remind_due() == 0
    assert set(told(acme, "approval.reminded")[0]["people"]) == {ben.pk, cleo.pk}
