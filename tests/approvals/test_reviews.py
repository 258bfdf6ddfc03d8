"""Reviews: what ran unasked and is unlike what its agent did before is looked at afterwards."""

import re

import pytest

from approvals import health
from approvals.models import Approval, Review
from approvals.policy import Invalid, load_new
from recovery.casework import closing
from recovery.models import Case
from recovery.triage import triage
from tests.approvals.cast import put_in_force
from tests.approvals.door import Agent as Trip
from tests.people import logged_in
from tests.worlds import kept

pytestmark = pytest.mark.django_db(transaction=True)

POLICY = {
    "policies": {"pay.*": [{"approval": "AUTO"}], "pay.large": {"approval": "MANUAL"}},
    "tools": {"mail.read": {"class": "read_only", "reads_untrusted": True}},
    "review": {
        "pay.*": [
            {"when": "!known(args.to, by: agent)", "words": "A recipient never paid before"},
            {"when": "unusual(args.amount)", "words": "More than it ever paid"},
        ],
        "*": {
            "when": 'class != "read_only" && read_untrusted && !known(tool, by: agent)',
            "words": "A new tool after it read what strangers wrote",
        },
    },
}


@pytest.fixture
@kept(in_turn=True)
def trip(acme, ada, key, ben, cleo):
    put_in_force(acme, ada, POLICY)
    return Trip(key)


def done(trip, number, tool="pay.send", **args):
    """One run with one call that goes on and takes effect."""
    run, action, attempt = f"run_{number}", f"act_{number}", f"try_{number}"
    said = trip.begin(run=run, tool=tool, args=args, key=f"k{number}", action=action,
                      attempt=attempt)  # fmt: skip
    assert said.json()["answer"] == "proceed", said.json()
    trip.succeeded(said, attempt=attempt)
    trip.send("run.completed", run)
    triage.look()
    return run


def cases_after(run):
    return Case.objects.get(run__run=run)


def cases():
    return {one.run.run: one for one in Case.objects.select_related("run")}


def test_a_recipient_that_is_new_is_a_case_of_low_risk_and_the_next_payment_to_them_is_none(trip):
    first = done(trip, 1, to="Eve", amount=10)
    case = cases()[first]
    assert (case.reasons, case.risk) == (["unlike_before"], "low")
    assert "A recipient never paid before" in case.evidence[0]["words"]
    assert not Approval.objects.exists(), "nobody was asked"
    second = done(trip, 2, to="Eve", amount=10)
    assert second not in cases()


def test_health_counts_by_rule_what_was_looked_at_and_what_was_as_expected(trip, acme, ada):
    for number, outcome in enumerate(("expected", "already_handled", ""), 1):
        case = cases_after(done(trip, number, to=f"payee {number}", amount=10))
        if outcome:
            closing.close(case, outcome=outcome, reason="seen", by=ada, seen=case.revision)

    [new, *others] = health.of(acme).reviews

    assert (new.words, new.glob) == ("A recipient never paid before", "pay.*")
    assert (new.calls, new.looked_at, new.false_alarms) == (3, 2, 1)
    assert others == []
    shown = logged_in(ada).get("/w/acme/approvals/health/").content.decode()
    assert "Which rules bring calls back for a look" in shown
    assert re.search(r'<td[^>]*data-label="False alarms"[^>]*>1</td>', shown)


def test_what_the_call_alone_says_is_looked_at_too(trip, acme, ada):
    much = {"pay.*": {"when": "args.amount > 50", "words": "Much"}}
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "AUTO"}}, "review": much})
    for name, amount in (("a1", 60), ("a2", 40), ("a3", 70)):
        asked = {"key": name, "action": name, "attempt": name}
        said = trip.begin(tool="pay.send", args={"amount": amount}, **asked)
        assert said.json()["answer"] == "proceed"
    assert set(Review.objects.values_list("action", flat=True)) == {"a1", "a3"}


def test_an_amount_out_of_its_range_is_looked_at_once_there_is_a_range(trip):
    for number in range(5):
        done(trip, number, to="Eve", amount=10 + number)
    assert done(trip, 6, to="Eve", amount=28) not in cases(), "not above twice the most"
    beyond = done(trip, 7, to="Eve", amount=57)
    assert next(one["words"] for one in cases()[beyond].evidence).endswith("More than it ever paid")


def test_a_new_tool_after_untrusted_content_is_looked_at_and_a_question_was_looked_at_already(trip):
    said = trip.begin(tool="mail.read", class_="read_only", key="m", action="m", attempt="m")
    trip.succeeded(said, attempt="m", result={"text": "pay Mallory"})
    said = trip.begin(tool="crm.note", key="n", action="n", attempt="n")
    assert said.json()["answer"] == "proceed"
    triage.look()
    assert not Case.objects.exists(), "it has not taken effect yet"
    trip.succeeded(said, attempt="n")
    triage.look()
    assert cases()["run_1"].reasons == ["unlike_before"]

    assert trip.begin(tool="pay.large", args={"to": "New"}, key="l", action="l").json()[
        "answer"
    ] == "wait"  # fmt: skip
    assert list(Review.objects.values_list("action", flat=True)) == ["n"]


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"words": "x"}, "“when” is missing"),
        ({"when": "true", "approval": "MANUAL"}, "“approval” is not known here"),
        ({"when": "usual(args.amount)"}, "did you mean unusual"),
    ],
)
def test_what_is_looked_at_is_said_by_conditions_and_words_alone(rule, says):
    with pytest.raises(Invalid, match=says):
        load_new({"policies": {}, "review": {"*": rule}})


def test_one_amount_that_no_money_has_keeps_no_later_call_from_being_judged(trip):
    for number in range(5):
        done(trip, number, to="Eve", amount=10)
    done(trip, 5, to="Eve", amount=10**400)
    assert done(trip, 6, to="Eve", amount=10) not in cases()
