"""A large erasure goes on part by part: shown while it does, and taken up by whoever is left."""

import threading
from datetime import timedelta
from itertools import pairwise

import pytest
from django.db import DatabaseError, connection, connections, transaction
from django.db.models.functions import Now

from amends.protocol.vocabulary import EventType
from ledger import desk_events, erasure
from ledger.models import Action, Effect, Erasure, Event, Run
from ledger.partitions import owner_alias
from tests.ledger.conftest import event, record_events
from tests.ledger.test_erasure import EVE, act, tables_that_say
from tests.ledger.test_pages import member
from workspaces import erasure_registry, locks

PAGE = "/w/northwind/settings/kept/"


@pytest.fixture
def said(actor, northwind, monkeypatch):
    """Three runs of Eve's, and one action on what is hers in Bob's run; a part is one run."""
    monkeypatch.setattr(erasure, "RUNS_AT_A_TIME", 1)
    for run in ("eve-1", "eve-2", "eve-3"):
        record_events(
            actor,
            event("run.started", run=run, data={"request": "Eve Canary", "on_behalf_of": EVE}),
            *act(run, f"a-{run}"),
            event("run.completed", run=run, data={}),
        )
    record_events(actor, event("run.started", run="bob", data={}), *act("bob", "b1", EVE))
    Run.objects.update(lease_until=None)


def emptied():
    return Event.objects.filter(data__isnull=True).count()


def test_each_part_stays_done_and_the_next_worker_goes_on(said, northwind):
    asked = erasure.ask(northwind, person="cust_eve", by=None)
    assert (emptied(), asked.total) == (0, 3)

    assert erasure.work(asked.pk)  # and then its process is gone
    assert emptied() == 4
    assert erasure.sweep() >= 3

    asked.refresh_from_db()
    assert (asked.state, asked.run_count, asked.event_count) == ("done", 3, 14)
    assert tables_that_say("Canary") == tables_that_say("cust_eve") == {}
    assert not erasure.work(asked.pk)


def test_named_runs_go_part_by_part_too(said, northwind):
    done = erasure.erase(northwind, runs=["eve-1", "eve-3"], by=None)

    assert (done.run_count, done.event_count, done.named) == (2, 8, [])
    assert Run.objects.get(run="eve-2").customer == "cust_eve"


def test_a_run_that_somebody_takes_up_meanwhile_stops_the_rest(said, northwind, actor):
    asked = erasure.ask(northwind, person="cust_eve", by=None)
    erasure.work(asked.pk)
    record_events(actor, event("run.resumed", run="eve-2", data={}))

    erasure.sweep()

    asked.refresh_from_db()
    assert (asked.state, asked.detail, asked.run_count) == ("refused", "eve-2", 1)
    assert asked.person == ""
    Run.objects.update(lease_until=None, state="completed")
    assert erasure.erase(northwind, person="cust_eve", by=None).run_count == 2


def test_a_long_run_is_forgotten_in_several_parts(said, northwind, actor, monkeypatch):
    record_events(actor, event("run.started", run="long", data={"on_behalf_of": EVE}))
    for number in range(12):
        record_events(actor, *act("long", f"a-{number}"))
    Run.objects.update(lease_until=None)
    everything = Event.objects.filter(action="a-0", run="long").count() * 12 + 1
    monkeypatch.setattr(erasure, "EVENTS_OF_PART", 5)
    monkeypatch.setattr(erasure, "ROWS_OF_PART", 5)
    asked = erasure.ask(northwind, runs=["long"], by=None)
    seen, rows = [], []
    while erasure.work(asked.pk):
        seen.append(emptied())
        rows.append(Action.objects.filter(run__run="long", args=None).count())

    steps = [after - before for before, after in pairwise([0, *seen])]
    assert max(steps) <= 5
    assert seen[-1] == everything
    assert max(after - before for before, after in pairwise(rows)) <= 5
    asked.refresh_from_db()
    assert (asked.state, asked.run_count, asked.event_count) == ("done", 1, everything)
    assert asked.rows["ledger.Action"] == asked.rows["ledger.Effect"] == 12
    assert not Effect.objects.filter(action__run__run="long", has_before=True).exists()
    assert Run.objects.get(run="long").forgotten_at


def test_who_comes_back_between_two_parts_leaves_no_run_half_forgotten(
    said, northwind, actor, monkeypatch
):
    monkeypatch.setattr(erasure, "EVENTS_OF_PART", 2)
    asked = erasure.ask(northwind, runs=["eve-2"], by=None)
    assert erasure.work(asked.pk)
    assert Run.objects.get(run="eve-2").forgotten_at
    Run.objects.filter(run="eve-2").update(lease_until=Now() + timedelta(hours=1), state="running")

    while erasure.work(asked.pk):
        pass

    asked.refresh_from_db()
    assert (asked.state, asked.run_count, asked.event_count) == ("done", 1, 4)
    assert not Action.objects.filter(run__run="eve-2").exclude(args=None).exists()


def test_a_person_with_a_long_run_is_forgotten_in_runs_of_others_too(
    said, northwind, actor, monkeypatch
):
    monkeypatch.setattr(erasure, "EVENTS_OF_PART", 3)
    monkeypatch.setattr(erasure, "ROWS_OF_PART", 1)

    erasure.erase(northwind, person="cust_eve", by=None)

    assert tables_that_say("Canary") == tables_that_say("cust_eve") == {}


def test_what_is_told_twice_of_a_full_part_leaves_nothing_of_it(said, northwind, monkeypatch):
    """Of a run an event may also be found as what somebody did to many cases at once."""
    for name in ("one", "other"):
        desk_events.record(northwind, EventType.POLICY_SAVED, data={"name": name}, part="policy")

    def acts(scope):
        found = Event.objects.filter(type__in=("run.completed", EventType.POLICY_SAVED))
        mine = found.filter(run__in=["eve-1", ""]).exclude(data=None).order_by("place")
        return mine.values_list("place", "received_at", "event_id")

    erasure_registry.held()  # every floor has spoken
    monkeypatch.setattr(erasure_registry, "_naming", [acts])
    monkeypatch.setattr(erasure, "EVENTS_OF_PART", 6)

    done = erasure.erase(northwind, runs=["eve-1"], by=None)

    assert (done.event_count, emptied()) == (6, 6)


def test_calls_that_did_much_to_a_person_keep_no_further_ones_from_being_found(
    said, northwind, actor, monkeypatch
):
    monkeypatch.setattr(erasure, "RUNS_MAX", 4)
    monkeypatch.setattr(erasure, "RUNS_AT_A_TIME", 3)
    effect = {"target": {"type": "seat", "id": "Eve Canary"}, "affects": EVE}
    for number in range(4):
        at = {"run": "bob", "action": f"much-{number}"}
        record_events(
            actor,
            event("action.planned", **at, data={"tool": "move"}),
            event("action.succeeded", **at, data={"effects": [effect] * 3}),
        )
    Run.objects.update(lease_until=None)

    erasure.erase(northwind, person="cust_eve", by=None)

    assert tables_that_say("Canary") == tables_that_say("cust_eve") == {}


def test_the_same_action_in_another_run_keeps_its_events(said, northwind, actor):
    record_events(actor, event("run.started", run="carl", data={}), *act("carl", "b1"))
    Run.objects.update(lease_until=None)

    erasure.erase(northwind, person="cust_eve", by=None)

    assert not Event.objects.filter(run="carl", data__isnull=True).exists()
    assert not Event.objects.filter(run="bob", action="b1", data__isnull=False).exists()


def test_one_that_fails_keeps_no_other_waiting(said, northwind):
    first, other = (erasure.ask(northwind, runs=[one], by=None) for one in ("eve-1", "eve-3"))
    with connections[owner_alias()].cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION holds_fast() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'held fast'; END $$"
        )
        cursor.execute(
            "CREATE TRIGGER held_fast BEFORE UPDATE ON ledger_run FOR EACH ROW"
            " WHEN (OLD.run = 'eve-1') EXECUTE FUNCTION holds_fast()"
        )

    with pytest.raises(DatabaseError, match="held fast"):
        erasure.sweep()

    first.refresh_from_db()
    other.refresh_from_db()
    assert (first.state, other.state) == ("waiting", "done")


def test_asked_twice_it_is_one(said, northwind):
    first = erasure.ask(northwind, person="cust_eve", by=None)

    assert erasure.ask(northwind, person="cust_eve", by=None) == first


def test_a_run_that_is_named_while_its_person_is_forgotten_goes_too(said, northwind):
    asked = erasure.ask(northwind, person="cust_eve", by=None)

    done = erasure.erase(northwind, person="cust_eve", runs=["bob"], by=None)

    asked.refresh_from_db()
    assert (done.state, done.run_count, asked.state) == ("done", 1, "done")
    assert Run.objects.get(run="bob").forgotten_at


@pytest.mark.django_db(transaction=True)
def test_who_sees_it_through_waits_for_the_worker_that_has_it_in_hand(said, northwind, monkeypatch):
    asked = erasure.ask(northwind, person="cust_eve", by=None)
    in_hand, looked = threading.Event(), threading.Event()
    work = erasure.work

    def works(pk):
        goes_on = work(pk)
        looked.set()
        return goes_on

    def holds():
        with transaction.atomic():
            locks.not_in_hand(Erasure.objects.all()).get(pk=asked.pk)
            in_hand.set()
            looked.wait(60)
        connection.close()

    monkeypatch.setattr(erasure, "work", works)
    other = threading.Thread(target=holds)
    other.start()
    in_hand.wait(60)

    done = erasure.erase(northwind, person="cust_eve", by=None)
    other.join()

    assert (done, done.state, done.run_count) == (asked, "done", 3)


@pytest.mark.usefixtures("as_the_owner")
def test_the_page_shows_how_far_it_is(said, northwind, client, monkeypatch):
    monkeypatch.setattr("ledger.views.retention.REQUEST_SECONDS", 0.0)
    client.force_login(member(northwind, "alma", "view", "administer"))

    answer = client.post(PAGE, {"person": "cust_eve", "act": "erase"})
    assert "goes on there by itself" in answer.text
    assert answer.context["progress_url"] == f"{PAGE}progress/"
    erasure.work(Erasure.objects.get().pk)
    shown = client.get(f"{PAGE}progress/", headers={"HX-Request": "true"})
    assert "1 of 3" in shown.text
    assert "<html" not in shown.text
    erasure.sweep()
    over = client.get(f"{PAGE}progress/")

    assert over.context["progress_url"] == ""
    assert "data-poll" not in over.text
    client.force_login(member(northwind, "vic", "view"))
    assert client.get(f"{PAGE}progress/").status_code == 403


def test_a_person_with_more_than_ten_thousand_events_is_forgotten_whole(northwind, actor):
    """At the sizes of the product: a part stays bounded, and after each nothing comes back."""
    record_events(actor, event("run.started", run="huge", data={"on_behalf_of": EVE}))
    record_events(actor, event("run.started", run="small", data={"on_behalf_of": EVE}))
    number = 0
    while number < 5_200:
        some = [one for n in range(number, number + 400) for one in act("huge", f"a-{n}")]
        record_events(actor, *some)
        number += 400
    Run.objects.update(lease_until=None)
    everything = Event.objects.count()
    assert everything > erasure.EVENTS_OF_PART

    asked = erasure.ask(northwind, person="cust_eve", by=None)
    assert erasure.work(asked.pk)
    asked.refresh_from_db()
    assert 0 < asked.event_count <= erasure.EVENTS_OF_PART
    begun = Run.objects.get(run="huge")
    assert begun.forgotten_at
    refused = record_events(actor, event("run.completed", run="huge"))
    assert [one.status for one in refused.results] == ["rejected"]
    while erasure.work(asked.pk):
        pass

    asked.refresh_from_db()
    assert (asked.state, asked.event_count) == ("done", everything)
    assert tables_that_say("Canary") == tables_that_say("cust_eve") == {}
