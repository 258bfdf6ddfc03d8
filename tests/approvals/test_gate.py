"""The table of `begin`, row by row, at the real door."""

import json
from datetime import timedelta

import pytest
from django.utils import timezone

from amends.protocol.vocabulary import EventType
from approvals import call_history, inbox, pauses, versions
from approvals.gate import decision_table
from approvals.models import Approval, ApprovalState, GateKey
from ledger import desk_events
from ledger.models import Action, Event, Run
from tests.approvals.cast import told
from tests.approvals.door import Agent as Trip
from tests.approvals.door import planned
from tests.worlds import kept
from workspaces import keys, teams
from workspaces.models import opened_masking_key

pytestmark = pytest.mark.django_db(transaction=True)

ASKS = {"policies": {"pay.*": {"approval": "MANUAL"}, "never.*": {"approval": "DENY"}}}


@pytest.fixture
@kept(in_turn=True)
def trip(key, acme, ada, ben, leads):
    versions.activate(versions.save(acme, json.dumps(ASKS), by=ada), by=ada)
    return Trip(key)


def as_written(number):
    """An ask whose amount is this number, to the letter."""
    return json.dumps(planned(args={"amount": "here"})).replace('"here"', number).encode()


def let_the_lease_end():
    GateKey.objects.update(lease_until=timezone.now() - timedelta(seconds=1))


def approve(by):
    approval = Approval.objects.latest("pk")
    inbox.grant(approval, by=by, seen=approval.digest, reason="fine")
    return approval


def test_an_allowed_call_proceeds_with_a_fence_and_is_on_record_before_it_is_made(trip):
    said = trip.begin(attempt="a1").json()

    assert (said["answer"], said["fence"], said["action"]) == ("proceed", 1, "act_1")
    action = Action.objects.get()
    assert (action.state, action.current_attempt, action.fence) == ("running", "a1", 1)
    events = Event.objects.filter(run="run_1").order_by("place")
    assert [event.type for event in events] == ["action.planned", "action.started"]


def test_the_same_attempt_again_hears_the_same_and_its_lease_is_renewed(trip):
    first = trip.begin(attempt="a1").json()
    again = trip.begin(attempt="a1").json()

    assert (again["answer"], again["fence"]) == ("proceed", 1)
    assert again["lease_until"] > first["lease_until"]
    assert (first["lease_seconds"], again["lease_seconds"]) == (900, 900)
    assert Event.objects.filter(type="action.started").count() == 1


def test_another_attempt_while_the_lease_lives_is_told_to_wait(trip):
    trip.begin(attempt="a1")
    said = trip.begin(attempt="a2")

    assert said.status_code == 409
    assert int(said.headers["retry-after"]) > 0
    assert said.json()["lease_until"] > timezone.now().isoformat()


def test_law_10_begun_without_an_outcome_may_have_happened_and_is_in_doubt(trip, acme):
    trip.begin(attempt="a1")
    let_the_lease_end()

    assert trip.begin(attempt="a2").json()["answer"] == "in_doubt"
    assert Action.objects.get().state == "unknown"
    assert trip.begin(attempt="a3").json()["answer"] == "in_doubt"
    assert len(told(acme, "action.failed")) == 1


def test_an_unknown_outcome_stays_in_doubt_whoever_asks(trip):
    trip.failed(trip.begin(attempt="a1"), attempt="a1", outcome="unknown")

    assert trip.begin(attempt="a2").json()["answer"] == "in_doubt"


def test_a_success_is_replayed(trip):
    for action, key in (("act_1", "key-1"), ("act_2", "order\x1f7\x1e1")):
        done = trip.begin(attempt=f"a-{action}", action=action, key=key)
        trip.succeeded(done, attempt=f"a-{action}", result={"id": "r9"})

        said = trip.begin(attempt=f"b-{action}", action="act_9", key=key).json()

        assert (said["answer"], said["result"], said["action"]) == ("replay", {"id": "r9"}, action)


def test_a_known_no_effect_may_be_tried_again_with_the_next_fence(trip):
    trip.failed(trip.begin(attempt="a1"), attempt="a1", outcome="no_effect")

    said = trip.begin(attempt="a2", action="act_2").json()

    assert (said["answer"], said["fence"], said["action"]) == ("proceed", 2, "act_1")
    assert trip.begin(attempt="a1").status_code in {409, 422}


def test_a_try_that_is_over_begins_nothing(trip):
    trip.failed(trip.begin(attempt="a1"), attempt="a1", outcome="no_effect")

    refused = trip.begin(attempt="a1")

    assert refused.status_code == 422
    assert refused.json()["type"] == "urn:amends:problem:attempt-reused"


def test_the_next_key_is_one_that_was_never_used():
    following = {"k": "k~2", "k~2": "k~3", "k~9": "k~10", "k~x": "k~x~2", "~2": "~2~2"}
    assert {key: decision_table.next_key(key) for key in following} == following
    for longest in ("a" * 200, "a" * 198 + "~9", "~" * 200):
        assert len(decision_table.next_key(longest)) <= 200


def test_after_a_known_no_effect_new_arguments_replace_the_old(trip):
    trip.failed(trip.begin(attempt="a1"), attempt="a1", outcome="no_effect")

    said = trip.begin(attempt="a2", args={"name": "Eva"}).json()

    assert (said["answer"], said["fence"]) == ("proceed", 2)
    action = Action.objects.get()
    assert (action.args, action.state, action.flags) == ({"name": "Eva"}, "running", [])


def test_other_arguments_under_the_key_are_refused_and_flagged_for_a_case(trip):
    trip.begin(attempt="a1")
    before = Run.objects.get().revision

    said = trip.begin(attempt="a2", args={"name": "Mallory"})

    assert said.status_code == 422
    assert said.json()["type"].endswith("key-reused")
    assert Action.objects.get().flags == ["key_reused"]
    assert Action.objects.get().args == {"name": "Eve"}
    assert Run.objects.get().revision > before


def test_law_9a_a_compensated_key_is_dead_and_names_the_next_one(trip, acme):
    effect = {"target": {"type": "contact", "id": "c7"}, "before": None, "after": {"name": "Eve"}}
    trip.succeeded(trip.begin(attempt="a1"), attempt="a1", effects=[effect])
    undone = {"positions": [0], "position": 0, "outcome": "compensated", "step": 1}
    desk_events.record(acme, EventType.ACTION_COMPENSATED, run="run_1", action="act_1", data=undone)

    said = trip.begin(attempt="a2").json()

    assert (said["answer"], said["next_key"]) == ("compensated", "key-1~2")
    anew = trip.begin(attempt="a3", action="act_2", key="key-1~2").json()
    assert anew["answer"] == "proceed"


@pytest.mark.parametrize(
    ("stop", "code"),
    [
        ("pause", "paused"),
        ("ended", "run_ended"),
        ("held", "recovery"),
        ("verification", "verification"),
    ],
)
def test_law_9_a_stopped_run_gets_no_begin(trip, acme, ada, stop, code):
    trip.succeeded(trip.begin(attempt="a1"), attempt="a1")
    if stop == "pause":
        pauses.pause(acme, "agent", "desk-agent", by=ada, reason="wrong bookings")
    elif stop == "ended":
        trip.send(EventType.RUN_COMPLETED, summary="done")
    elif stop == "held":
        Run.objects.update(held_by="case 12")
    else:
        trip.send(EventType.ACTION_VERIFIED, action="act_1", ok=False, checks=[])

    said = trip.begin(action="act_2", key="key-2").json()

    assert (said["answer"], said["code"]) == ("denied", code)
    assert Action.objects.count() == 1
    trip.begin(action="act_2", key="key-2")
    assert [one["code"] for one in told(acme, "approval.denied")] == [code]


def test_what_a_rule_denies_is_denied_with_its_words(trip):
    said = trip.begin(tool="never.delete").json()
    assert (said["answer"], said["code"]) == ("denied", "rule")
    assert "never.*" in said["reason"]


def test_a_gated_call_waits_is_asked_once_and_proceeds_once_after_the_yes(trip, acme, ben):
    asked = trip.begin(tool="pay.card", attempt="a1").json()
    again = trip.begin(tool="pay.card", attempt="a1").json()

    assert asked["answer"] == again["answer"] == "wait"
    assert asked["approval"] == again["approval"]
    assert asked["url"].endswith(f"/w/acme/approvals/{asked['approval']}/")
    assert Action.objects.get().state == "planned"

    approve(ben)
    assert Action.objects.get().state == "approved"
    assert trip.begin(tool="pay.card", attempt="a1").json()["answer"] == "proceed"
    assert Approval.objects.get().state == ApprovalState.USED
    assert told(acme, "action.approved")[0]["people"] == ["Ben"]
    assert len(told(acme, "approval.requested")) == 1
    yes = Event.objects.filter(type__in=["approval.granted", "action.approved"]).order_by("place")
    assert [one.type for one in yes] == ["approval.granted", "action.approved"]
    assert len({one.received_at for one in yes}) == 1  # they were appended together


def test_law_1_approve_one_thing_present_another(trip, ben):
    trip.begin(tool="pay.card", args={"to": "bob", "amount": 10}, attempt="a1")
    approve(ben)

    said = trip.begin(tool="pay.card", args={"to": "mallory", "amount": 1000000}, attempt="a2")
    assert said.status_code == 422
    elsewhere = trip.begin(
        tool="pay.card", args={"to": "mallory", "amount": 1000000}, action="act_2", key="key-2"
    )
    assert elsewhere.json()["answer"] == "wait"
    assert Event.objects.filter(type="action.started").count() == 0


def test_a_target_that_changed_since_the_yes_is_asked_anew_with_the_difference(trip, ben):
    trip.begin(tool="pay.card", before={"balance": 5}, attempt="a1")
    approve(ben)

    said = trip.begin(tool="pay.card", before={"balance": 6}, attempt="a1").json()

    assert said["answer"] == "wait"
    assert "fingerprint" in Approval.objects.latest("pk").reason
    assert Approval.objects.order_by("pk").first().state == ApprovalState.WITHDRAWN


def test_a_policy_that_became_stricter_asks_anew(trip, acme, ada, ben, cleo):
    trip.begin(tool="pay.card", attempt="a1")
    approve(ben)
    both = [{"group": "finance"}, {"group": "leads"}]
    stricter = json.dumps({"policies": {"pay.*": {"approval": "MANUAL", "requires": both}}})
    versions.activate(versions.save(acme, stricter, by=ada), by=ada)

    assert trip.begin(tool="pay.card", attempt="a1").json()["answer"] == "wait"
    asked = Approval.objects.latest("pk").reason
    assert "stricter" in asked
    assert "1 person from finance and 1 person from leads" in asked


def test_an_approver_who_left_takes_the_grant_along(trip, ben, finance, cleo):
    trip.begin(tool="pay.card", attempt="a1")
    approve(ben)
    teams.remove(finance, ben, by=None)

    assert trip.begin(tool="pay.card", attempt="a1").json()["answer"] == "wait"


def test_a_rejected_call_is_denied_with_the_reason_and_the_key_stays_dead(trip, ben):
    trip.begin(tool="pay.card", attempt="a1")
    approval = Approval.objects.get()
    inbox.reject(approval, by=ben, seen=approval.digest, reason="the wrong card")

    said = trip.begin(tool="pay.card", attempt="a2").json()

    assert (said["answer"], said["code"]) == ("denied", "rejected")
    assert said["reason"] == "the wrong card"
    anew = trip.begin(tool="pay.card", attempt="a3", action="act_2", key="key-2").json()
    assert anew["answer"] == "wait"


def test_law_2_an_expired_grant_does_not_proceed(trip, ben):
    trip.begin(tool="pay.card", attempt="a1")
    approve(ben)
    Approval.objects.update(expires_at=timezone.now() - timedelta(seconds=1))

    assert trip.begin(tool="pay.card", attempt="a1").json()["code"] == "expired"


def test_a_second_try_after_no_effect_needs_a_second_yes(trip, ben):
    trip.begin(tool="pay.card", attempt="a1")
    approve(ben)
    trip.failed(trip.begin(tool="pay.card", attempt="a1"), attempt="a1", outcome="no_effect")

    assert trip.begin(tool="pay.card", attempt="a2").json()["answer"] == "wait"
    approve(ben)
    said = trip.begin(tool="pay.card", attempt="a2").json()
    assert (said["answer"], said["fence"]) == ("proceed", 2)


def test_explain_says_what_would_be_and_writes_nothing(trip):
    said = trip.begin(tool="pay.card", explain=True).json()

    assert (said["answer"], said["explain"]["approval"]) == ("wait", "MANUAL")
    assert said["explain"]["rules"][0]["glob"] == "pay.*"
    assert trip.begin(tool="crm.update", explain=True).json()["answer"] == "proceed"
    for table in (Run, GateKey, Approval, Event):
        assert not table.objects.filter(**({"run": "run_1"} if table is Event else {})).exists()


def test_law_9b_an_agent_cannot_say_the_desks_words_or_decide(trip, acme, ben):
    trip.begin(tool="pay.card", attempt="a1")
    approval = Approval.objects.get()
    fence = planned(tool="crm.update", key="k2", action="act_2", replaces=["x"])

    assert trip.begin(fence).status_code == 403
    for path in (f"/api/v1/approvals/{approval.pk}", f"/api/v1/approvals/{approval.pk}/grant"):
        assert trip_refused(trip, path)
    approval.refresh_from_db()
    assert approval.state == ApprovalState.WAITING


def trip_refused(trip, path):
    try:
        return trip.request("POST", path, {"digest": "x"}).status_code in {404, 405}
    except AssertionError:  # not a path of the hot door at all
        return True


SPELT = ("explain=1&explain=1", "explain=true", "explain=", "explain", "EXPLAIN=1", "dry_run=1")


def test_asking_what_would_be_begins_nothing_however_it_is_spelt(trip, subtests):
    for spelt in SPELT:
        said = trip.request("POST", f"/api/v1/actions/begin?{spelt}", planned())

        with subtests.test(spelt=spelt):
            assert said.status_code == (200 if spelt.startswith("explain=1") else 422)
            assert not Action.objects.exists()


def test_two_orders_whose_numbers_read_like_cards_are_not_taken_for_one(trip):
    first, second = "4242424242424242", "5555555555554444"
    for action, order in (("act_1", first), ("act_2", second)):
        said = trip.begin(action=action, key="", targets=[{"type": "order", "id": order}])
        assert said.status_code == 422, "else the second is answered with the first one's result"
    said = trip.begin(action="act_2", key="refund-2", targets=[{"type": "order", "id": second}])
    assert said.json()["answer"] == "proceed"


def test_another_agents_run_and_a_foreign_approval_are_out_of_reach(trip, acme, globex, dev):
    from workspaces.models import Agent

    other = Agent.objects.create(workspace=acme, name="other")
    stranger = Agent.objects.create(workspace=globex, name="stranger")
    trip.begin(tool="pay.card", attempt="a1")
    approval = Approval.objects.get()
    for agent in (other, stranger):
        them = Trip(keys.create_key(agent, by=None, name="x")[1])
        assert them.request("GET", f"/api/v1/approvals/{approval.pk}").status_code == 404
    them = Trip(keys.create_key(other, by=None, name="x")[1])
    assert them.begin(action="act_9", key="key-9").status_code == 403


BAD = [
    b"",
    b"[]",
    b"{",
    b'{"attempt": 1}',
    b'{"attempt": "a", "attempt": "b"}',
    b"[" * 100_000,
    b'{"attempt": "a", "retry": "fate"}',
    planned(tool=""),
    planned() | {"attempt": ""},
    planned() | {"type": "action.approved"},
    planned() | {"run": "with space"},
    planned() | {"more": 1},
    planned(class_="harmless"),
    planned(targets=[{"type": "x"}]),
    *(planned(key=one) for one in ("k" * 201, "k\ufdd0")),
    planned(args="x" * 70_000),
    planned() | {"retry": ["tool"]},
    planned() | {"retry": {}},
    *(planned() | {"attempt": one} for one in ("\ud800", "\ufdd0")),
    planned(args={"to": "\ud800"}),
    as_written("1e400"),
    as_written("-1e400"),
    as_written("1" * 5000),
    *(planned(tool=one) for one in ("pay\u200b", "pay\n")),
    planned(key="order 4242424242424242"),
    planned() | {"attempt": "4242424242424242"},
    planned(key="", targets=[{"type": "order", "id": "4242424242424242"}]),
]


def test_a_bad_ask_is_told_so_and_never_breaks(trip, subtests):
    for body in BAD:
        with subtests.test(body=str(body)[:80]):
            said = trip.begin(body)
            assert 400 <= said.status_code < 500
            assert said.headers["content-type"] == "application/problem+json"
            assert not Action.objects.exists()


def test_the_policy_is_handed_to_the_agent_with_an_etag(trip, acme):
    said = trip.request("GET", "/api/v1/policy")

    body = said.json()
    assert (body["workspace"], body["agent"]) == ("acme", "desk-agent")
    assert body["document"] == {"agentSafety": ASKS}
    assert said.headers["etag"] == f'"{body["digest"]}.v1"'
    assert said.headers["cache-control"] == "no-store"  # the masking key is in it
    assert bytes.fromhex(body["masking"]["key"]) == opened_masking_key(bytes(acme.masking_key))


def test_the_order_law_asks_or_denies_where_the_policy_says_so(trip, acme, ada):
    trip.succeeded(trip.begin(attempt="a1", saga="pivot"), attempt="a1")
    assert trip.begin(action="act_2", key="key-2").json()["answer"] == "proceed"
    for law, answer in (("ASK", "wait"), ("DENY", "denied")):
        versions.activate(versions.save(acme, f"order: {law}", by=ada), by=ada)
        said = trip.begin(action=f"act_{law}", key=law, saga="pivot").json()
        assert said["answer"] == answer
    said = trip.begin(action="act_5", key="key-5", saga="retriable").json()
    assert said["answer"] == "proceed"


def test_an_unusual_amount_and_a_first_target_are_pointed_out(trip, acme, ada, ben):
    shown = {"kind": "money", "amount": "args.amount", "currency": "args.currency"}
    document = {
        "policies": {"pay.*": {"approval": "MANUAL"}},
        "tools": {"pay.*": {"preview": shown}},
    }
    versions.activate(versions.save(acme, json.dumps(document), by=ada), by=ada)

    def pay(number, amount, target):
        asked = {
            "tool": "pay.card",
            "key": f"key-{number}",
            "action": f"act_{number}",
            "attempt": f"a{number}",
            "args": {"amount": amount, "currency": "eur"},
            "targets": [{"type": "card", "id": target}],
        }
        assert trip.begin(**asked).json()["answer"] == "wait"
        return asked

    for number in range(3):
        asked = pay(number, 1000 + number, "4421")
        approve(ben)
        trip.succeeded(trip.begin(**asked), attempt=asked["attempt"])
    pay(8, 1500, "4421")
    usual = Approval.objects.latest("pk")
    pay(9, 250_000, "9999")
    odd = Approval.objects.latest("pk")

    assert list(call_history.anomalies(usual, call_history.earlier_like(usual))) == []
    amount, first = call_history.anomalies(odd, call_history.earlier_like(odd))
    assert (amount["title"], first["title"]) == ("Unusual amount.", "First time.")
    assert "€10.02" in amount["text"]
    assert (odd.amount_minor, odd.currency) == (250_000, "EUR")


def test_a_word_that_only_begins_like_a_currency_is_not_shown_as_one(trip, acme, ada, leads):
    shown = {"kind": "money", "amount": "args.amount", "currency": "args.currency"}
    tools = {"pay.*": {"preview": shown}}
    versions.activate(versions.save(acme, json.dumps(ASKS | {"tools": tools}), by=ada), by=ada)

    trip.begin(tool="pay.card", args={"amount": 250_000, "currency": "usdt"})

    asked = Approval.objects.get()
    assert (asked.amount_minor, asked.currency) == (None, "")
    assert ["currency", "usdt"] in asked.previews[0]["args"]


UNSEEN = ("pay\u3164", "pay\ufe0f", "pay\u034f", "pay\u2800", "pay ", "p\u200bay")


def test_a_tool_with_something_unseen_in_its_name_is_refused_by_both_doors(trip):
    events = []
    for tool in UNSEEN:
        asked = planned(tool=tool)
        assert trip.begin(asked).status_code == 422, ascii(tool)
        events.append({name: value for name, value in asked.items() if name != "attempt"})
    fit = events[0] | {"id": "fit", "action": "act_2", "data": events[0]["data"] | {"tool": "pay"}}

    *refused, taken = trip.request("POST", "/api/v1/events", [*events, fit]).json()["results"]

    assert all("nobody can see" in one["problem"]["title"] for one in refused)
    assert (len(refused), taken["status"]) == (len(UNSEEN), "accepted")


def test_an_attempt_and_a_key_in_the_form_of_a_uuid_are_never_taken_for_cards(trip):
    said = trip.begin(
        planned(
            key="41234567-1234-4124-a123-0123456789ab",
            attempt="41234567-1234-4124-a123-0123456789ab",
        )
    )

    assert said.json()["answer"] == "proceed"
