"""What a rule may remember: sums and counts that calls hold, and values that are known."""

import asyncio
import json
import os
import threading
from datetime import timedelta

import psycopg
import pytest
from django.db import connections
from django.db.models import F
from django.utils import timezone

from approvals import inbox, memory, tallies
from approvals.card_context import why
from approvals.models import Approval, Reservation, Sighting, Tally
from ledger import erasure
from ledger.models import Action, Run, Verified
from tests.approvals.cast import put_in_force
from tests.approvals.door import Agent as Trip
from tests.approvals.door import answer, grant_newest, pay, planned, visit
from tests.locks import waits
from workspaces import keys
from workspaces.erasure_registry import ERASED
from workspaces.models import Agent, Workspace

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def obey(acme, ada, leads):
    def say(when, glob="pay.*", approval="MANUAL"):
        rules = [{"when": when, "approval": approval}, {"approval": "AUTO"}]
        put_in_force(acme, ada, {"policies": {glob: rules}})

    return say


def found():
    return [row["value"] for row in why(Approval.objects.latest("pk")) if row["name"] == "Found"]


def held():
    return sum(map(float, Tally.objects.get().buckets.values()))


CAP = "sum(args.amount, over: '24h') > 100"


def test_small_amounts_add_up_to_the_question_that_a_large_one_would_be(trip, obey, ben):
    obey(CAP)

    assert [answer(trip, f"k{n}") for n in range(3)] == ["proceed", "proceed", "wait"]
    assert found()[0].startswith("sum(args.amount, over: 24h) comes to 120 with this call, counted")
    assert (answer(trip, "k3", 20), answer(trip, "k4", 1)) == ("proceed", "wait")
    assert held() == 100
    grant_newest(ben)
    assert answer(trip, "k4", 1) == "proceed"
    assert held() == 101
    assert answer(trip, "k4", 1, attempt="again") is None  # under way: the key has it
    assert held() == 101


@pytest.mark.parametrize("times", ["", "1 * "], ids=["only held against a number", "multiplied"])
def test_calls_count_though_a_rule_asks_about_others(trip, obey, times):
    """What a call of itself is no matter for the rule adds to its sum all the same."""
    obey(f"args.to == 'Eve' && {times}sum(args.amount, over: '24h') > 100")

    assert [answer(trip, f"k{n}", args={"to": "Mia"}) for n in range(2)] == ["proceed", "proceed"]
    assert answer(trip, "k2", 30, args={"to": "Eve"}) == "wait"


def test_a_call_without_effect_gives_back_what_it_held(trip, obey):
    obey(CAP)
    doubted = pay(trip, "k1", 90)
    trip.failed(doubted, attempt="try-k1", outcome="unknown")
    assert answer(trip, "k2", 20) == "wait"
    trip.succeeded(pay(trip, "k3", 10), attempt="try-k3")
    assert answer(trip, "k4", 1) == "wait"

    trip.failed(doubted, attempt="try-k1", outcome="no_effect")

    assert answer(trip, "k5", 90) == "proceed"
    assert held() == 100
    assert answer(trip, "k6", 1) == "wait"
    assert not Reservation.objects.filter(key__in=["k1", "k3"]).exists()


def test_a_grant_counts_as_what_it_holds_before_it_is_used_and_a_no_holds_nothing(trip, obey, ben):
    obey("args.amount >= 90 || sum(args.amount, over: '24h') > 100")

    assert answer(trip, "k1", 90) == "wait"
    assert answer(trip, "k2", 20) == "proceed"
    grant_newest(ben)
    assert answer(trip, "k3", 1) == "wait"
    assert found()[0].startswith("sum(args.amount, over: 24h) comes to 111 ")
    assert answer(trip, "k4", 95) == "wait"
    refused = Approval.objects.latest("pk")
    inbox.reject(refused, by=ben, seen=refused.digest, reason="no")
    assert answer(trip, "k1", 90) == "proceed"
    assert held() == 110


def test_an_amount_that_cannot_be_counted_asks(trip, obey):
    obey(CAP)
    for number, amount in enumerate((-50, "40", None, True, 10**18)):
        assert answer(trip, f"k{number}", amount) == "wait", amount
        assert found() == ["What sum(args.amount, over: 24h) comes to cannot be told"]


@pytest.mark.parametrize(
    ("per", "same", "other"),
    [
        ("target", {}, {"targets": [{"type": "contact", "id": "c8"}]}),
        ("tool", {}, {"tool": "pay.charge"}),
        ("run", {}, {"run": "run_2"}),
        ("person", {}, {"run": "run_2"}),
        ("args.iban", {"args": {"iban": "DE1"}}, {"args": {"iban": "DE2"}}),
    ],
)
def test_what_is_counted_is_counted_for_each_by_itself(trip, obey, per, same, other):
    obey(f"count(per: {per}, over: '1h') > 1")
    trip.send("run.started", on_behalf_of={"id": "mia"})
    trip.send("run.started", run="run_2", on_behalf_of={"id": "eve"})
    common = {"args": {"iban": "DE1"}}

    assert answer(trip, "k1", **(common | same)) == "proceed"
    assert answer(trip, "k2", **(common | same)) == "wait"
    assert answer(trip, "k3", **(common | other)) == "proceed"
    assert answer(trip, "k4", **(common | other)) == "wait"


def test_of_several_targets_the_one_with_most_counts_and_none_hides_behind_another(trip, obey):
    obey("count(per: target, over: '1h') > 1")
    one, two = {"type": "contact", "id": "c1"}, {"type": "contact", "id": "c2"}

    assert answer(trip, "k1", targets=[one]) == "proceed"
    assert answer(trip, "k2", targets=[two, one]) == "wait"
    assert answer(trip, "k3", targets=[]) == "wait"
    many = [{"type": "contact", "id": f"m{number}"} for number in range(21)]
    assert answer(trip, "k4", targets=many) == "wait", "more than are looked at"
    assert answer(trip, "k5", targets=many[:20]) == "proceed"


def test_whom_nobody_knows_is_counted_for_nobody_and_asks(trip, obey):
    obey("count(per: person, over: '1h') > 5", glob="crm.*")
    assert answer(trip, "k0", tool="crm.note") == "wait"
    obey("!known(target, by: person)")
    trip.succeeded(pay(trip, "k1", tool="web.get"), attempt="try-k1", after={"n": 1})

    assert answer(trip, "k2") == "wait"
    assert found() == ["Whether target is known cannot be told"]


def test_what_another_agent_calls_under_the_same_key_counts_by_itself(trip, obey, acme):
    """And what became of it is read of the run here, whatever a neighbour has of its name."""
    other = Agent.objects.create(workspace=acme, name="other-agent")
    twin = Trip(keys.create_key(other, by=None, name="test")[1])
    obey(CAP)
    assert answer(trip, "k1", 90) == "proceed"
    neighbour = Workspace.objects.create(name="Umbra", slug="umbra")
    run = Run.objects.create(workspace=neighbour, run="run_1")
    theirs = Action.objects.get()
    theirs.pk, theirs.workspace, theirs.run, theirs.state = None, neighbour, run, "failed"
    theirs.save()

    assert answer(twin, "k1", 20, run="run_2", action="act-2") == "wait"


def test_where_more_calls_are_open_than_are_looked_at_a_rule_asks(trip, obey, agent):
    obey(CAP)
    assert answer(trip, "k1", 1) == "proceed"
    tally = Tally.objects.get()
    Reservation.objects.bulk_create(
        Reservation(tally=tally, agent_id=agent.pk, key=f"o{n}", run_ref="run_1", action=f"o{n}",
                    bucket=1, amount=1, held=False, at=timezone.now())
        for n in range(tallies.OPEN_MAX + 1)
    )  # fmt: skip

    assert answer(trip, "k2", 1) == "wait"
    assert found() == ["More calls are open than sum(args.amount, over: 24h) looks at"]


def test_each_sum_and_count_of_one_tool_stands_for_itself(trip, obey):
    obey("sum(args.amount, per: tool, over: '24h') > 100 || count(per: tool, over: '24h') > 3")

    assert [answer(trip, f"k{n}", 45) for n in range(3)] == ["proceed", "proceed", "wait"]
    assert answer(trip, "k3", 1) == "proceed"
    assert answer(trip, "k4", 1) == "wait"
    sum_said, count_said = sorted(found(), reverse=True)
    assert sum_said.startswith("sum(args.amount, over: 24h, per: tool) comes to 92 ")
    assert count_said.startswith("count(over: 24h, per: tool) comes to 4 ")


def test_what_is_older_than_the_window_no_longer_counts(trip, obey):
    obey(CAP)
    assert answer(trip, "k1", 90) == "proceed"
    tally = Tally.objects.get()
    assert answer(trip, "k2", 20) == "wait"
    for steps, wanted in ((tallies.BUCKETS - 1, "wait"), (tallies.BUCKETS + 1, "proceed")):
        Tally.objects.update(
            buckets={str(int(n) - steps): amount for n, amount in tally.buckets.items()}
        )
        assert answer(trip, f"k-{steps}", 20) == wanted


@pytest.mark.parametrize(("steps_ago", "other"), [(0, 40), (tallies.BUCKETS + 1, 90)])
def test_a_call_that_is_done_is_answered_with_its_result_and_not_counted_twice(
    trip, obey, steps_ago, other
):
    obey(CAP, approval="DENY")
    begun = pay(trip, "k1", 60)
    trip.succeeded(begun, attempt="try-k1", result={"id": "r1"})
    buckets = Tally.objects.get().buckets
    Tally.objects.update(buckets={str(int(n) - steps_ago): held for n, held in buckets.items()})
    assert answer(trip, "k2", other) == "proceed"  # which settles the first for good

    again = pay(trip, "k1", 60, attempt="again").json()

    assert (again["answer"], again.get("result")) == ("replay", {"id": "r1"})
    assert answer(trip, "k3", 61) == "denied"


def test_of_fifty_at_once_no_more_go_on_than_the_cap_lets(trip, obey, key):
    obey("sum(args.amount, per: person, over: '24h') > 500")
    trip.send("run.started", on_behalf_of={"id": "mia"})
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}

    async def story(client):
        async def one(number):
            body = planned(key=f"k{number}", action=f"act-{number}", args={"amount": 99})
            content = json.dumps(body | {"data": body["data"] | {"tool": "pay.refund"}})
            while True:  # a line that is too long for the lock sends clients back, to ask again
                said = await client.post("/api/v1/actions/begin", content=content, headers=headers)
                if said.is_success:
                    return said.json()

        return await asyncio.gather(*(one(number) for number in range(50)))

    answers = [said.get("answer") for said in visit(story, connections_max=8)]

    assert answers.count("proceed") == 5
    assert held() == 495
    assert set(answers) == {"proceed", "wait", "denied"}  # no more than twenty are asked about


# Novelty.


def test_an_account_is_known_once_a_call_with_it_is_done_and_as_long_as_it_stands(trip, obey, ben):
    obey("!known(args.iban)")
    mine = {"args": {"iban": "DE89370400440532013000"}}

    assert answer(trip, "k1", **mine) == "wait"
    assert found() == ["args.iban is new: no call with it was done before"]
    grant_newest(ben)
    said = pay(trip, "k1", **mine)
    assert said.json()["answer"] == "proceed"
    assert answer(trip, "k2", **mine) == "wait"  # it runs, and nobody knows yet how it ends
    trip.succeeded(said, attempt="try-k1")

    assert answer(trip, "k3", **mine) == "proceed"
    in_groups = {"args": {"iban": "de89 3704 0044 0532 0130 00"}}
    assert answer(trip, "k3g", explain=True, **in_groups) == "proceed", "the same account"
    assert answer(trip, "k4", args={"iban": "DE02120300000000202051"}) == "wait"
    trip.succeeded(pay(trip, "k3", **mine, attempt="try-k3"), attempt="try-k3")
    Action.objects.filter(key="k3").update(verified="failed")
    assert answer(trip, "k7", run="run_2", **mine) == "wait"
    Action.objects.filter(key="k3").update(verified=Verified.NOT_YET)
    Action.objects.filter(key="k1").update(compensated="compensated")
    assert answer(trip, "k5", **mine) == "wait"
    assert found() == ["A call with args.iban was undone, or failed its check"]


@pytest.mark.parametrize("what", ["target", "args.to"])
def test_what_one_agent_or_one_person_knows_another_need_not_know(trip, obey, acme, ben, what):
    other = Agent.objects.create(workspace=acme, name="other-agent")
    twin = Trip(keys.create_key(other, by=None, name="test")[1])
    trip.send("run.started", on_behalf_of={"id": "mia"})
    trip.send("run.started", run="run_2", on_behalf_of={"id": "eve"})
    twin.send("run.started", run="run_3", on_behalf_of={"id": "mia"})
    obey(f"!known({what}, by: agent)")
    assert answer(trip, "k1", args={"to": "x"}) == "wait"
    grant_newest(ben)
    trip.succeeded(pay(trip, "k1", args={"to": "x"}), attempt="try-k1", after={"n": 1})

    def verdicts(by):
        obey(f"!known({what}, by: {by})")
        asked = ((trip, "run_1"), (trip, "run_2"), (twin, "run_3"))
        return [answer(one, f"{by}-{run}", run=run, args={"to": "x"}, explain=True)
                for one, run in asked]  # fmt: skip

    assert [verdicts(by) for by in ("workspace", "agent", "person")] == [
        ["proceed", "proceed", "proceed"],
        ["proceed", "proceed", "wait"],
        ["proceed", "wait", "proceed"],
    ]


def test_known_for_a_time_is_more_than_known(trip, obey, ben):
    obey("!known(args.to, for: '7d')")
    assert answer(trip, "k1", args={"to": "x"}) == "wait"
    grant_newest(ben)
    trip.succeeded(pay(trip, "k1", args={"to": "x"}), attempt="try-k1")

    assert answer(trip, "k2", args={"to": "x"}) == "wait"
    assert found()[0].startswith("args.to is known since 20")
    Sighting.objects.update(at=F("at") - timedelta(days=8))
    assert answer(trip, "k3", args={"to": "x"}) == "proceed"
    assert answer(trip, "k4", args={"to": ["x", "y"]}) == "wait", "one of them is new"


def test_what_looks_like_a_known_one_and_is_another_is_told(trip, obey):
    obey("lookalike(args.to) || lookalike(target)")
    trip.succeeded(pay(trip, "k1", args={"to": "billing@paypal.com"}), attempt="try-k1", after={})

    assert answer(trip, "k2", args={"to": "billing@paypal.com"}) == "proceed"
    assert answer(trip, "k3", args={"to": "billing@pаypal.com"}) == "wait"
    assert found() == ["args.to looks like one that is known, and is another",
                       "target looks like no other"]  # fmt: skip
    assert answer(trip, "k4", args={"to": "billing@acme.com"}) == "proceed"
    alike = [{"type": "contact", "id": "C7".replace("C", "с")}]
    assert answer(trip, "k5", args={"to": "billing@paypal.com"}, targets=alike) == "wait"


def test_of_all_that_look_alike_the_one_that_was_done_is_found(trip, obey):
    """Whatever else looks like it, and was begun, too, more than once."""
    obey("lookalike(args.to)")
    names = [f"{n}@paypal.com" for n in ("bill", "biІІ", "bilІ", "biІl")]
    begun = [
        [pay(trip, f"{n}-{again}", args={"to": name}) for again in (1, 2)]
        for n, name in enumerate(names)
    ]
    for n in (0, 1):
        trip.failed(begun[n][0], attempt=f"try-{n}-1", outcome="no_effect")
    assert answer(trip, "k1", args={"to": names[1]}) == "proceed", "none of them is known"

    trip.succeeded(begun[3][0], attempt="try-3-1", after={})
    assert answer(trip, "k2", args={"to": names[1]}) == "wait"
    assert answer(trip, "k3", args={"to": names[3]}) == "proceed", "it is the known one itself"


def test_who_is_forgotten_is_not_to_be_found_among_what_rules_remember(trip, obey, acme, ben):
    """A digest without a salt tells whoever tries all addresses that they know."""
    obey("!known(args.to)")
    for run, person in (("run_1", "mia"), ("run_2", "eve")):
        trip.send("run.started", run=run, on_behalf_of={"id": person})
        said = {"run": run, "args": {"to": f"{person}@example.com"}}
        assert answer(trip, run, **said) == "wait"
        grant_newest(ben)
        trip.succeeded(pay(trip, run, **said), attempt=f"try-{run}")
        trip.send("run.completed", run=run)
    asked = Approval.objects.get(run_ref="run_1")

    erasure.erase(acme, person="mia", by=None)

    kept = {(one.run_ref, one.person, one.value) for one in Sighting.objects.all()}
    eve = (tallies.digest_of("eve"), memory.ValueDigest.of("eve@example.com").value)
    assert kept == {("run_1", ERASED, ERASED), ("run_2", *eve)}
    asked.refresh_from_db()
    assert (asked.digest, asked.decisions.get().seen_digest) == (ERASED, ERASED)
    trip.send("run.started", run="run_3")
    assert answer(trip, "k3", run="run_3", args={"to": "eve@example.com"}) == "proceed"
    assert answer(trip, "k4", run="run_3", args={"to": "mia@example.com"}) == "wait"


def test_what_nobody_asks_for_any_more_is_let_go(trip, obey):
    obey("sum(args.amount, over: '24h') > 100 || !known(args.amount)")
    assert answer(trip, "k1") == "wait"
    assert memory.forget_old() == 0
    Tally.objects.update(touched_at=F("touched_at") - timedelta(days=70))
    Reservation.objects.update(at=F("at") - timedelta(days=70))
    assert memory.forget_old() == 2
    assert not Tally.objects.exists()


def test_a_tally_that_a_call_writes_meanwhile_is_kept(trip, obey):
    obey(CAP)
    assert answer(trip, "k1", 60) == "proceed"
    Tally.objects.update(touched_at=F("touched_at") - timedelta(days=70))

    def forget():
        memory.forget_old()
        connections.close_all()

    forgetting = threading.Thread(target=forget)
    with psycopg.connect(os.environ["DATABASE_URL"]) as call:
        call.execute("UPDATE approvals_tally SET touched_at = clock_timestamp()")
        forgetting.start()
        waits(1)
    forgetting.join()

    assert held() == 60
    assert answer(trip, "k2", 60) == "wait"
