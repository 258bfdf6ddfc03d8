"""While the desk is away the last policy decides; where it cannot tell, the call is kept back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from amends.policy import is_gated
from amends.protocol.vocabulary import CLASSES, RISKS
from approvals.policy.decisions import ToolCall
from approvals.policy.evaluation import judge
from approvals.policy.loading import load

RULE = some.fixed_dictionaries(
    {},
    optional={
        "risk": some.sampled_from([risk.upper() for risk in RISKS]),
        "approval": some.sampled_from(["AUTO", "MANUAL", "DENY"]),
        "when": some.just("args.missing > 1"),  # nobody can evaluate it, as we never can
    },
).filter(bool)
GLOB = some.sampled_from(["pay", "pay.*", "*.card", "pay.card", "*", "p?y.card", "pay.car?"])
DOCUMENT = some.fixed_dictionaries(
    {"policies": some.dictionaries(GLOB, RULE | some.lists(RULE, min_size=1, max_size=3))},
    optional={
        "tools": some.dictionaries(
            GLOB,
            some.fixed_dictionaries(
                {},
                optional={
                    "class": some.sampled_from(CLASSES),
                    "risk": some.sampled_from([risk.upper() for risk in RISKS]),
                },
            ),
        ),
        "unknownTools": some.sampled_from(["ASK", "ALLOW"]),
    },
)


def document(policies, **more):
    return {"agentSafety": {"policies": policies, **more}}


@pytest.mark.parametrize(
    ("policies", "tool", "gated"),
    [
        ({"pay": {"approval": "AUTO"}}, "pay", False),
        ({"pay": {"approval": "MANUAL"}}, "pay", True),
        ({"pay": {"approval": "DENY"}}, "pay", True),
        ({"pay": {"risk": "HIGH"}}, "pay", True),
        ({"pay": {"risk": "HIGH", "approval": "AUTO"}}, "pay", False),
        ({"pay": {"risk": "LOW"}}, "pay", False),
        ({"*": {"approval": "MANUAL"}, "pay.small": {"approval": "AUTO"}}, "pay.small", False),
        ({"*": {"approval": "AUTO"}, "pay.*": {"approval": "MANUAL"}}, "pay.small", True),
        ({"pay.*": {"approval": "AUTO"}, "*.big": {"approval": "MANUAL"}}, "pay.big", True),
        ({"pay": [{"when": "args.n > 9", "approval": "DENY"}, {"approval": "AUTO"}]}, "pay", True),
        ({"pay": [{"when": "args.n > 9", "approval": "AUTO"}, {"approval": "DENY"}]}, "pay", True),
        ({"pay": {"when": "args.n < 9", "approval": "AUTO"}, "*": {"risk": "HIGH"}}, "pay", True),
        ({"other": {"approval": "MANUAL"}}, "pay", False),
        ({"pay.[s]": {"approval": "MANUAL"}}, "pay.s", False),
    ],
)  # fmt: skip
def test_the_most_specific_rule_decides_and_among_equals_the_strictest(policies, tool, gated):
    found = is_gated(document(policies), tool=tool, effect_class="external_reversible", risk=None)

    assert found is gated


@pytest.mark.parametrize(
    ("effect_class", "with_policy", "without"),
    [("read_only", False, False), ("draft", False, False), ("internal_update", False, False),
     ("external_reversible", False, True), ("external_irreversible", True, True),
     ("made_up", True, True)],
)  # fmt: skip
def test_without_a_matching_rule_the_class_decides(effect_class, with_policy, without):
    call = {"tool": "pay", "effect_class": effect_class, "risk": None}

    assert is_gated(document({}), **call) is with_policy
    assert is_gated(None, **call) is without


def test_an_agent_cannot_lower_the_class_that_the_catalogue_knows():
    tools = {"pay": {"class": "external_irreversible"}}

    assert is_gated(document({}, tools=tools), tool="pay", effect_class="read_only", risk=None)
    assert is_gated(document({}), tool="pay", effect_class="read_only", risk="critical")


@given(
    safety=DOCUMENT,
    tool=some.sampled_from(["pay.card", "p\u0430y.card", "pay_card"]),
    effect_class=some.sampled_from(CLASSES),
    risk=some.none() | some.sampled_from(RISKS),
)
@settings(max_examples=300, deadline=None)
def test_it_judges_as_the_desk_does(safety, tool, effect_class, risk):
    document = {"agentSafety": safety}
    call = ToolCall(tool=tool, args={}, action_class=effect_class, risk=risk or "")

    asked = judge(load(document), call).approval != "AUTO"

    assert is_gated(document, tool=tool, effect_class=effect_class, risk=risk) is asked


@pytest.mark.parametrize(
    ("tool", "gated"),
    [("files.share", False), ("files.copy", False), ("files.\u0455hare", True),
     ("files.Share", True), ("files_share", True), ("files.s\u200bhare", True)],
)  # fmt: skip
def test_while_the_desk_is_away_a_tool_that_only_looks_like_one_is_kept_back(tool, gated):
    policy = document(
        {"files.*": {"approval": "AUTO"}, "files.share": {"approval": "AUTO"}}, unknownTools="ASK"
    )

    assert is_gated(policy, tool=tool, effect_class="internal_update", risk=None) is gated


@pytest.mark.parametrize(
    ("tool", "gated"), [("pay.card", False), ("crm.read", False), ("p\u0430y.card", True)]
)
def test_while_the_desk_is_away_a_tool_that_nobody_listed_is_kept_back(tool, gated):
    rules = {"pay.card": {"when": "args.n > 9", "approval": "AUTO"}}
    policy = document(rules, tools={"crm.*": {"class": "read_only"}}, unknownTools="ASK")

    assert is_gated(policy, tool=tool, effect_class="internal_update", risk=None) is gated


def test_while_the_desk_is_away_what_a_rule_holds_always_is_kept_back_but_for_reading():
    always = {"crm.*": {"when": "rejected_before", "approval": "MANUAL"}}
    reading = {"crm.peek": {"class": "read_only"}}
    policy = document({"crm.*": {"approval": "AUTO"}}, tools=reading, always=always)

    def kept(tool, effect_class):
        return is_gated(policy, tool=tool, effect_class=effect_class, risk=None)

    assert kept("crm.write", "internal_update")
    assert kept("crm.peek", "internal_update")
    assert not kept("crm.peek", "read_only")
    assert not kept("notes.write", "internal_update")


def test_of_two_equally_specific_catalogue_entries_the_strictest_counts_in_any_order():
    lax, strict = {"class": "read_only"}, {"class": "external_irreversible"}
    one_way = {"p?y.card": lax, "pay.car?": strict}
    for tools in (one_way, dict(reversed(one_way.items()))):
        catalogue = document({}, tools=tools)
        call = ToolCall(tool="pay.card", args={}, action_class="read_only")

        assert is_gated(catalogue, tool="pay.card", effect_class="read_only", risk=None)
        assert judge(load(catalogue), call).approval == "MANUAL"
