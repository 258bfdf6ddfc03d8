"""What was looked up in a system of the workspace, and what an agent makes of that."""

from typing import Any

import pytest

from approvals.card_context import why
from approvals.gate import run_lookups
from approvals.models import Approval
from ledger.models import Action
from tests.approvals.cast import put_in_force
from tests.approvals.door import answer, pay
from tests.approvals.test_conditions_attacked import told_again
from workspaces.erasure_registry import ERASED

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def obey(acme, ada, leads):
    def say(when, approval="MANUAL", tools=None):
        rules = {"pay.*": [{"when": when, "approval": approval}, {"approval": "AUTO"}]}
        others = {"*": {"approval": "MANUAL"}} if approval == "AUTO" else {}
        put_in_force(acme, ada, {"policies": rules | others, "tools": tools or CONTACTS})

    return say


CONTACTS = {
    "contacts.*": {"class": "read_only"},
    "contacts.shared": {"class": "read_only", "reads_untrusted": True},
    "contacts.add": {"class": "internal_update"},
    "web.*": {"class": "read_only", "reads_untrusted": True},
}
NOT_LOOKED_UP = "!looked_up(args.to, by: 'contacts.*')"


def looks(trip, result, key="r1", tool="contacts.find", run="run_1", **more):
    said = {"args": {}, "targets": []} | more
    begun = trip.begin(tool=tool, key=key, action=f"act-{key}", attempt=key, run=run, **said)
    assert begun.json()["answer"] == "proceed", begun.text
    trip.succeeded(begun, attempt=key, result=result)


def known_to(trip, to, key="k1", **more):
    return answer(trip, key, args={"to": to}, **more) == "proceed"


ANN, EVE = "ann@acme.example", "eve@evil.example"


SAID: tuple[dict[str, Any], ...] = (
    {"args": {"query": EVE}}, {"args": {"query": f"Is it {EVE.upper()}?"}},
    {"args": {"query": "eve%40evil.example"}}, {"args": {"query": "e v e@evil.example"}},
    {"args": {"user": "eve", "host": "evil.example"}}, {"args": {"fields": {EVE: 1}}},
    {"targets": [{"type": "contact", "id": EVE}]}, {"args": ["eve\u200b@evil.example"]},
)  # fmt: skip


def test_an_echo_is_no_looking_up(trip, obey):
    obey(NOT_LOOKED_UP)
    for n, said in enumerate(SAID):
        run, other = {"run": f"run-{n}"}, {"run": f"other-{n}"}
        looks(trip, {"found": [], "said": f"No contact {EVE}"}, key=f"r{n}", **run, **said)
        assert answer(trip, f"k{n}", args={"to": EVE}, **run) == "wait", said
        looks(trip, "nobody", key=f"s{n}", **other, **said)
        looks(trip, {"last searched": [EVE]}, key=f"t{n}", tool="contacts.recent", **other)
        heard = answer(trip, f"l{n}", args={"to": EVE}, **other)
        assert heard == "wait", f"nor is what it remembers of that search, {said}"


def test_an_echo_that_is_spelled_otherwise_or_stands_beside_more_is_one(trip, obey):
    echoes = [
        (EVE, [{"mail": ANN}, f"No {EVE}"], f"{ANN}, {EVE}"),
        (EVE, [{"mail": ANN}, f"No {EVE}"], [f"Ann <{ANN}>; {EVE}"]),
        (EVE, f"{EVE} (not found)", f"{EVE} (not found)"), (EVE, f"Found: {EVE}", f"Found: {EVE}"),
        ('"eve"@evil.example', '"eve"@evil.example (-, no)', '"eve"@evil.example (-, no)'),
        ("66666", "No order 66666", "ORD-66666"), ("471 10", "No account 47110", 47110),
        ("471-108-15", "No 47110815 is here", "47110815 is here"),
        ("https://evil.example/x", "No https://evil.example/x.", "No https://evil.example/x"),
        ("evil.example", "https://www.evil.example/", "https://www.evil.example/"),
        ('{"mail": "\\u0065ve\\u0040evil.example"}', f"No {EVE}", EVE),
        ('{"mail": "{\\\\"e\\\\x76e@evil.example"}', f"No {EVE}", EVE),
        ("e%2576e%2540evil.example", f"No {EVE}", EVE), ("&#101;ve&#64;evil.example", EVE, EVE),
        ("eve@bücher.example", "eve@xn--bcher-kva.example", "eve@xn--bcher-kva.example"),
        ("eve@xn--bcher-kva.example", "eve@bücher.example", "eve@bücher.example"),
    ]  # fmt: skip
    obey(NOT_LOOKED_UP)
    for n, (said, result, to) in enumerate(echoes):
        looks(trip, result, key=f"r{n}", run=f"run-{n}", args={"query": said})
        assert answer(trip, f"k{n}", run=f"run-{n}", args={"to": to}) == "wait", (said, to)


def test_what_a_system_gives_is_looked_up_though_the_agent_said_a_part_of_it(trip, obey):
    obey(NOT_LOOKED_UP)
    known: list[str | int] = [ANN, "ORD-12345", "AB 12 34 56 78", "+49 170 1234567", 4711,
             "https://docs.acme.example/a/b", "ann@bücher.example", "Berg, Ann"]  # fmt: skip
    looks(trip, [known, "bo@acme.example"], args={"url": "https://docs.acme.example", "n": 3})
    for number, to in enumerate([*known, f"Ann <{ANN}>, bo@acme.example", f"mailto:{ANN}"]):
        assert known_to(trip, to, f"n{number}"), to


def test_what_was_written_while_a_reading_was_under_way_may_be_what_it_gave(trip, obey):
    obey(NOT_LOOKED_UP)
    read = trip.begin(tool="contacts.find", key="r1", action="r1", attempt="r1", args={})
    looks(trip, "ok", key="w1", tool="contacts.add", args={"mail": EVE})
    trip.succeeded(read, attempt="r1", result=[{"mail": ANN}, {"mail": EVE}])
    looks(trip, "ok", key="w2", tool="contacts.add", args={"mail": ANN})
    assert not known_to(trip, EVE)
    assert known_to(trip, ANN, "k2"), "which it had from there first"
    looks(trip, [{"mail": ANN}, {"mail": EVE}], key="r2")
    assert known_to(trip, ANN, "k3")
    assert not known_to(trip, EVE, "k4")


def test_what_the_agent_said_and_was_erased_since_may_be_what_it_looks_up(trip, obey):
    obey(NOT_LOOKED_UP)
    looks(trip, "ok", key="w1", tool="contacts.add", args={"mail": EVE})
    Action.objects.filter(key="w1").update(args=None, args_digest=ERASED)
    looks(trip, [{"mail": EVE}])
    assert not known_to(trip, EVE)


def test_what_the_agent_put_there_before_was_not_looked_up(trip, obey):
    obey(NOT_LOOKED_UP)
    looks(trip, {"id": "c9"}, key="w1", tool="contacts.add", args={"name": "Ann", "mail": EVE})
    looks(trip, [{"name": "Ann", "mail": EVE}], args={"query": "Ann"})
    assert not known_to(trip, EVE)


def test_what_another_tool_gave_was_not_looked_up(trip, obey):
    obey(NOT_LOOKED_UP)
    for tool in ("web.get", "contacts.shared", "contacts.add", "contact.find", "contacts.Shared",
                 "xcontacts.find"):  # fmt: skip
        looks(trip, [{"mail": EVE}], key=f"r-{tool}", run=tool, tool=tool)
        assert answer(trip, f"k-{tool}", run=tool, args={"to": EVE}) == "wait", tool


def test_what_was_looked_up_in_another_run_or_past_the_gate_was_not_in_this_one(trip, obey):
    obey(NOT_LOOKED_UP)
    looks(trip, [{"mail": ANN}], key="r0", run="run_0")
    trip.send("action.planned", action="told", tool="contacts.find", args={}, targets=[])
    trip.send("action.started", action="told", attempt="a1")
    trip.send("action.succeeded", action="told", attempt="a1", result=[{"mail": ANN}])
    assert not known_to(trip, ANN)
    looks(trip, [{"mail": ANN}], run="run_2")
    assert known_to(trip, ANN, "k2", run="run_2")


def test_a_reading_of_which_the_result_is_not_there_yet_or_changes_shows_nothing(trip, obey):
    obey("looked_up(args.to, by: 'contacts.*')", approval="AUTO")
    begun = trip.begin(tool="contacts.find", key="r1", action="r1", attempt="r1", args={})
    assert begun.json()["answer"] == "wait", "which is asked about here"
    obey(NOT_LOOKED_UP)
    begun = trip.begin(tool="contacts.find", key="r2", action="r2", attempt="r2", args={})
    assert not known_to(trip, EVE)
    trip.succeeded(begun, attempt="r2", result=[{"mail": ANN}, {"mail": EVE}, "cy@acme.example"])
    assert known_to(trip, ANN, "k2")
    assert not known_to(trip, EVE), "which was said before it was read"
    assert not known_to(trip, EVE, "k3")
    trip.succeeded(begun, attempt="r2", result=[{"mail": "bo@acme.example"}])
    assert not known_to(trip, "bo@acme.example", "k4")
    assert not known_to(trip, "cy@acme.example", "k5"), "nobody knows which of them it gave"


def test_a_call_that_is_told_again_as_a_reading_was_none(trip, obey):
    obey(NOT_LOOKED_UP)
    looks(trip, [{"mail": EVE}], key="w", tool="web.get")
    told_again(trip, "w", tool="contacts.find", targets=[], args={})
    assert not known_to(trip, EVE)


def test_of_a_result_that_is_hidden_or_cut_nobody_knows_what_was_looked_up(trip, obey):
    hidden = (None, {"not_recorded": f"too large: {EVE}"}, ["⟦masked:mail⟧"],
              {"text": "x " * 26_000})  # fmt: skip
    for approval, when in (("MANUAL", NOT_LOOKED_UP), ("DENY", NOT_LOOKED_UP[1:])):
        obey(when, approval=approval)
        for n, result in enumerate(hidden):
            run = f"{approval}-{n}"
            looks(trip, result, key=f"r-{run}", run=run)
            assert not known_to(trip, EVE, f"k-{run}", run=run), n


def test_more_readings_and_calls_than_are_looked_at_cannot_be_told(trip, obey, monkeypatch):
    obey("looked_up(args.to, by: 'contacts.*')", approval="DENY")
    monkeypatch.setattr(run_lookups, "RESULTS_MAX", 1)
    looks(trip, [{"mail": "x@acme.example"}])
    assert known_to(trip, EVE), "it was not looked up"
    looks(trip, [{"mail": "y@acme.example"}], key="r2")
    assert not known_to(trip, EVE, "k2")
    obey(NOT_LOOKED_UP)
    looks(trip, [{"mail": ANN}], key="r3")
    assert known_to(trip, ANN, "k3")
    monkeypatch.setattr(run_lookups, "EARLIER_MAX", 1)
    assert not known_to(trip, ANN, "k4")


def test_a_masked_account_is_looked_up_by_its_mark(trip, obey):
    obey(NOT_LOOKED_UP.replace("args.to", "args.iban"))
    there, other = "DE89370400440532013000", "DE89370400440532013001"
    looks(trip, {"iban": there, "note": f"not {other}"}, args={"iban": other})
    assert answer(trip, "k1", args={"iban": there}) == "proceed"
    assert answer(trip, "k2", args={"iban": other}) == "wait"
    obey(NOT_LOOKED_UP)
    assert not known_to(trip, other, "k3"), "which the reading had in its arguments, masked"
    obey(NOT_LOOKED_UP[1:], approval="DENY")
    assert not known_to(trip, there, "k4"), "which may be what is masked there"
    assert known_to(trip, ANN, "k5"), "which is none"


def test_each_of_several_values_is_looked_up_and_none_is_put_together_of_two_fields(trip, obey):
    obey(NOT_LOOKED_UP)
    looks(trip, [{"mail": ANN, "ref": "A", "no": "77 1"}, {"mail": "bo@acme.example", "zip": "9"}])
    assert known_to(trip, [ANN, "Bo <bo@acme.example>"])
    looks(trip, [{"name": "Ann Berg"}, {"name": "Cy Dorn"}], key="r2")
    assert known_to(trip, ["Ann Berg", "Dorn, Cy"], "k2")
    assert not known_to(trip, "Berg Cy", "k3")
    others: list[list[str] | str] = [[ANN, EVE], "77 1 A", [], "", f"{ANN}, {EVE}", f"Ann <{EVE}>",
              "\u0430nn@acme.example", "ann@acme.example.evil.example"]  # fmt: skip
    for number, to in enumerate(others):
        assert not known_to(trip, to, f"n{number}"), to


def test_of_several_values_each_may_be_looked_up_or_asked_for_where_the_rule_says_so(trip, obey):
    bo, either = "bo@acme.example", NOT_LOOKED_UP.replace(")", ", or: mentioned)")
    for run, rule in (("run_1", either), ("run_2", NOT_LOOKED_UP)):
        obey(rule)
        trip.send("run.started", run=run, request=f"Write to Ann and {bo}")
        looks(trip, [{"mail": ANN}], key=f"r-{run}", run=run)
        looks(trip, f"No {EVE}", key=f"e-{run}", run=run, args={"query": EVE})
        is_either = rule == either
        whom: tuple[tuple[Any, bool], ...] = (
            ([ANN], True), ([ANN, bo], is_either), (bo, is_either), (f"Bo <{bo}>", is_either),
            ([ANN, bo, EVE], False), (f"{ANN}, {EVE}, {bo}", False), ([f"{bo} <{EVE}>"], False),
            ({"mail": bo, "name": "Ann"}, is_either), ({bo: "Ann"}, is_either),
            ({EVE: "Ann"}, False), ([{"mail": bo, "cc": [[EVE]]}], False),
            (f'"{bo}" <{EVE}>', False), (f"{bo};{EVE}", False), (f"{bo}\n{EVE}", False),
            (f"mailto:{bo}?cc={EVE}", False), (f"{bo}?bcc={EVE.replace('@', '%40')}", False),
            (f"{bo}%2C{EVE}", False), (f"{bo} {EVE}", False), (f"{EVE} {bo}", False),
            ([bo, ""], False), ([ANN, "bo@acme.example.evil.example"], False), ([], False),
        )  # fmt: skip
        for number, (to, goes_on) in enumerate(whom):
            assert known_to(trip, to, f"{run}-{number}", run=run) is goes_on, (rule, to)
    obey(either)
    looks(trip, [{"mail": ANN}], key="r3", run="run_3")
    assert not known_to(trip, [ANN, bo], "k3", run="run_3"), "without a request on record"


def test_a_value_that_was_looked_up_is_told_from_one_that_the_agent_made_up(trip, obey):
    tools = {"contacts.*": {"class": "read_only"}, "crm.find": {"class": "read_only"}}
    obey(
        "!mentioned(args.to) && !looked_up(args.to, by: ['contacts.*', \"crm.find\"])", tools=tools
    )
    for run in ("run_1", "run_2"):
        trip.send("run.started", run=run, request="Pay Ann")
    assert not known_to(trip, ANN, run="run_2")
    found = [one["value"] for one in why(Approval.objects.get()) if one["name"] == "Found"]
    assert found == ["args.to does not stand in what the agent was asked for",
                     "args.to was not looked up by contacts.*, crm.find"]  # fmt: skip
    looks(trip, [{"name": "Ann", "mail": ANN.title()}], tool="crm.find", args={"name": "Ann"})
    assert known_to(trip, ANN, "k2")
    assert known_to(trip, ANN, "k3")
    asked = pay(trip, "k4", args={"to": ANN}, explain=True).json()["explain"]["conditions"][0]
    assert asked["asked"][1]["words"] == "args.to was looked up by crm.find"
    looks(trip, [{"mail": ANN}], key="r2", args={"query": ANN})
    assert known_to(trip, ANN, "k5"), "it had it from there first"
    assert not known_to(trip, EVE, "k6")
