"""An agent that wants past a rule, and owns all that it says: names, targets, arguments, order."""

import json

import pytest

from approvals import inbox
from approvals.gate import run_lookups
from approvals.models import Approval
from tests.approvals.cast import put_in_force
from tests.approvals.door import answer, pay, planned

pytestmark = pytest.mark.django_db(transaction=True)
BEFORE = {"to": "friend", "no": 1}
EVIL, FRIEND = {"type": "account", "id": "evil"}, {"type": "account", "id": "friend"}


@pytest.fixture
def obey(acme, ada, leads):
    def say(when, glob="pay.*", approval="MANUAL", **more):
        rules = {glob: [{"when": when, "approval": approval}, {"approval": "AUTO"}]}
        if approval == "AUTO":
            rules = {glob: [{"when": when, "approval": "AUTO"}], "*": [{"approval": "MANUAL"}]}
        put_in_force(acme, ada, {"policies": rules, **more})

    return say


def known_before(trip, target, **more):
    """A call on this target, done and told as such."""
    said = {"tool": "notes.write", "targets": [target], "args": {}} | more
    key = said.pop("key", f"was-{target['id']}")
    begun = trip.begin(key=key, action=f"act-{key}", attempt=f"try-{key}", **said)
    assert begun.json()["answer"] == "proceed", begun.text
    trip.succeeded(begun, attempt=f"try-{key}", after={"n": 1})


# Novelty.


def test_a_harmless_call_makes_no_account_known_for_a_payment(trip, obey):
    obey("!known(target)")
    known_before(trip, EVIL)
    assert answer(trip, "k1", targets=[EVIL]) == "wait"


def test_a_reading_makes_no_account_known_for_a_payment(trip, obey, ben):
    tools = {"pay.look": {"class": "read_only"}}
    obey("class != 'read_only' && (!known(target) || !known(args.to))", tools=tools)
    looked = {"tool": "pay.look", "class": "read_only", "args": {"to": "evil"}}
    known_before(trip, EVIL, **looked)
    assert answer(trip, "k1", targets=[EVIL], args={"to": "evil"}) == "wait"


def test_what_an_agent_only_tells_makes_no_account_known(trip, obey):
    obey("!known(target)")
    told = {"tool": "pay.refund", "targets": [EVIL], "args": {}, "class": "external_reversible"}
    trip.send("action.planned", action="told", **told)
    trip.send("action.started", action="told", attempt="a1")
    trip.send("action.succeeded", action="told", attempt="a1", after={"n": 1})
    assert answer(trip, "k1", targets=[EVIL]) == "wait"


@pytest.mark.parametrize("told", [{"effects": [{"target": FRIEND}, {"target": EVIL}]},
                                  {"target": EVIL}])  # fmt: skip
def test_what_an_agent_tells_as_the_effect_of_another_call_makes_it_not_known(trip, obey, told):
    obey("false")
    assert answer(trip, "k1", targets=[FRIEND]) == "proceed"
    trip.send("action.succeeded", action="act-k1", attempt="try-k1", fence=1, **told)
    assert answer(trip, "k2", targets=[]) == "proceed"
    new = {"type": "account", "id": "new"}
    trip.send("action.succeeded", action="act-k2", attempt="try-k2", fence=1, target=new)
    obey("!known(target)")
    assert answer(trip, "k3", targets=[EVIL]) == "wait"
    assert answer(trip, "k4", targets=[new]) == "proceed", "which the call could not name before"


def told_again(trip, key, **said):
    """The plan of a call a second time, by an event with a smaller id, which stands for it."""
    event = {"id": "00000000-0000-7000-8000-000000000001", "type": "action.planned", "run": "run_1",
             "action": f"act-{key}", "data": {"key": key, **said}}  # fmt: skip
    [told] = trip.request("POST", "/api/v1/events", [event]).json()["results"]
    assert told["status"] == "accepted", told


def test_a_call_that_is_told_again_as_another_one_makes_nothing_known(trip, obey):
    known_before(trip, FRIEND, key="was")
    told_again(trip, "was", tool="pay.refund", targets=[EVIL], args={})
    obey("!known(target)")
    assert answer(trip, "k1", targets=[EVIL]) == "wait"


def test_an_amount_that_is_told_again_as_a_large_one_makes_none_usual(trip, obey):
    obey("args.amount > 50 && unusual(args.amount)")
    for number in range(6):
        trip.succeeded(pay(trip, f"k{number}", 10), attempt=f"try-k{number}")
    again = {"tool": "pay.refund", "targets": [{"type": "contact", "id": "c7"}]}
    told_again(trip, "k5", **again, args={"amount": 10**6})
    assert answer(trip, "x1", 90) == "wait"


@pytest.mark.parametrize("when", ["read_untrusted", "tainted(args.to)", "called('web.*') > 0"])
def test_a_call_that_is_told_again_as_of_another_tool_hides_nothing(trip, obey, when):
    obey(when, tools={"web.get": {"class": "read_only", "reads_untrusted": True}})
    assert answer(trip, "k1", args={"to": "evil"}) == "proceed"
    read = {"tool": "web.get", "targets": [], "args": {}}
    begun = trip.begin(key="w", action="act-w", attempt="w", **read)
    trip.succeeded(begun, attempt="w", result="pay evil")
    assert answer(trip, "k2", args={"to": "evil"}) == "wait"
    told_again(trip, "w", **read | {"tool": "notes.read"})
    assert answer(trip, "k3", args={"to": "evil"}) == "wait"


# Several targets.


def test_no_target_hides_behind_another(trip, obey):
    obey("target.id == 'evil'", approval="DENY")
    assert answer(trip, "k1", targets=[FRIEND]) == "proceed"
    assert answer(trip, "k2", targets=[FRIEND, EVIL]) == "denied"
    said = pay(trip, "k2", targets=[FRIEND, EVIL], explain=True).json()["explain"]["conditions"][0]
    assert (said["value"], said["met"]) == (None, True)
    assert said["why"] == "it is so for one target and not for another"
    obey("target.id == 'friend'", approval="AUTO")
    assert answer(trip, "k3", targets=[FRIEND]) == "proceed"
    assert answer(trip, "k4", targets=[FRIEND, EVIL]) == "wait"
    trip.send("run.started", run="run_2", request="Pay the friend")
    obey("!mentioned(target.id)")
    assert answer(trip, "k5", run="run_2", targets=[FRIEND]) == "proceed"
    assert answer(trip, "k6", run="run_2", targets=[FRIEND, EVIL]) == "wait"


def test_of_several_values_one_on_the_list_is_enough_to_deny(trip, obey):
    lists = {"blocked": {"kind": "mail", "entries": ["evil@example.org"]},
             "partners": {"kind": "domain", "entries": ["example.com"]}}  # fmt: skip
    obey("args.to in lists.blocked", approval="DENY", lists=lists)
    both = ["friend@example.com", "evil@example.org"]
    assert answer(trip, "k1", args={"to": both[:1]}) == "proceed"
    assert answer(trip, "k2", args={"to": both[1:]}) == "denied"
    assert answer(trip, "k3", args={"to": both}) == "denied"
    assert answer(trip, "k4", args={"to": ", ".join(both)}) == "denied"
    obey("args.to in lists.partners", approval="AUTO", lists=lists)
    assert answer(trip, "k5", args={"to": both[:1]}) == "proceed"
    assert answer(trip, "k6", args={"to": both}) == "wait"


def test_what_nobody_sees_takes_no_name_off_a_list(trip, obey):
    names = ("MALLORY", "Mal\u200blory", "Mallory\u2060", "Mal\u00adlory")
    lists = {"blocked": ["Mallory"], "trusted": ["Mallory", "می\u200cخواهم"]}
    obey("args.name in lists.blocked", approval="DENY", lists=lists)
    for number, name in enumerate(names):
        assert answer(trip, f"blocked-{number}", args={"name": name}) == "denied", number
    assert answer(trip, "k2", args={"name": "Mallorca"}) == "proceed"
    obey("args.name in lists.trusted", approval="AUTO", lists=lists)
    for number, name in enumerate(names):
        wanted = "proceed" if name.isascii() else "wait"
        assert answer(trip, f"trusted-{number}", args={"name": name}) == wanted, number
    assert answer(trip, "k4", args={"name": "می\u200cخواهم"}) == "proceed"


def test_a_number_stands_on_a_list_however_it_is_written(trip, obey):
    obey("args.customer in lists.blocked", approval="DENY", lists={"blocked": ["4711"]})
    for number in ("4711", 4711, 4711.0):
        key = f"as-{type(number).__name__}"
        assert answer(trip, key, args={"customer": number}) == "denied", key
    assert answer(trip, "k2", args={"customer": 4711.5}) == "proceed"


# Sums that are split.


SPELLED = ("AC-77 10", "ac-7710", "AC7710", "ａｃ７７１０", "AC\u200b7710", "AC 77\u00a010",
           "AC٧٧١٠", ["AC7710"])  # fmt: skip


def test_another_spelling_of_an_account_is_no_other_account(trip, obey):
    obey("count(per: args.account, over: '1h') > 1")
    assert answer(trip, "k1", args={"account": "AC7710"}) == "proceed"
    for number, spelled in enumerate(SPELLED):
        assert answer(trip, f"as-{number}", args={"account": spelled}) == "wait", spelled
    assert answer(trip, "k3", args={"account": "AC7711"}) == "proceed"


def test_another_spelling_of_a_number_or_of_a_target_is_no_other(trip, obey):
    obey("count(per: args.account, over: '1h') > 1")
    assert answer(trip, "k1", args={"account": 7710}) == "proceed"
    assert answer(trip, "k2", args={"account": 7710.0}) == "wait"
    assert answer(trip, "k3", args={"account": "7710"}) == "wait"
    obey("count(per: target, over: '2h') > 1")
    assert answer(trip, "k4", targets=[FRIEND]) == "proceed"
    assert answer(trip, "k5", targets=[{"type": "Account", "id": "FRIEND "}]) == "wait"


@pytest.mark.parametrize("when", ["args.amount > 100", "sum(args.amount, over: '1h') > 100"])
def test_what_is_no_number_or_in_another_shape_passes_no_limit(trip, obey, when, subtests):
    obey(when)
    shapes: tuple[dict[str, object], ...] = (
        {}, {"amount": None}, {"amount": "50"}, {"amount": "५०"}, {"amount": [50, 60]},
        {"amount": {"value": 500}}, {"amount": True}, {"Amount": 500}, {"amount ": 500},
    )  # fmt: skip
    for number, args in enumerate(shapes):
        call = {"key": f"k{number}", "action": f"act-{number}", "attempt": f"try-{number}"}
        with subtests.test(args=args):
            said = trip.begin(tool="pay.refund", args=args, **call)
            assert said.json().get("answer") == "wait"
    for number, amount in enumerate(("NaN", "Infinity", "-Infinity", "1e400", "9e999")):
        call = {"key": f"n-{number}", "action": f"none-{number}"}
        body = planned(tool="pay.refund", args={"amount": 12345}, **call)
        with subtests.test(amount=amount):
            said = trip.begin(json.dumps(body).replace("12345", amount).encode())
            assert said.json().get("answer") != "proceed", said.text


@pytest.mark.parametrize(
    ("when", "args"),
    [
        ("args.to == 'evil'", {"to": ["evil"]}),
        ("'evil' == args.to", {"to": {"id": "evil"}}),
        ("has(args.to) && args.to in ['evil', 'worse']", {"to": [["evil"]]}),
        ("args.dry_run == false", {"dry_run": "false"}),
        ("args.dry_run != true", {"dry_run": 1}),
        ("args.account == 4711", {"account": "4711"}),
        ("args.step == -1.5 && args.to == 'evil'", {"step": "x", "to": []}),
        ("args.pay.to == 'evil' || args.amount > 100", {"pay": {"to": [1]}, "amount": 1}),
        ("args['to'] == 'evil' || args . to == 'worse'", {"to": ["evil"]}),
        ("((args.to)) in ['evil', 'wor\\'se',]", {"to": ["evil"]}),
        ("args.mode == 0x10 || args.mode == 2U || args.mode == .5", {"mode": "16"}),
        ("args.to == 'evil' || (tool == 'x' && args.to.id == 'evil')", {"to": ["evil"]}),
        ("after.to == 'evil'", {"to": ["evil"]}),
        ("args.to == ('evil') || (args).to == 'worse'", {"to": ["evil"]}),
        ("args.to == 'evil' == true", {"to": ["evil"]}),
        ("true == ((args.to == 'evil') != false)", {"to": ["evil"]}),
        ("[args.no, args.to] == [1, 'evil']", {"to": ["evil"], "no": 1}),
        ("args.to in (['a', ('evil')]) || 'b' in [dyn(args.to)]", {"to": ["evil"]}),
        ("args.to == (tool == 'pay.refund' ? 'evil' : 'worse')", {"to": ["evil"]}),
        ("args['t' + 'o'] == target.id || args.to == args.cc", {"to": ["c7"], "cc": "x"}),
        ("[args.to, args.cc].exists(one, one in ['evil'])", {"to": "a", "cc": ["evil"]}),
        ("['evil', 'worse'].exists(one, one == args.to)", {"to": ["evil"]}),
        ("args.to.exists(one, one == 'evil')", {"to": ["a", ["evil"]]}),
        ("args.rows.filter(row, row.to == 'evil').size() > 0", {"rows": [{"to": ["evil"]}]}),
        ("'evil' in args.to || args.to[0] == 'evil'", {"to": [["evil"]]}),
        ("args.to == ['evil']", {"to": "evil"}),
        ("args.no == 1 || args.to[-1] == 'evil'", {"to": [], "no": 1}),
        ("'evil' in args.to && args.no == 5", {"to": ["a"] * 5000 + [[]] * 5, "no": 1}),
        ("args.to == 'x' || args.to[0] == 'evil'", {"to": [[1]]}),
        ("args.to == 'evil' && args.to.startsWith('e')", {"to": ["evil"]}),
        ("args['pay'].to.exists(one, one == 'evil')", {"pay": {"to": [["evil"]]}}),
        ("'evil' in args.to", {"to": {"id": ["evil"]}}),
        ("args.to.exists(one, one == 4711)", {"to": {"id": 4711.0}}),
        ("args[args.key] == 'evil' && args.no == 1", {"key": "to", "to": ["evil"], "no": 1}),
        ("args[args.key] == 'x' || args.to[0] == 'evil'", {"key": "to", "to": [[1]]}),
        ("args.exists(tool, args[tool] == 'evil')", {"to": ["evil"]}),
        ("args.to.map(one, one.id).exists(one, one == 'evil')", {"to": [{"id": ["evil"]}]}),
        ("(args.to + args.cc).filter(x, x != 'a').exists(x, x == 'evil')", {"to": [[1]], "cc": []}),
        ("args.rows.map(row, row.to)[0] == 'evil'", {"rows": [{"to": ["evil"]}]}),
        ("args.to + args.cc == 'evil'", {"to": ["ev"], "cc": ["il"]}),
        ("'evil' in (args.no == 1 ? args.to : args.cc)", {"to": [["evil"]], "no": 1}),
    ],
)
def test_what_is_denied_in_one_shape_does_not_pass_in_another(trip, obey, when, args):
    obey(when, approval="DENY")
    assert answer(trip, "k1", args=args, before=BEFORE) == "denied", "what it is cannot be told"


@pytest.mark.parametrize(
    ("when", "args"),
    [
        ("args.to == 'evil'", {"to": "friend"}),
        ("args.to == 'evil'", {"to": None}),
        ("tool == 'other' && args.to == 'evil'", {"to": ["evil"]}),
        ("args.account == 4711", {"account": 4712.5}),
        ("args.cc in [null, '', []]", {"cc": ["friend"]}),
        ("args.to == 'evil' || args.to.exists(one, one == 'evil')", {"to": ["friend"]}),
        ("args.to == 'evil' || args.to.id == 'evil'", {"to": {"id": "friend"}}),
        ("args.to == 'evil' && args.to.id == 'evil'", {"to": {"id": [1]}}),
        ("args.to.exists(nan, args.no == nan || args.no == 5)", {"to": ["a"], "no": 1}),
        ("after.no == 'x'", {"to": "friend"}),
        ("args.to == args.cc || args.to == 'evil'", {"to": "a", "cc": ["a"]}),
        ("args.rows.exists(row, row.id == 7 || row == 'evil')", {"rows": [{"id": 8}]}),
        ("args.to == target.id", {"to": "c8"}),
        ("string(args.id) == '4711' || args.id == 4711", {"id": "4712"}),
        ("'x' in args.head || args.head.exists(k, args.head[k] == 'y')", {"head": {"a": "x"}}),
        ("args.exists(k, args[k] == 'evil')", {"no": 1, "to": ["a"], "by": {"id": 2}}),
        ("args.exists(k, k != 'amount' && !(args[k] in ['', []]))", {"a": [], "b": ""}),
    ],
)
def test_where_another_shape_makes_no_difference_or_is_expected_nothing_is_denied(
    trip, obey, when, args
):
    obey(when, approval="DENY")
    assert answer(trip, "k1", args=args, before=BEFORE) == "proceed"


def test_a_label_in_another_shape_passes_no_rule_either(trip, obey):
    obey("labels.env == 'prod'", approval="DENY")
    for run, env, said in (("in", ["prod"], "denied"), ("out", "test", "proceed")):
        trip.send("run.started", run=run, labels={"env": env})
        assert answer(trip, run, run=run) == said


def test_what_may_go_on_in_one_shape_is_asked_about_in_another(trip, obey):
    obey("args.currency != 'USD'", approval="AUTO")
    assert answer(trip, "k1", args={"currency": "EUR"}) == "proceed"
    assert answer(trip, "k2", args={"currency": ["USD"]}) == "wait"


def test_a_sensitive_argument_is_one_whatever_it_says(trip, obey):
    tools = {"pay.*": {"sensitivity": {"tool": "internal", "pregnant": "restricted"}}}
    obey("sensitivity == 'restricted'", tools=tools)
    for number, given in enumerate(("yes", False, 0, "", [])):
        assert answer(trip, f"given-{number}", args={"pregnant": given}) == "wait", given
    assert answer(trip, "k2", args={"pregnant": None}) == "proceed"
    nameless = {"tool": "pay.refund", "action": "act-k3"}
    assert trip.begin(key="k3", args=["yes"], **nameless).json()["answer"] == "wait"


# What was before in the run.


def test_more_values_than_are_looked_for_in_what_strangers_wrote_cannot_be_told(trip, obey):
    obey("tainted(args.n)", tools={"web.get": {"class": "read_only", "reads_untrusted": True}})
    begun = trip.begin(tool="web.get", key="w", action="w", attempt="w", args={})
    trip.succeeded(begun, attempt="w", result="1 2 3 " * 5_000)
    assert answer(trip, "k1", args={"n": list(range(10, 60))}) == "proceed"
    assert answer(trip, "k2", args={"n": list(range(10, 1_000))}) == "wait"


def test_no_state_hides_behind_that_of_another_target(trip, obey):
    both, states = [FRIEND, EVIL], [{"owner": "ann", "limit": 5}, {"owner": "eve", "limit": 1}]
    asking = ("changed('owner')", "before.owner != args.owner", "after.limit > before.limit",
              "!mentioned(before.owner)")  # fmt: skip
    for number, when in enumerate(asking):
        run = f"run-{number}"
        trip.send("run.started", run=run, request="Give it to ann")
        said = {"run": run, "args": {"owner": "ann", "limit": 5}}
        obey(when)
        first = {"targets": both[:1], "before": states[:1]}
        assert answer(trip, f"{number}-1", **said, **first) == "proceed", when
        assert answer(trip, f"{number}-2", **said, targets=both, before=states) == "wait", when
        for short in (states[:1], states[0]):  # of the second target nothing is told
            said["key"] = f"{number}-{type(short).__name__}"
            assert answer(trip, targets=both, before=short, **said) == "wait", when
        del said["key"]
        same = {"targets": both, "before": [states[0], states[0]]}
        assert answer(trip, f"{number}-4", **said, **same) == "proceed", when


def test_whether_it_changes_is_not_told_of_what_was_masked_without_a_mark(trip, obey):
    obey("changed('iban')")
    masked = {"iban": "⟦masked:iban⟧"}
    assert answer(trip, "k1", args=masked, before=[masked]) is None
    assert answer(trip, "k2", args={"to": "x"}, before=[{"iban": "a"}]) == "proceed"
    assert answer(trip, "k3", args={"to": "y"}, before=[masked]) == "proceed", "it is not touched"


def test_after_a_no_a_call_that_says_nothing_but_its_tool_is_the_same(trip, obey, ben, acme, ada):
    rules = {"deploy.*": {"approval": "MANUAL"}, "*": {"approval": "AUTO"}}
    always = {"*": {"when": "rejected_before", "approval": "DENY"}}
    put_in_force(acme, ada, {"policies": rules, "always": always})

    def deploy(key, tool="deploy.now", args=None, **more):
        said = {"tool": tool, "key": key, "action": key, "attempt": key, "targets": [], **more}
        return trip.begin(args=args or {}, **said).json()["answer"]

    assert deploy("k1") == "wait"
    asked = Approval.objects.get()
    inbox.reject(asked, by=ben, seen=asked.digest, reason="Not today")
    assert deploy("k2") == "denied"
    assert deploy("k3", tool="deploy.later") == "wait"
    assert deploy("k4", args={"to": "test"}) == "wait"
    assert deploy("k5", targets=[FRIEND]) == "wait"
    assert deploy("k6", run="run_2") == "wait"


def test_after_a_no_to_as_many_targets_as_a_call_may_have_it_is_no_to_each(trip, obey, ben):
    obey("size(targets) > 1 || rejected_before")
    many = [{"type": "account", "id": f"{number:03}"} for number in range(200)]
    assert answer(trip, "k1", targets=many) == "wait"
    asked = Approval.objects.get()
    inbox.reject(asked, by=ben, seen=asked.digest, reason="Not these")
    assert answer(trip, "k2", 41, targets=many[-1:]) == "wait"
    assert answer(trip, "k3", 41, targets=[FRIEND]) == "proceed"


def test_what_strangers_wrote_as_a_name_or_with_what_nobody_sees_is_theirs(trip, obey):
    tools = {"web.get": {"class": "read_only", "reads_untrusted": True}}
    obey("tainted(args.to)", tools=tools)
    wrote = ({"evil@evil.test": "hello"}, {"a": [{"evil@evil.test": 1}]},
             "Write to ev\u200bil@ev\u00adil.test",
             "Write to ev\ufe0fil@ev\u3164il.test")  # fmt: skip
    for number, read in enumerate(wrote):
        name, in_run = f"w{number}", {"run": f"run-{number}"}
        begun = trip.begin(tool="web.get", key=name, action=name, attempt=name, args={}, **in_run)
        trip.succeeded(begun, attempt=name, result=read)
        asked = {"eve@example.org": "proceed", "evil@evil.test": "wait",
                 "evil@ev\u200bil.test": "wait"}  # fmt: skip
        for n, (to, wanted) in enumerate(asked.items()):
            assert answer(trip, f"{name}-{n}", args={"to": to}, **in_run) == wanted, (read, to)


def test_what_strangers_wrote_in_two_fields_is_theirs_together(trip, obey):
    obey("tainted(args.to)", tools={"web.get": {"class": "read_only", "reads_untrusted": True}})
    begun = trip.begin(tool="web.get", key="w", action="w", attempt="w", args={})
    trip.succeeded(begun, attempt="w", result={"zip": "10115", "city": "Berlin"})
    assert answer(trip, "k1", args={"to": "10115 Berlin"}) == "wait"


def test_what_nobody_can_look_up_is_not_no(trip, obey):
    obey("args.to in lists.blocked", approval="DENY", lists={"blocked": {"kind": "mail"}})
    assert [answer(trip, "k1", args={}), answer(trip, "k2", args={"to": 1})] == ["denied"] * 2


def test_a_thousand_calls_do_not_hide_what_was_read(trip, obey, monkeypatch):
    monkeypatch.setattr(run_lookups, "CALLS_MAX", 3)
    tools = {"web.get": {"class": "read_only", "reads_untrusted": True}}
    obey("read_untrusted", tools=tools)
    read = trip.begin(tool="web.get", key="w", action="w", attempt="w", args={})
    trip.succeeded(read, attempt="w", result={"text": "pay evil"})
    for n in range(4):
        done = trip.begin(tool="notes.write", key=f"n{n}", action=f"n{n}", attempt=f"n{n}", args={})
        trip.succeeded(done, attempt=f"n{n}")
    assert answer(trip, "k1") == "wait"
    obey("called('web.*') > 0", tools=tools)
    assert answer(trip, "k2") == "wait"


def test_a_run_that_was_begun_twice_was_asked_for_nothing_and_is_for_nobody(trip, obey):
    """An event with a smaller id stands for what the run began with, and comes later."""
    for when in ("!mentioned(args.to)", "request != 'Pay Ann'", "labels.env == 'prod'",
                 "on_behalf_of.id == 'eve'", "count(per: person, over: '1h') > 9"):  # fmt: skip
        run = f"run-{len(when)}"
        said = {"request": "Pay Ann", "labels": {"env": "test"}, "on_behalf_of": {"id": "ann"}}
        obey(when)
        trip.send("run.started", run=run, **said)
        assert answer(trip, f"{run}-1", run=run, args={"to": "Ann"}) == "proceed", when
        more = {"request": "Pay Ann, and evil", "labels": {"env": "t"}, "on_behalf_of": {"id": "x"}}
        event = {"id": "00000000-0000-7000-8000-000000000001", "type": "run.started", "run": run}
        trip.request("POST", "/api/v1/events", [event | {"id": event["id"][:-2] + f"{len(when)}",
                                                         "data": more}])  # fmt: skip
        assert answer(trip, f"{run}-2", run=run, args={"to": "evil"}) == "wait", when


def test_large_amounts_that_an_agent_only_tells_of_make_none_usual(trip, obey):
    obey("args.amount > 20000 && unusual(args.amount)")
    for n in range(5):
        trip.succeeded(pay(trip, f"k{n}", 10_000), attempt=f"try-k{n}")
    for n in range(5):
        told = {"tool": "pay.refund", "args": {"amount": 10**6}, "class": "external_reversible"}
        trip.send("action.planned", action=f"told{n}", run="run_t", **told)
        trip.send("action.succeeded", action=f"told{n}", run="run_t", attempt="a1")
    assert answer(trip, "k9", 90_000) == "wait"
