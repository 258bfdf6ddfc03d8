"""Sums that are only held against numbers: one statement reads, judges and writes them."""

import json
from datetime import datetime
from decimal import Decimal
from time import monotonic

import pytest
from django.db import connection
from django.utils import timezone
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from approvals import tallies
from approvals.gate import gathering
from approvals.gate.begin import begin_fast
from approvals.models import Reservation, Tally
from approvals.policy import CannotEvaluate, LookupResult, load
from approvals.policy.conditions import Cap
from ledger.models import Action, Run
from ledger.parsed_events import new_id
from tests.approvals.door import Agent as Trip
from tests.approvals.door import visit
from tests.approvals.test_fast_path import asking, hear, look_around, obey

SUM, COUNT = "sum(args.amount, over: '24h')", "count(per: agent, over: '1h')"
HUNDRED, BELOW = Cap(Decimal(100), is_inclusive=True), Cap(Decimal(100), is_inclusive=False)
FIVE = Cap(Decimal(5), is_inclusive=True)


@pytest.mark.parametrize(
    ("when", "caps"),
    [
        (f"{SUM} > 100", [HUNDRED]),
        (f"{SUM} >= 100", [BELOW]),
        (f"{SUM} > 100.50 && args.to == 'ask'", [Cap(Decimal("100.50"), is_inclusive=True)]),
        (f"{SUM} > 100 || {COUNT} > 5", [HUNDRED, FIVE]),
        (f"args.x > 1 && ({SUM} > 100 || {COUNT} > 5)", [HUNDRED, FIVE]),
        (f"!({SUM} > 100) && known(args.to)", [HUNDRED]),
        (f"{SUM} > 100 ? true : args.x", [HUNDRED]),
        (f"{SUM} >= 100 || {SUM} > 100", [BELOW, HUNDRED]),
    ],
)
def test_a_sum_that_is_only_held_against_numbers_has_a_cap(when, caps):
    lowest: dict[str, Cap] = {}
    for lookup, cap in zip(counting(when), caps, strict=True):
        lowest[lookup.key] = min(cap, lowest.get(lookup.key, cap))
    assert of_tool(when).caps == lowest


@pytest.mark.parametrize(
    "when",
    [
        f"{SUM} < 100",
        f"{SUM} == 100",
        f"{SUM} * 2 > 100",
        f"2 * {SUM} > 100",
        f"-{SUM} > 100",
        f"{SUM} > 100 - args.amount",
        f"{SUM} > args.limit",
        f"{SUM} > -1",
        f"{SUM} > 1e2",
        f"{SUM} > 9007199254740993",
        f"({SUM}) > 100",
        f"100 > {SUM}",
        f"[{SUM}] == [100]",
        f"{SUM} > 100 == true",
    ],
)
def test_what_is_done_with_a_sum_beside_that_gives_it_none(when):
    (lookup,) = counting(when)
    assert lookup.key not in of_tool(when).caps
    assert lookup.key not in of_tool(f"{SUM} > 100", when).caps, (
        "another condition has it otherwise"
    )


def of_tool(*conditions):
    rules = [{"when": when, "approval": "MANUAL"} for when in conditions]
    return load(json.dumps({"policies": {"pay.*": rules}})).of_tool("pay.refund")


def counting(when):
    (condition,) = of_tool(when).asking
    return [one for one in condition.lookups if one.function in {"sum", "count"}]


STATES = ["planned", "running", "unknown", "succeeded", "failed", None]
OPEN = st.tuples(st.sampled_from(STATES), st.sampled_from([0, 1, 47, 48, 49]), st.booleans())
AMOUNTS = st.decimals(0, 60, places=1)


@pytest.mark.django_db
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    kept=st.dictionaries(st.sampled_from([0, 1, 2, 47, 48, 49, 60]), AMOUNTS, max_size=4),
    calls=st.lists(OPEN, max_size=3),
    amount=AMOUNTS,
    is_there=st.booleans(),
    is_inclusive=st.booleans(),
    mine=st.integers(0, 9),
)
@example(kept={0: 60}, calls=[], amount=40, is_there=True, is_inclusive=False, mine=1)
@example(kept={0: 60}, calls=[], amount=40, is_there=True, is_inclusive=True, mine=1)
@example(kept={0: 70}, calls=[], amount=40, is_there=True, is_inclusive=True, mine=1)
@example(kept={0: 0}, calls=[], amount=0, is_there=True, is_inclusive=True, mine=1)
def test_one_statement_reads_a_tally_as_the_slow_path_does(
    acme, agent, kept, calls, amount, is_there, is_inclusive, mine
):
    """Or leaves it alone: where it is beyond its cap, and where some of it is to be looked at."""
    Tally.objects.all().delete()
    Run.objects.all().delete()
    now, meter = timezone.now(), tallies.Meter("m", ["s"], Decimal(amount), 86_400)
    caller = tallies.TallyOwner(acme.pk, agent.pk, "k0" if mine == 0 else "k")
    if is_there:
        tally = Tally.objects.create(
            workspace=acme, meter="m", subject="s", since=now, touched_at=now,
            buckets={str(meter.bucket(now) - ago): str(held) for ago, held in kept.items()},
        )  # fmt: skip
        made(tally, agent, calls, meter.bucket(now))

    cap = Cap(Decimal(100), is_inclusive)
    found = rows(tallies.within_caps(caller, [(meter, cap)]))
    [(read,)] = rows(tallies.tallies(caller, [meter]))
    [state] = tallies.tally_states(meter, read, now)

    is_plain = not is_there or all(
        is_held and told != "failed" and (mine or number)
        for number, (told, _, is_held) in enumerate(calls)
    )
    total = float(state.others + amount)
    is_within = total < 100 or (total == 100 and is_inclusive)
    assert bool(found) == (is_plain and is_within)
    for meters, subjects, seen_at, sums, buckets, amounts, settled, _ in found:
        assert (meters, subjects, amounts) == (["m"], ["s"], [amount])
        assert seen_at == [state.touched_at and datetime.fromisoformat(state.touched_at)]
        assert numbers(sums[0]) == numbers(state.written(now, held=True))
        assert buckets == [meter.bucket(now)]
        assert sorted(settled or []) == sorted(state.done)


def made(tally, agent, calls, bucket):
    """Calls that this tally holds, each of an action in such a state; None: nobody knows it."""
    run = Run.objects.create(workspace=tally.workspace, run="run_1", agent=agent)
    for number, (state, ago, is_held) in enumerate(calls):
        if state:
            Action.objects.create(
                workspace=tally.workspace, run=run, agent=agent, action=f"act_{number}",
                tool="pay.refund", state=state, key=f"k{number}", first_place=number,
            )  # fmt: skip
        Reservation.objects.create(
            tally=tally, agent_id=agent.pk, key=f"k{number}", run_ref="run_1",
            action=f"act_{number}", bucket=bucket - ago, amount=1, held=is_held, at=timezone.now(),
        )  # fmt: skip


def rows(statement):
    sql, values = statement
    with connection.cursor() as cursor:
        cursor.execute(sql.replace("%b", "%s"), values)
        return cursor.fetchall()


def numbers(buckets):
    told = json.loads(buckets) if isinstance(buckets, str) else buckets
    return {number: Decimal(amount) for number, amount in told.items()}


@pytest.mark.django_db(transaction=True)
def test_beyond_a_cap_that_no_rule_minds_calls_go_on_and_begin_with_a_look_for_a_while(
    acme, ada, agent, monkeypatch
):
    when = [f"{SUM} > 100 && args.to == 'Eve'", f"{SUM} > 1000"]
    rules = [*({"when": one, "approval": "MANUAL"} for one in when), {"approval": "AUTO"}]
    obey(acme, {"policies": {"crm.*": rules}}, ada)
    look_around(agent, args={"amount": 1, "to": "Mia"})

    start = monotonic()
    at_once, soon, later = start, start + 1, start + gathering.LEFT_ALONE_SECONDS + 2

    async def story(_client):
        found = []
        for number, moment in enumerate([at_once, at_once, soon, later]):
            monkeypatch.setattr(gathering, "monotonic", lambda moment=moment: moment)
            call = {"key": f"k{number}", "action": f"act_{number}", "id": new_id()}
            asked = asking(agent, explain=False, args={"amount": 60, "to": "Mia"}, **call)
            reply = await begin_fast(asked)
            found.append((reply is not None, list(gathering.left_alone.values())))
        return found

    looked_until = at_once + gathering.LEFT_ALONE_SECONDS
    tried_again = later + gathering.LEFT_ALONE_SECONDS
    assert visit(story) == [
        (True, []), (True, [looked_until]), (True, [looked_until]), (True, [tried_again]),
    ]  # fmt: skip
    assert sum(map(Decimal, Tally.objects.get().buckets.values())) == 240


@pytest.mark.django_db(transaction=True)
def test_an_amount_of_hundreds_of_decimals_does_not_fill_a_tally(acme, ada, agent):
    obey(acme, {"policies": {"crm.*": [{"when": f"{SUM} > 100", "approval": "MANUAL"}]}}, ada)
    look_around(agent, args={"amount": 1})

    reply = hear(asking(agent, explain=False, args={"amount": 5e-324}), fast=True)

    assert reply is not None
    [kept] = Tally.objects.get().buckets.values()
    assert len(kept) < 40, kept


def test_what_is_dear_with_an_answer_is_no_cheaper_without():
    """Else a call went on by one statement, as if it could be judged, that people are asked of."""
    (condition,) = of_tool("args.l.exists(x, args.n == 'no') && known(args.to)").asking
    (lookup,) = condition.lookups

    def is_judged(length, **findings):
        args = {"to": "Eve", "n": "a", "l": [0] * length}
        try:
            condition.evaluate({"args": args, "findings": findings})
        except CannotEvaluate:
            return False
        return True

    lengths = range(2_200, 2_260)
    answered = [is_judged(n, **{lookup.key: LookupResult(value=True)}) for n in lengths]
    assert answered == [is_judged(n) for n in lengths]
    assert len(set(answered)) == 2


@pytest.mark.django_db(transaction=True)
def test_labels_that_a_question_is_about_are_held_against_those_of_the_run_too(
    acme, ada, agent, key
):
    when = "sum(labels.budget, per: run, over: '24h') > 100"
    rules = [{"when": when, "approval": "MANUAL"}, {"approval": "AUTO"}]
    obey(acme, {"policies": {"crm.*": rules}}, ada)
    trip = Trip(key)
    trip.send("run.started", labels={"budget": 1})
    look_around(agent)
    trip.send("run.started", labels={"budget": 1_000})

    assert hear(asking(agent, explain=False), fast=True) is None
    assert trip.begin().json()["answer"] == "wait"
