"""A question outlives the policy that asked it: its card says what the one in force would do."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

import pytest
from django.db import transaction

from approvals import approval_requests, pauses
from approvals.gate import policy_since, slow_path
from approvals.gate.begin_request import parse
from approvals.interchange import aap_requests
from approvals.models import Approval, ApprovalState, Pause
from approvals.policy import RequiredApprovers
from ledger import desk_events
from ledger.parsed_events import Actor
from tests.approvals import cast
from tests.approvals.cast import agree, put_in_force, waiting
from tests.approvals.door import Agent as Trip
from tests.approvals.door import planned
from tests.locks import comes_before_the_commit, elsewhere, waits
from tests.people import person, team
from tests.worlds import kept

pytestmark = pytest.mark.django_db(transaction=True)
ben = cast.ben

ASKS = {"approval": "MANUAL"}
SUM = 'sum(args.amount, over: "24h") > 150'


@pytest.fixture
@kept(in_turn=True)
def trip(key, ben, cleo, acme, ada):
    person("gil", team(acme, "treasury", "approve"))
    rule(acme, ada, ASKS)
    return Trip(key)


def rule(acme, ada, rules):
    put_in_force(acme, ada, {"policies": {"pay.*": rules}})


@pytest.fixture
def told(client, ben):
    """The notices on the card of the question that waits, as Ben reads them."""
    client.force_login(ben)

    def read(approval=None):
        page = client.get(f"/w/acme/approvals/{(approval or waiting()).pk}/")
        assert page.context["may_decide"], "what the policy says now decides nothing"
        return [(one["title"], one["text"]) for one in page.context["notices"]]

    return read


@pytest.mark.parametrize(
    ("rules", "title", "text"),
    [
        (ASKS | {"words": "said otherwise"}, "", ""),
        (
            {"approval": "AUTO"},
            "The policy in force now would ask nobody about this call.",
            "Version 2 of the policy came into force after this was asked. The question stays open",
        ),
        (
            [{"when": SUM} | ASKS, {"approval": "AUTO"}],
            "The policy in force now would ask nobody about this call.",
            "Version 2",
        ),
        (
            {"approval": "DENY", "words": "nobody refunds here"},
            "The policy in force now never allows this call.",
            "After a yes the agent is told no all the same",
        ),
        (
            ASKS | {"requires": [{"group": "treasury"}]},
            "The policy in force now asks more about this call: 1 person from treasury.",
            "After a yes people are asked anew",
        ),
    ],
)
def test_the_card_says_what_a_newer_policy_would_do(trip, told, acme, ada, rules, title, text):
    cast.ask(trip)
    assert told() == []

    rule(acme, ada, rules)

    found = told()
    assert [one for one, _ in found] == ([title] if title else [])
    assert all(text in words for _, words in found)


def test_the_card_says_what_is_paused(trip, told, acme, ada):
    """A yes to what was stopped looked like one that lets it through."""
    cast.ask(trip)
    question = waiting()
    crew = pauses.pause(acme, "agent", question.agent.name, by=ada, reason="It pays twice")
    others = [
        pauses.pause(acme, kind, name, by=ada, reason="-")
        for kind, name in (("tool", "mail.*"), ("run", "run_of_another"), ("agent", "another"))
    ]

    assert [title for title, _ in told()] == [f"Agent {question.agent.name} is paused."]
    assert told()[0][1].startswith(f"{ada}: It pays twice. A yes lets nothing through until")

    pauses.lift(crew, by=ada)
    assert told() == []
    assert len(others) == Pause.objects.standing().count()
    for kind, name in (("run", question.run_ref), ("tool", "pay.*")):
        pauses.pause(acme, kind, name, by=ada, reason="-")
        assert len(told()) == 1
        pauses.lift(Pause.objects.get(kind=kind, name=name), by=ada)


def test_a_rule_is_read_as_it_is_written(trip, told, acme, ada, client):
    cast.ask(trip)
    rule(acme, ada, [{"when": "args.amount > 50"} | ASKS | {"approval": "DENY"}, ASKS])

    [(_, words)] = told()

    assert "pay.* when args.amount > 50 is never allowed" in words
    assert "args.amount &gt; 50 is" in client.get(f"/w/acme/approvals/{waiting().pk}/").text


def test_nothing_is_said_of_what_was_erased(acme, ada, ben, cleo):
    rule(acme, ada, ASKS)
    plan = cast.asker(acme, ada)(RequiredApprovers(None, 1))
    put_in_force(acme, ada, {"policies": {"payments.refund": {"approval": "DENY"}}})

    assert policy_since.notice(plan)

    Approval.objects.filter(pk=plan.pk).update(calls=[], previews=[])

    assert policy_since.notice(Approval.objects.get(pk=plan.pk)) is None


def test_what_would_pass_now_still_waits_for_its_people(trip, told, acme, ada, ben):
    asked = cast.ask(trip).json()["approval"]
    rule(acme, ada, {"approval": "AUTO"})
    assert told()

    answer = trip.request("GET", f"/api/v1/approvals/{asked}").json()
    assert answer["state"] == ApprovalState.WAITING

    agree(ben)
    assert cast.ask(trip).json()["answer"] == "proceed"


def test_a_plan_says_so_of_its_calls(acme, ada, ben, cleo, told):
    rule(acme, ada, ASKS)
    plan = cast.asker(acme, ada)(RequiredApprovers(None, 1))
    assert told(plan) == []
    own = pauses.pause(acme, "run", plan.run_ref or "run_1", by=ada, reason="It is undone")
    assert told(plan) == [], "what an agent did is undone all the same"
    tool = pauses.pause(acme, "tool", "*.refund", by=ada, reason="It pays twice")
    assert [title for title, _ in told(plan)] == ["Tool “*.refund” is paused."]
    for one in (own, tool):
        pauses.lift(one, by=ada)

    put_in_force(acme, ada, {"policies": {"payments.refund": {"approval": "DENY"}}})

    [(title, text)] = told(plan)
    assert title == "The policy in force now never allows this plan."
    assert "it stops before its first call that is not allowed" in text


def actor_of(agent, here):
    return Actor(
        here.pk, here.slug, "agent", agent.name, agent.pk, trusted=True,
        masking_key=desk_events.masking_key(here),
    )  # fmt: skip


def asking(agent, here):
    """What the gate does with one call, in the transaction that is open."""
    sent = json.dumps(planned("pay.refund")).encode()
    return slow_path.begin(parse(sent, actor_of(agent, here), explain=False))


def test_what_is_asked_over_another_protocol_while_the_policy_changes_is_decided_once(
    trip, agent, acme, ada
):
    """It was put to people by the old policy and begun by the new one: a 500."""
    body = {"tool": "pay.refund", "arguments": {"amount": 1}}
    asked = aap_requests.Submission(body, timedelta(hours=1))
    ask = partial(aap_requests.create, actor_of(agent, acme), "key-1", asked)

    def lets():
        with policy_since.answering_none(acme):
            rule(acme, ada, {"approval": "AUTO"})

    record, is_new = comes_before_the_commit(lets, ask)

    assert (record.status, record.action, is_new) == ("approved", None, True)


def test_who_asks_while_something_changes_is_seen_or_asks_by_what_is_so_then(
    trip, agent, acme, ada
):
    """What was asked between the last look and the end of it, nobody saw."""

    def lets():
        with policy_since.answering_none(acme):
            rule(acme, ada, {"approval": "AUTO"})

    def refused():
        with pytest.raises(policy_since.AnswersQuestions) as found:
            lets()
        return found.value.approvals

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            assert asking(agent, acme).body["answer"] == "wait"
            other = pool.submit(elsewhere, refused)
            waits(1, unless=other.done)
        assert other.result() == [waiting().pk]
        approval_requests.void(waiting(), why="It is no longer wanted.")
        with transaction.atomic():
            lets()
            other = pool.submit(elsewhere, partial(asking, agent, acme))
            waits(1, unless=other.done)
        assert other.result().body["answer"] == "proceed"
