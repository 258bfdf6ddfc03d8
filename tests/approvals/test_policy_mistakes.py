"""Mistakes in a policy: each in its place, in JSON and in YAML, and none that costs the desk."""

import json
import re

import pytest
import yaml

from approvals.policy import Invalid, ToolCall, judge, load, load_new

PLACE = re.compile(r"^line \d+, column \d+: ")


def told(source, read=load):
    with pytest.raises(Invalid) as refused:
        read(source)
    return [str(problem) for problem in refused.value.problems]


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ('{"policies": {\n  "a": {"risk": "LOO"}}}', "line 2, column 9: policies.a.risk"),
        ("policies:\n  a:\n    risk: LOO\n", "line 3, column 5: policies.a.risk"),
        ('{"agentSafety": {"policies":\n\t{"a": {"risk": 3}}}}', "line 2, column 9: agentSafety"),
        ('{"policies": {"a": {},\n "a": {}}}', "line 2, column 2: “a” stands twice"),
        ("policies:\n  a: {}\n  a: {}\n", "line 3, column 3: “a” stands twice"),
        ('{"policies": {\n"a": {"expires": "1s"}}}', "line 2, column 7: policies.a.expires"),
        ('{"policies": {"\\ud83d\\ude00": {\n"risk": 1}}}', "line 2, column 1: policies."),
        ('{"due": {"low":\n1e999}}', "line 1, column 10: due.low: this number is too large"),
        ('{"due": {"low": NaN}}', "line 1, column 10: due.low: this number"),
        ("due:\n  low: .inf\n", "line 2, column 3: due.low: this number is too large"),
        ('{"policies": {"a": {"words": "\\ud800"}}}', "line 1, column 21: policies.a.words"),
        ('{"policies": {"a": {"words": "\\u0000"}}}', "line 1, column 21: policies.a.words"),
        ('policies:\n  "a\\0b": {}\n', "line 2, column 3: policies."),
        ("agentSafety: {}\nunknownTools: ASK", "line 2, column 1: unknownTools: stands beside"),
        ('{"agentSafety":\n null}', "line 1, column 2: agentSafety: an object is wanted"),
        ('{"policies": {"a": {"risk": "LOW",}}}', "line 1, column 35: not JSON"),
        ("policies:\n  a: {risk: LOW\n", "line 3, column 1: not YAML"),
        ("[" * 30 + "]" * 30, "line 1, column 25: more than 24 levels deep"),
        (
            '{"policies": {"a": [{}, {\n"requires": [{"group": "x"}, {"count": 0}]}]}}',
            "line 2, column 31: policies.a[1].requires[1].count",
        ),
    ],
)
def test_a_mistake_is_told_with_line_and_column(source, place):
    assert told(source)[0].startswith(place)


def test_several_mistakes_are_told_at_once_in_the_plain_form_of_the_field():
    document = {"agentSafety": {"policies": {"a": {"risk": "HUGE"}}, "unwind": {"strategy": "UP"}}}
    for source in (json.dumps(document, indent=1), yaml.safe_dump(document)):
        found = told(source)
        assert len(found) == 2
        assert all(PLACE.match(one) for one in found)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ('pay: {when: "args.amount = 5"}', "at 1:13 of the expression: .*; == compares"),
        ('pay: {when: "args.amount > 5 and !mentioned(args.to)"}', "; and is &&, or is ||"),
        ('pay: {when: "not mentioned(args.to)"}', "a question; and is &&, or is ||, not is !"),
        ('pay: {when: "args.amount > 1.000,00"}', "; a number is digits and a point alone"),
        ('pay: {when: "args.money == “EUR”"}', "; quotation marks are straight"),
        ('pay: {when: "{{args.amount}} > 5"}', "; a name stands by itself"),
        ("""pay: {when: 'sum(args.n, per="agent", over="24h") > 5'}""", "is written per: agent"),
        ('pay: {when: sum(args.n, per: agent, over: "24h") > 5}', "“:” or “,” in it stands in"),
        ("pay: {when: !mentioned(args.to)}", "line 2, .* begins with “!” stands in quotes"),
        ("pay:\n    when: !mentioned(args.to)", "line 3, .* begins with “!” stands in quotes"),
        ("*: {approval: DENY}", "line 2, column 4: not YAML: .* a glob that begins with “\\*”"),
        ("*x: {approval: DENY}", "line 2, column 3: anchors .* a glob that begins with “\\*”"),
        ("\tpay: {approval: DENY}", "line 2, column 3: not YAML: .*; lines begin with spaces"),
        ("pay: {requires: [finance]}", "a team is named as {group: finance}"),
    ],
)
def test_what_somebody_writes_who_has_another_language_in_mind_is_told_as_it_is_here(rule, words):
    assert re.search(words, told(f"policies:\n  {rule}\n", load_new)[0])


@pytest.mark.parametrize(
    "glob", ["^pay", "pay.(a|b)", "pay.{a,b}", "pay[.]a", "pay.a, pay.b", " a"]
)
def test_a_glob_of_another_language_is_refused_for_it_would_let_pass_in_silence(glob):
    document = {"policies": {glob: {"approval": "DENY"}}}
    load(document)
    assert ": a glob has * and ? alone: write a rule" in told(json.dumps(document), load_new)[0]


def test_a_mistake_in_a_condition_names_its_place_there_too():
    [mistake] = told('policies:\n  a:\n    when: "args.x >\\n > 3"\n')
    assert mistake.startswith("line 3, column 5: policies.a.when: at 2:2 of the expression")


LETTERS = "a" * 60_000


@pytest.mark.parametrize(
    "condition",
    [
        "args.s.matches('(a{1,100}){1,90}b')",  # nine seconds, once
        "args.s.matches('((a\\x7b1,90\\x7d)\\x7b1,100\\x7d)b')",  # the same, its braces by number
        "args.s.matches('((a\\u007b1,90}){1,100})b')",
        "args.s.matches(args.p)",
        "matches(args.s, 'a')",
        "args.s.matches('" + "a?" * 101 + "')",
        "args.l.all(x, x.matches('b'))",
    ],
)
def test_a_pattern_that_could_take_for_ever_is_refused(condition):
    assert "at 1:" in told({"policies": {"a": {"when": condition}}})[0]


def test_a_usual_pattern_is_read():
    document = {"policies": {"a": {"when": r"args.to.matches('^[a-z]{2,8}@acme\\.example$')"}}}
    document["policies"]["a"]["approval"] = "DENY"
    assert (
        judge(load(document), ToolCall(tool="a", args={"to": "eve@acme.example"})).approval
        == "DENY"
    )
    assert (
        judge(load(document), ToolCall(tool="a", args={"to": "eve@evil.example"})).approval
        == "AUTO"
    )


@pytest.mark.parametrize(
    ("condition", "args"),
    [
        ("args.l.map(x, args.l) == []", {"l": ["z"] * 400}),  # four seconds each
        ("args.l.map(x, args.s) == []", {"l": ["z"] * 900, "s": LETTERS}),
        ("args.l.map(x, [x,x,x,x]).map(x, [x,x,x,x]).size() == 0", {"l": ["z"] * 300}),
        ("args.l.all(x, " + " && ".join(["args.l == args.l"] * 99) + ")", {"l": ["z"] * 900}),
        (f"args.l.map(x, args.l) == [] && args.n in {[*range(30)]}", {"l": ["z"] * 99, "n": "x"}),
    ],
)
def test_loops_that_would_cost_too_much_are_not_evaluated(condition, args):
    """So a rule that asks or denies is met, and one that allows is not."""
    answers = {
        verdict: judge(
            load({"policies": {"a": [{"when": condition, "approval": verdict}]}}),
            ToolCall(tool="a", args=args),
        ).rules[0]["glob"]
        for verdict in ("AUTO", "MANUAL", "DENY")
    }
    assert answers == {"AUTO": None, "MANUAL": "a", "DENY": "a"}


@pytest.mark.parametrize(
    ("condition", "args", "approval"),
    [
        ("args.to.exists(x, !x.endsWith('@acme.example'))", ["eve@evil.example"] * 1_000, "DENY"),
        ("args.to.all(x, x in ['a', 'b'])", ["a"] * 1_000, "DENY"),
        ("args.to.filter(x, x != 'a').size() > 2", ["b"] * 300, "DENY"),
        ("args.to.map(x, x.size()).exists(n, n > 5)", ["a"] * 300, "AUTO"),
    ],
)
def test_loops_over_what_people_send_are_evaluated(condition, args, approval):
    document = {"policies": {"a": {"when": condition, "approval": "DENY"}}}
    assert judge(load(document), ToolCall(tool="a", args={"to": args})).approval == approval


@pytest.mark.parametrize(
    ("condition", "place", "name"),
    [
        ("seen(args.x)", "1:1", "seen"),
        ("args.x > 3 ||\n args.y.seen()", "2:9", "seen"),
        ("'seen(' == args.x || max(args.x, 2) > 3", "1:22", "max"),
        ("args.x > 3 && amuont > 3", "1:15", "amuont"),
    ],
)
def test_a_function_or_a_name_that_is_unknown_is_refused_where_it_stands(condition, place, name):
    document = {"policies": {"pay": {"when": condition, "approval": "MANUAL"}}}
    [mistake] = told(json.dumps(document), load_new)
    assert f"policies.pay.when: at {place} of the expression: “{name}” is " in mistake


def test_a_kept_policy_with_an_unknown_function_still_loads_and_its_condition_counts_as_met():
    for approval in ("MANUAL", "DENY"):
        policy = load({"policies": {"pay": {"when": "seen(args.x)", "approval": approval}}})
        assert judge(policy, ToolCall(tool="pay")).approval == approval


@pytest.mark.parametrize(
    "condition",
    [
        "size(args.x) > 2 && args.x.startsWith('a') && args.x.matches('a+')",
        "args.x.contains('b') || args.x.endsWith('c') || string(1) == '1'",
        "int('1') == 1 && uint('1') == 1u && double('1') == 1.0 && bytes('a') == b'a'",
        "has(args.x) && [1, 2].exists(i, i in [1]) && type(1) == type(2) && dyn(1) == 1",
        "timestamp('2024-01-01T00:00:00Z').getDayOfWeek('UTC') == 1 || duration('1s') == args.x",
    ],
)
def test_every_function_that_the_evaluator_has_may_be_saved(condition):
    assert load_new({"policies": {"pay": {"when": condition}}})


@pytest.mark.parametrize(
    ("condition", "place", "mistake"),
    [
        ("args.x > 3 &&\n mentionned(args.to)", "at 2:2", "here; did you mean mentioned?"),
        ("requst == 'x'", "at 1:1", "“requst” is not known here; did you mean request?"),
        ("mentioned()", "at 1:11", "“mentioned” asks about a value"),
        ("mentioned(args.to, args.cc)", "at 1:20", "“mentioned” takes no further"),
        ("mentioned(arg.to)", "at 1:11", "“arg” is not known here; did you mean args?"),
        ("mentioned(args.to, by: 'x')", "at 1:20", "“by” is no option of “mentioned”"),
        ("mentioned(mentioned(args.to))", "at 1:11", "a question within another"),
        ("args.to.all(one, mentioned(one))", "at 1:18", "“mentioned” in a loop"),
        ("looked_up(args.to)", "at 1:11", '“looked_up” wants tools: by: "contacts.*"'),
        ("looked_up(args.to, by: [])", "at 1:20", "“by” is a glob of tools, or a list"),
        ("looked_up(args.to, by: 'a', or: known)", "at 1:29", "“or” is one of mentioned"),
        ("looked_up(args.to, by: 'a,b')", "at 1:20", "“by” is a glob of tools, or a list"),
        ("looked_up(args.to, per: 'a')", "at 1:20", "no option of “looked_up”"),
        ("ask_0 == 1", "at 1:1", "names such as “ask_0” are the desk's own"),
        ("knows(args.to, by: 'agent')", "at 1:1", "“knows” is no function here"),
        (".seen(args.x)", "at 1:1", "“.seen” is no function here"),
        ("args.n > 1 && contains(args.x, 'y')", "at 1:15", "args.x.contains(…)"),
        ("args.x.int() > 1", "at 1:8", "“int” takes its value: int(args.x)"),
    ],
)  # fmt: skip
def test_a_question_that_is_written_wrongly_is_refused_where_it_stands(condition, place, mistake):
    document = {"policies": {"pay": {"when": condition, "approval": "MANUAL"}}}
    [found] = told(document, load_new)
    assert f"{place} of the expression: " in found
    assert mistake in found


def test_a_glob_by_which_nothing_can_be_looked_up_is_refused():
    tools = {"contacts.*": {"class": "read_only"}, "contacts.add": {"class": "internal_update"},
             "web.*": {"class": "read_only", "reads_untrusted": True}}  # fmt: skip

    def document(glob):
        rule = {"when": f"!looked_up(args.to, by: '{glob}')", "approval": "MANUAL"}
        return {"always": {"mail.send": rule}, "tools": tools}

    for glob in ("contacts.*", "contacts.find", "contacts.f*", "contact?.*", "*"):
        assert load_new(document(glob))
    for glob in ("contact.*", "contacts.add", "web.*", "web.get", "(contacts.a|b)"):
        load(document(glob))
        assert f"“{glob}” fits no tool of the catalogue" in told(document(glob), load_new)[0]


@pytest.mark.parametrize(
    ("condition", "place", "mistake"),
    [
        ('sum(args.amount, over: "24h")', "1:1", "is a number, and is compared with nothing"),
        ('known(target) || count(over: "1h")', "1:18", "is a number, and is compared with nothing"),
        ('(count(over: "1h")) > "3"', "1:2", "is a number, and stands beside a text"),
        ("looked_up(args.to, by: 'a') > 1", "1:1", "is true or false, and stands beside a number"),
        ("3 < mentioned(args.to)", "1:5", "is true or false, and stands beside a number"),
        ("rejected_before > args.n", "1:1", "is true or false, and “>” is for numbers"),
        ('known(args.to) == "yes"', "1:1", "is true or false, and stands beside a text"),
        ("request != 3", "1:1", "is a text, and stands beside a number"),
        ('sensitivity == "secret"', "1:1", "it is one of public, internal, confidential"),
        ('risk in ["high", "CRITICAL"]', "1:1", "did you mean critical?"),
        ('"readonly" == class', "1:1", "did you mean read_only?"),
        ('risk >= "high"', "1:1", 'say risk in ["high", "critical"]'),
        ('target.kind == "order"', "1:1", "“target” has no “kind”"),
        ('on_behalf_of.mail == "x"', "1:1", "it has id, name, contact"),
        ("args.amount > '100'", "1:13", "'100' is a text, and a number is neither"),
        ("args.n == 1 ||\n '1,000.50' <= args.amount", "2:13", "'1,000.50' is a text"),
        ("args.amount > true", "1:13", "nothing is above or below true"),
        ("args.amount < [5]", "1:13", "nothing is above or below a list"),
        ("args.to in [ ]", "1:9", "nothing stands in an empty list"),
        ('args.n == "x" && args.n > 5', "1:18", "“args.n” is “x” and is above 5, which is never"),
        ("args.b || (args.n > 5 && (5.0 >= args.n))", "1:26", "is above 5 and is at most 5.0"),
        ("class == 'draft' && class == 'read_only'", "1:21", "is “draft” and is “read_only”"),
        ("args.n == null && args.n > 3", "1:19", "is null and is above 3"),
        ("args.n == 5 && args.n != 5", "1:16", "is 5 and is not 5"),
        ('count(over: "1h") < 1', "1:1", "is at least 1 and counts this call: never below 1"),
        ('count(over: "1h") >= 1', "1:1", "is at least 1 and counts this call: always"),
        ('sum(args.n, over: "1h") < 0', "1:1", "is at least 0: never below 0"),
        ('-5 < sum(args.n, over: "1h")', "1:1", "is at least 0: always above -5"),
        ('sum(args.n, over: "1h") > 9 && sum(args.n, over: "1h") < 8', "1:32", "is never both"),
        ('sum(args.n, over: "24") > 9', "1:13", 'a time such as "30m", "24h"'),
        ("tool == 'a' || 'x' == [args.to][0]", "1:23", "an argument is compared by its name"),
        ("{'a': args.to} == {'a': 'x'}", "1:1", "an argument is compared by its name"),
    ],
)
def test_an_answer_that_is_used_as_what_it_is_not_is_refused_where_it_stands(
    condition, place, mistake
):
    with pytest.raises(Invalid) as refused:
        load_new({"policies": {"pay": {"when": condition, "approval": "MANUAL"}}})
    assert f"at {place} of the expression" in str(refused.value)
    assert mistake in str(refused.value)


@pytest.mark.parametrize(
    "condition",
    [
        "args.day > '2026-01-01' && args.day < '2026-01-01T12:00'", "args.n > 5 && args.n < 6",
        "args.n == 'x' || args.n > 5", "args.l[0] < 5 && args.l[0] > 7",
        "(args.to in ['a', 'b']) in [true]", "args.to in {target.id: 1}",
        "!(args.n == 1) && args.n == 2", "args.n == 1 ? args.n == 2 : args.n == 3", "args.n in [1]",
        'count(over: "1h") > 1 && sum(args.n, over: "1h") > 0', "args.n == -1 && args.n < 0",
        "args.l.exists(x, x == 1) && args.l.exists(x, x == 2)", "args.n == 0x10 && args.n == 16",
        "args.n == 1.5e3 && args.n >= 1500u", "args.s == '5' && args.s == \"5\" && args.s != ''",
        '(count(over: "1h") + 1) >= 3 && !known(args.to)', 'double(sum(args.n, over: "1h")) > 1.5',
        '3 < count(over: "1h") || known(args.to) == false', 'request.contains("a") && goal != "x"',
        'mentioned(args.to) ? args.n > 5 : called("mail.*") == 0', 'args.class == "other"',
        'risk in ["high", "critical"] && class != "draft"', 'labels.risk == "2" && args.risk > 3',
    ],
)  # fmt: skip
def test_answers_that_are_used_as_what_they_are_may_be_saved(condition):
    load_new({"policies": {"pay": {"when": condition, "approval": "MANUAL"}}})


@pytest.mark.parametrize(
    ("when", "approval"),
    [('risk == "HIGH"', "AUTO"), ("args.exists(place, one, args[one] == 'x')", "MANUAL")],
)
def test_a_kept_policy_that_would_be_refused_still_loads(when, approval):
    kept = {"policies": {"pay": {"when": when, "approval": "MANUAL"}}}
    assert (
        judge(load(kept), ToolCall(tool="pay", action_class="internal_update")).approval == approval
    )


@pytest.mark.parametrize("path", ["tool", "targets.id", "key", "class", "outcome", "*", "a..b"])
def test_what_calls_are_judged_by_is_not_masked(path):
    """A call of `pay.out` whose tool was masked went past the rule for `pay.*`."""
    document = json.dumps({"audit": {"mask": ["args.card.*", "*.ssn", path]}})

    [mistake] = told(document, load_new)

    assert mistake.startswith("line 1, column ")
    assert "audit.mask[2]" in mistake
    load(document)  # one that is in force goes on


@pytest.mark.parametrize(
    ("document", "mistake"),
    [
        ({"hours": {"from": "24:00", "to": "18:00"}}, "hours.from: a day ends at 24:00"),
        ({"hours": {"from": "25:00", "to": "18:00"}}, "hours.from: a time of the day"),
        ({"hours": {"from": "08:00", "to": "18:00", "days": []}}, "hours.days: name the days"),
        (
            {"policies": {"a": {"expires": "30m", "escalate": {"after": "30m", "group": "x"}}}},
            "escalate: the question “expires” before that",
        ),
        ({"policies": {"a": {"bounded": {"uses": -1, "for": "1d"}}}}, "a whole number from 1"),
    ],
)
def test_what_could_never_come_about_is_refused(document, mistake):
    assert any(mistake in one for one in told(document, load_new))


def test_what_holds_always_asks_or_denies():
    for approval in ({}, {"approval": "AUTO"}):
        [mistake] = told({"always": {"*": {"when": "rejected_before", **approval}}})
        assert "under “always” a rule says MANUAL or DENY" in mistake
    load_new({"always": {"*": {"when": "rejected_before", "approval": "MANUAL"}}})
