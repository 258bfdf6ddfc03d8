"""The policy document: read with every mistake in its place, and judged as docs/policy.md says."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amends.protocol.vocabulary import CLASSES, RISKS
from approvals.policy import (
    CannotEvaluate,
    Invalid,
    RequiredApprovers,
    ToolCall,
    judge,
    load,
    strictest,
)
from approvals.policy.conditions import QUESTIONS, WRITTEN
from approvals.policy.decisions import VERDICTS

FIELDS_OWN_FORM = """
{"agentSafety": {
  "policies": {
    "github.delete_repository": {"risk": "CRITICAL", "approval": "MANUAL", "compensation": "NONE"},
    "crm.update_contact":       {"risk": "MEDIUM", "approval": "AUTO", "compensation": "SNAPSHOT"},
    "email.send_notification":  {"risk": "HIGH", "approval": "AUTO", "compensation": "CORRECTION"},
    "slack.post_message":       {"risk": "LOW", "approval": "AUTO", "compensation": "DELETE"},
    "payments.refund": [
      {"when": "args.amount > 100000", "risk": "HIGH", "approval": "MANUAL", "expires": "30m",
       "requires": [{"group": "finance", "count": 1}, {"group": "leads", "count": 1}]},
      {"risk": "MEDIUM", "approval": "AUTO"}]},
  "twins": {
    "crm.update_contact": {"connection": "crm", "operation": "restore",
                           "args": {"id": "target.id", "to": "before"}}},
  "unwind": {"strategy": "LIFO", "onCompensationFailure": "ALERT_AND_CONTINUE", "timeout": "30s"},
  "audit": {"captureIntent": true, "captureSnapshot": true, "retention": "90d",
            "mask": ["args.card.*"]}}}
"""


def judged(document, tool, **call):
    return judge(load(document), ToolCall(tool=tool, **call))


def test_the_format_of_the_field_is_accepted_as_it_is():
    policy = load(FIELDS_OWN_FORM)

    assert policy.audit.mask == ("args.card.*",)
    assert policy.halt_on_failure is False
    assert judge(policy, ToolCall(tool="github.delete_repository")).fresh_login is True
    twin = policy.twin("crm.update_contact", "contact")
    facts = {"target": {"type": "contact", "id": "c7"}, "before": {"name": "Eve"}}
    assert twin.arguments(facts) == {"id": "c7", "to": {"name": "Eve"}}


def test_a_large_refund_asks_two_teams_and_a_small_one_nobody():
    large = judged(FIELDS_OWN_FORM, "payments.refund", args={"amount": 100001})
    small = judged(FIELDS_OWN_FORM, "payments.refund", args={"amount": 5})

    assert [(need.team, need.count) for need in large.requires] == [("finance", 1), ("leads", 1)]
    assert (large.approval, large.risk, large.expires_seconds) == ("MANUAL", "high", 1800)
    assert small.approval == "AUTO"


def test_a_condition_that_cannot_be_evaluated_is_read_carefully():
    without_amount = judged(FIELDS_OWN_FORM, "payments.refund", args={})
    assert without_amount.approval == "MANUAL"

    allows = {"policies": {"a": [{"when": "args.small < 5", "approval": "AUTO"}], "*": {
        "approval": "DENY"}}}  # fmt: skip
    assert judged(allows, "a", args={}).approval == "DENY"


def test_the_most_specific_glob_wins_and_among_equals_the_strictest():
    document = {
        "policies": {
            "*": {"approval": "DENY"},
            "crm.*": {"approval": "AUTO"},
            "crm.delete": [{"approval": "AUTO"}, {"approval": "MANUAL"}],
        }
    }
    assert judged(document, "mail.send").approval == "DENY"
    assert judged(document, "crm.read").approval == "AUTO"
    assert judged(document, "crm.delete").approval == "MANUAL"


@pytest.mark.parametrize(
    ("args", "approval"),
    [
        ({"to": "friend"}, "MANUAL"),
        ({"to": ["friend"]}, "DENY"),
        ({"to": "evil"}, "DENY"),
        ({"to": ["evil"]}, "DENY"),
        ({"to": ["x"] * 40, "cc": ["x"]}, "DENY"),
        ({"to": ["evil"], "amount": 500}, "MANUAL"),
        ({"to": "x"}, "AUTO"),
        ({}, "MANUAL"),
    ],
)
def test_where_another_shape_keeps_from_telling_whether_a_rule_fits_a_wider_one_may_deny(
    args, approval
):
    narrow = {"when": "args.to == 'friend' || args.amount > 100", "approval": "MANUAL"}
    wide = [{"when": "args.to in ['evil', 'friend']", "approval": "DENY"}, {"approval": "AUTO"}]
    document = {"policies": {"pay.refund": narrow, "pay.*": wide}}
    found = judged(document, "pay.refund", args={"amount": 1} | args)
    assert found.approval == approval
    assert found.requires == ((RequiredApprovers(None, 1),) if approval == "MANUAL" else ())


@pytest.mark.parametrize(
    ("when", "args"),
    [
        ("args.amount > 100", {"amount": "5"}),
        ("args.note.startsWith('!')", {"note": ["a"]}),
        ("int(args.amount) > 100", {"amount": [5]}),
        ("args.urgent", {"urgent": "false"}),
    ],
)
def test_a_value_of_another_kind_hides_no_wider_rule_either(when, args):
    wide = {"when": "args.to == 'evil'", "approval": "DENY"}
    document = {"policies": {"pay.refund": {"when": when, "approval": "MANUAL"}, "pay.*": wide}}
    assert judged(document, "pay.refund", args={"to": "evil"} | args).approval == "DENY"
    assert judged(document, "pay.refund", args={"to": "a"} | args).approval == "MANUAL"


@pytest.mark.parametrize(
    ("said", "trusted", "approval", "risk"),
    [
        ("read_only", True, "AUTO", "low"),
        ("read_only", False, "AUTO", "medium"),
        ("internal_update", False, "AUTO", "medium"),
        ("external_irreversible", False, "MANUAL", "high"),
        ("", False, "AUTO", "medium"),
        ("nonsense", False, "AUTO", "medium"),
    ],
)
def test_without_a_rule_the_class_decides(said, trusted, approval, risk):
    found = judged({}, "some.tool", action_class=said, trusted=trusted)
    assert (found.approval, found.risk) == (approval, risk)


def test_a_tool_that_nobody_listed_is_asked_about_where_unknown_tools_ask():
    document = {
        "policies": {"crm.*": {"when": "args.n > 9", "approval": "DENY"}},
        "tools": {"payments.transfer": {"class": "external_reversible"}},
        "unknownTools": "ASK",
    }
    lookalike = judged(document, "p\u0430yments.transfer", action_class="read_only", trusted=True)

    assert (lookalike.approval, [str(need) for need in lookalike.requires]) == (
        "MANUAL", ["1 person who may approve"],
    )  # fmt: skip
    assert lookalike.why == (
        "No rule lists this tool, “p⟦U+0430⟧yments.transfer”, and unknown tools ask;"
        " read only is low risk"
    )
    assert judged(document, "payments.transfer").approval == "AUTO"
    assert judged(document, "crm.note", args={"n": 1}).approval == "AUTO"  # listed, and not met
    assert judged(document, "airline.restore", is_step=True).approval == "AUTO"
    assert judged(document | {"unknownTools": "ALLOW"}, "new").approval == "AUTO"


@pytest.mark.parametrize("name", ["files.ѕhare", "files.Share", "files_share", "fi1es.wipe"])
def test_a_tool_that_only_looks_like_a_listed_one_does_not_go_on_by_a_wider_glob(name):
    document = {
        "unknownTools": "ASK",
        "policies": {"f*": {"approval": "AUTO"}, "files.share": {"approval": "DENY"}},
        "always": {"files.wipe": {"approval": "DENY"}},
    }
    assert judged(document, name).approval == "MANUAL"
    assert "unknown tools ask" in judged(document, name).why
    assert judged(document, "files.move").approval == "AUTO"
    assert judged(document | {"policies": {"f*": {"approval": "DENY"}}}, name).approval == "DENY"
    assert judged(document | {"unknownTools": "ALLOW"}, name).approval == "AUTO"


ASKED_OF_A_STEP = [
    "args.iban in lists.payees", "known(args.iban)", "!known(args.iban)", "mentioned(args.iban)",
    "rejected_before", "!rejected_before", "working_hours", "lookalike(args.iban)",
    'sum(args.amount, per: target, over: "24h") < 500', "on_behalf_of.id == 'mia'",
    'count(over: "1h") < 500', "tainted(args.iban)", "!tainted(args.iban)", "!read_untrusted",
    'called("bank.*") == 0', "unusual(args.amount)", 'changed("iban")', '!changed("iban")',
    'goal == "pay"', 'request != "x"', "before.iban == args.iban", "labels.env != 'prod'",
    "looked_up(args.iban, by: 'bank.*')", "!looked_up(args.iban, by: ['bank.*'])",
]  # fmt: skip


def test_each_question_is_tried_on_a_step():
    told = " ".join(ASKED_OF_A_STEP)
    assert [one for one in (*QUESTIONS, *WRITTEN) if one not in told] == []


@pytest.mark.parametrize("question", ASKED_OF_A_STEP)
def test_what_a_rule_asks_beyond_a_step_lets_no_step_pass_and_asks_or_denies(question):
    """Nothing is looked up for a step of a plan: it would be old when the step is made."""

    def becomes(approval, action_class):
        document = {
            "policies": {"bank.pay": {"when": question, "approval": approval}},
            "lists": {"payees": {"kind": "iban"}},
            "hours": {"zone": "Europe/Berlin", "days": ["mon"], "from": "08:00", "to": "18:00"},
        }
        step = {"args": {"iban": "DE1", "amount": 5}, "action_class": action_class}
        return judged(document, "bank.pay", is_step=True, **step).approval

    assert becomes("AUTO", "external_irreversible") == "MANUAL", "as without the rule"
    assert becomes("MANUAL", "external_reversible") == "MANUAL"
    assert becomes("DENY", "external_reversible") == "DENY"


def test_law_9b_an_agent_cannot_lower_the_class_of_the_catalogue():
    document = {"tools": {"mail.*": {"class": "external_irreversible"}}}

    found = judged(document, "mail.send", action_class="read_only", risk="low", trusted=True)

    assert (found.action_class, found.approval, found.risk) == (
        "external_irreversible", "MANUAL", "high",
    )  # fmt: skip


def test_a_class_that_the_wire_raises_brings_its_risk_whatever_the_catalogue_says_of_the_lower():
    policy = load({"tools": {"crm.*": {"class": "internal_update", "risk": "LOW"}}})

    def asked(action_class):
        return judge(
            policy, ToolCall(tool="crm.purge", args={}, action_class=action_class)
        ).approval

    assert asked("internal_update") == "AUTO"
    assert asked("external_irreversible") == "MANUAL"


def test_risk_on_the_wire_raises_and_an_explicit_auto_stands():
    assert judged({}, "some.tool", risk="critical").approval == "MANUAL"
    document = {"policies": {"some.*": {"risk": "LOW", "approval": "AUTO"}}}
    found = judged(document, "some.tool", risk="critical")
    assert (found.approval, found.risk) == ("AUTO", "critical")


def test_a_rule_without_a_word_asks_from_high_up():
    document = {"policies": {"a": {"risk": "HIGH"}, "b": {"risk": "MEDIUM"}}}
    assert judged(document, "a").approval == "MANUAL"
    assert judged(document, "b").approval == "AUTO"


RULES = {"a": {"approval": "AUTO"}, "b": {"approval": "AUTO", "verify": "NONE"}}
CHECKED = {"approval": "AUTO", "verify": "PERSON"}


@pytest.mark.parametrize(
    ("document", "verified"),
    [
        ({"policies": RULES}, ""),
        ({"policies": RULES | {"a": CHECKED}}, "a"),
        ({"policies": RULES | {"*": [CHECKED | {"when": "args.to == 'x'"}]}}, "abc"),
        ({"policies": RULES, "always": {"b": CHECKED | {"approval": "MANUAL"}}}, "b"),
        ({"policies": RULES, "verify": "AGENT"}, "abc"),
    ],
    ids=["nobody", "a rule", "a wider rule", "a rule that always holds", "the whole policy"],
)
def test_what_nothing_asks_to_be_verified_is_known_without_a_judgement(document, verified):
    policy = load(document)

    assert "".join(tool for tool in "abc" if policy.may_verify(tool)) == verified
    asked = {tool for tool in "abc" if judge(policy, ToolCall(tool=tool)).verify != "NONE"}
    assert asked <= set(verified)


def test_a_plan_is_as_strict_as_its_strictest_step():
    steps = [
        judged(FIELDS_OWN_FORM, "payments.refund", args={"amount": 100001}),
        judged(FIELDS_OWN_FORM, "github.delete_repository"),
        judged(FIELDS_OWN_FORM, "crm.update_contact"),
    ]
    plan = strictest(steps)

    assert (plan.approval, plan.risk, plan.fresh_login) == ("MANUAL", "critical", True)
    assert sorted(need.team or "" for need in plan.requires) == ["finance", "leads"]
    assert len(plan.rules) == len({str(rule) for step in steps for rule in step.rules})


def test_every_mistake_is_told_with_its_place():
    with pytest.raises(Invalid) as refused:
        load(
            '{"agentSafety": {"policies": {\n "a.*": {"aproval": "MANUAL",\n  "when": "args..x"}}}}'
        )

    told = [(problem.line, problem.path, problem.message) for problem in refused.value.problems]
    assert told[0][:2] == (2, 'agentSafety.policies."a.*".aproval')
    assert "did you mean approval?" in told[0][2]
    assert told[1][:2] == (3, 'agentSafety.policies."a.*".when')


@pytest.mark.parametrize(
    "source",
    [
        "",
        "policies: [",
        "policies:\n  a: &x {risk: LOW}\n  b: *x",
        "policies:\n  a: {risk: LOW}\n  a: {risk: HIGH}",
        '{"policies": {"a": {}, "a": {}}}',
        '{"due": {"low": NaN}}',
        "due: {low: 2026-01-01}",
        "policies: !!python/object:os.system {}",
        "[" * 100 + "]" * 100,
        "a: " * 5,
        '{"policies": {"a*b*c*d*e*f*g*h": {}}}',
        '{"policies": {"": {}}}',
        '{"policies": {"a": null}}',
        '{"policies": {"a": {"requires": [{"group": "x", "count": 0}]}}}',
        '{"policies": {"a": {"approval": "AUTO", "requires": [{"group": "x"}]}}}',
        '{"unwind": {"strategy": "FIFO"}}',
        '{"twins": {"a": {"operation": "restore"}}}',
        '{"twins": {"a": {"connection": "c", "operation": "o", "args": {"x": "os.environ"}}}}',
        "x" * (256 * 1024 + 1),
        "due: {low: " + "9" * 5000 + "}",
        '{"policies": {"p\\ud800": {"approval": "AUTO"}}}',
    ],
)
def test_what_is_no_policy_is_refused_and_never_breaks(source):
    with pytest.raises(Invalid) as refused:
        load(source)

    assert str(refused.value).encode(), "it can be shown on the page"


@pytest.mark.parametrize(
    "condition",
    [
        "args.l.all(x, args.l.all(y, x > y))",
        "args.l . all (x, args.l.map(y, y).size() > 0)",
        'args.l.all(x, r"\\" == "" || args.l.all(y, y > 0))',
        "(" * 50 + "1" + ")" * 50,
        "args.l.all(x, x in [" + "1," * 1000 + "1])",
        "unknown_fact == 1",
    ],
)
def test_a_condition_that_could_take_for_ever_is_refused(condition):
    with pytest.raises(Invalid):
        load({"policies": {"a": {"when": condition}}})


def test_a_loop_over_too_many_facts_counts_as_not_evaluated():
    document = {"policies": {"a": {"when": "args.l.all(x, x in args.l)", "approval": "MANUAL"}}}
    assert judged(document, "a", args={"l": list(range(5000))}).approval == "MANUAL"


def test_yaml_and_json_are_the_same_policy():
    written = load("policies:\n  a.*: {risk: HIGH, approval: MANUAL}\n")
    assert (
        written.digest == load('{"policies": {"a.*": {"risk":"HIGH","approval":"MANUAL"}}}').digest
    )


def test_a_condition_on_an_integer_beyond_64_bits_is_not_evaluated_so_the_call_is_held():
    rounds_to_it = 2**70 + 1

    assert judged({"policies": {"a": {"when": "args.n > 5.0", "approval": "MANUAL"}}}, "a",
                  args={"n": rounds_to_it}).approval == "MANUAL"  # fmt: skip
    assert judged({"policies": {"a": {"when": "args.n < 5.0", "approval": "MANUAL"}}}, "a",
                  args={"n": rounds_to_it}).approval == "MANUAL"  # fmt: skip


@pytest.mark.parametrize("also", [
    "true", "args . b == 2", "size(args) == 2", "args.size() == 2", "'b' in args",
    'args["b"] == 2', "(args).b == 2", "args.exists(one, one == 'b')", "has(args.b)",
    "[1].all(args, args == 1)", "{'x': args}.x.b == 2", "args == {'a': 1, 'b': 2}",
])  # fmt: skip
def test_a_condition_reads_of_a_call_what_it_names_or_all_of_it(also):
    when = f"args.a == 1 && !has(args.c) && {also}"
    document = {"policies": {"a": {"when": when, "approval": "AUTO"}, "*": {"approval": "MANUAL"}}}
    found = load(document)

    def answer(**args):
        return judge(found, ToolCall(tool="a", args=args)).approval

    assert (answer(a=1, b=2), answer(a=2, b=2)) == ("AUTO", "MANUAL")
    assert answer(a=1, b=2**70 + 1) == ("AUTO" if also == "true" else "MANUAL"), "of b"


def test_a_twin_takes_an_integer_of_any_size_from_its_facts_with_every_digit():
    document = {
        "twins": {"t": {"connection": "c", "operation": "o",
                        "args": {"to": "before", "id": "before.doc.id"}}}
    }  # fmt: skip
    before = {"doc": {"id": 2**70 + 1, "list": [-(10**40)]}}

    args = load(document).twin("t", "x").arguments({"before": before})

    assert args == {"to": before, "id": 2**70 + 1}


def test_a_twin_without_its_facts_says_so():
    twin = load(FIELDS_OWN_FORM).twin("crm.update_contact", "contact")
    with pytest.raises(CannotEvaluate, match=r"id is not known"):
        twin.arguments({"target": {}})
    document = {"twins": {"t": {"connection": "c", "operation": "o",
                                "args": {"to": "'Re: ' + args.subject"}}}}  # fmt: skip
    with pytest.raises(CannotEvaluate) as refused:
        load(document).twin("t", "x").arguments({"args": {}})
    assert str(refused.value) == "'Re: ' + args.subject: subject is not known"


@given(
    verdicts=st.lists(st.sampled_from(VERDICTS), min_size=1, max_size=5),
    wire=st.sampled_from(["", *CLASSES]),
    risk=st.sampled_from(["", *RISKS]),
)
def test_neither_more_rules_nor_the_wire_ever_loosen_a_judgement(verdicts, wire, risk):
    document = {"policies": {"a": [{"approval": verdict} for verdict in verdicts]}}
    silent = judged(document, "a")
    loud = judged(document, "a", action_class=wire, risk=risk)

    assert silent.approval == max(verdicts, key=VERDICTS.index)
    assert VERDICTS.index(loud.approval) >= VERDICTS.index(silent.approval)
    assert RISKS.index(loud.risk) >= RISKS.index("medium") - 1


@given(
    asking=st.lists(st.sampled_from([None, True, False]), min_size=1, max_size=5),
    automatic=st.lists(st.sampled_from([None, True, False]), max_size=3),
    everywhere=st.booleans(),
)
def test_people_approve_their_own_only_where_every_rule_that_asks_lets_them(
    asking, automatic, everywhere
):
    """One lax rule beside a strict one lets nobody; a rule that asks nobody has no say in it."""

    def rule(approval, own):
        return {"approval": approval} | ({} if own is None else {"selfApproval": own})

    rules = [*(rule("MANUAL", own) for own in asking), *(rule("AUTO", own) for own in automatic)]
    document = {"policies": {"a": rules, "b": rules[0]}, "selfApproval": everywhere}
    lets = [everywhere if own is None else own for own in asking]

    one, other = judged(document, "a"), judged(document, "b")

    assert (one.approval, one.self_approval) == ("MANUAL", all(lets))
    assert strictest([one, other]).self_approval is all(lets)
    assert strictest([other, one]).self_approval is all(lets)


def test_the_example_of_the_guide_is_a_policy_and_means_what_it_says():
    guide = (Path(__file__).parents[2] / "docs" / "policy.md").read_text()
    source = guide.split("```yaml\n")[1].split("```")[0]

    large = judged(source, "payments.refund", args={"amount": 100001})
    assert [need.team for need in large.requires] == ["finance", "leads"]
    assert large.why == "Refunds above 1 000.00 need finance and a lead"
    assert judged(source, "mail.send", trusted=True).approval == "MANUAL"


def test_the_rules_that_hold_always_of_the_guide_are_a_policy():
    guide = (Path(__file__).parents[2] / "docs" / "policy.md").read_text()
    source = guide.split("```yaml\n")[4].split("```")[0]

    nobody_asked = judged(source, "payments.refund", args={"amount": 1, "account": "DE1"})
    assert nobody_asked.approval == "MANUAL"
    assert "Nobody asked for this account" in nobody_asked.why


@pytest.mark.parametrize("block", [2, 3, 5])
def test_lists_hours_and_reviews_of_the_guide_are_taken(block):
    guide = (Path(__file__).parents[2] / "docs" / "policy.md").read_text()

    load(guide.split("```yaml\n")[block].split("```")[0])


def test_each_recipe_of_the_cookbook_is_a_policy_whose_lines_the_demo_plays():
    """tests/examples runs them."""
    root = Path(__file__).parents[2]
    cookbook = (root / "docs" / "cookbook.md").read_text()
    played = [(root / "demo" / "policies" / f"{name}.yaml").read_text() for name in PLAYED]
    recipes = [part.split("```")[0] for part in cookbook.split("```yaml\n")[1:]]

    assert len(recipes) == 6
    for recipe in recipes:
        load(recipe)
        lines = [line for line in recipe.splitlines() if line.strip()]
        assert any(all(line in one for line in lines) for one in played), recipe


PLAYED = ("skyline", "airline")
