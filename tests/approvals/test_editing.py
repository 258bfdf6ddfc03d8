"""A rule is changed in the text of a policy, and the rest stays as somebody wrote it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from approvals import rules, versions
from approvals.policy import Policy, ToolCall, editing, judge, load
from approvals.policy.reading import read

YAML = """\
# Who may do what; Ada, 2026
unknownTools: ASK
policies:
  # refunds ask
  pay.*:
    approval: MANUAL   # always
    requires: [{group: finance}]
  crm.*: {approval: AUTO}  # harmless
  mail.send:
    - {when: 'size(args.to) > 10', approval: DENY}
    - approval: MANUAL
probation: 1h  # we are few
"""
RULE = {"when": "args.amount <= 20 # not a comment", "approval": "AUTO"}


def policies(source):
    return read(source).value["policies"]


def test_a_new_rule_stands_first_and_every_comment_stays():
    edited = editing.added(YAML, "pay.refund", RULE)

    assert policies(edited.source) == {"pay.refund": RULE} | policies(YAML)
    assert edited.lost == ()
    assert edited.source.replace(edited.source.splitlines()[3] + "\n", "", 1).count("#") >= 5
    without = [line for line in edited.source.splitlines() if "pay.refund" not in line]
    assert without == YAML.splitlines()


@pytest.mark.parametrize("glob", ["pay.*", "crm.*", "mail.send"])
def test_one_more_rule_of_a_tool_stands_last_and_every_comment_stays(glob):
    edited = editing.added(YAML, glob, RULE)

    before = policies(YAML)[glob]
    assert policies(edited.source)[glob] == [*(before if glob == "mail.send" else [before]), RULE]
    assert edited.lost == ()
    assert list(policies(edited.source)) == list(policies(YAML))


@pytest.mark.parametrize(("glob", "place"), [("crm.*", 0), ("mail.send", 1), ("pay.*", 0)])
def test_a_rule_is_taken_out(glob, place):
    edited = editing.removed(YAML, glob, place)
    before = policies(YAML)
    rest = before[glob]
    rest = [one for n, one in enumerate(rest if isinstance(rest, list) else [rest]) if n != place]
    wanted = {name: one for name, one in before.items() if name != glob or rest}
    if rest:
        wanted[glob] = rest
    assert policies(edited.source) == wanted
    assert "# we are few" in edited.source
    assert set(edited.lost) <= ({"# always"} if glob == "pay.*" else {"# harmless"})


def test_a_field_is_changed_and_the_others_keep_their_spelling():
    row = next(one for one in editing.rows(YAML) if one.glob == "pay.*")
    edited = editing.replaced(YAML, row, {**row.entry, "approval": "DENY", "words": "No"})
    changed = YAML.replace("MANUAL   # always", "DENY   # always")
    changed = changed.replace("[{group: finance}]\n", "[{group: finance}]\n    words: 'No'\n")
    assert edited.source == changed
    back = next(one for one in editing.rows(edited.source) if one.glob == "pay.*")
    assert editing.replaced(edited.source, back, row.entry).source == YAML


def test_a_rule_moves_with_the_comment_above_it():
    pay, crm, denies, asks = editing.rows(YAML)
    assert editing.moved(YAML, pay, -1).source == YAML
    down = editing.moved(YAML, pay, 1)
    assert list(policies(down.source)) == ["crm.*", "pay.*", "mail.send"]
    assert down.source.index("# harmless") < down.source.index("# refunds ask")
    assert down.lost == ()
    lower = editing.moved(YAML, denies, 1)
    assert policies(lower.source)["mail.send"] == policies(YAML)["mail.send"][::-1]
    assert editing.moved(YAML, asks, 1).source == YAML
    back = next(one for one in editing.rows(down.source) if one.glob == "pay.*")
    assert editing.moved(down.source, back, -1).source == YAML
    assert crm.holds('policies."crm.*".approval')
    assert not denies.holds('policies."mail.send"[1].approval')


def test_json_stays_json_with_and_without_its_wrapper():
    documents: list[dict[str, Any]] = [
        {"policies": {"a": RULE}}, {"agentSafety": {"policies": {}}}, {},
    ]  # fmt: skip
    for document in documents:
        edited = editing.added(json.dumps(document), "pay.refund", RULE)
        found = json.loads(edited.source)
        assert found.get("agentSafety", found)["policies"]["pay.refund"] == RULE


def test_a_form_that_is_not_known_is_written_anew_and_what_was_lost_is_said():
    edited = editing.added("# ours\npolicies: ~\n", "pay.refund", RULE)
    assert read(edited.source).value == {"policies": {"pay.refund": RULE}}
    assert edited.lost == ("# ours",)


def test_what_is_added_and_taken_out_again_is_the_text_as_it_was():
    edited = editing.added(YAML, "pay.refund", RULE)
    assert editing.removed(edited.source, "pay.refund", 0).source == YAML


# The table and the document are one, whoever wrote it and whatever is done in the table.

CALLS = [
    ToolCall(tool=tool, args={"amount": amount, "to": "eve@example.org"}, action_class=kind)
    for tool in ("pay.refund", "mail.send", "crm.update", "payments.transfer", "files.write")
    for amount in (5, 5_000)
    for kind in ("internal_update", "external_irreversible")
]
GLOBS = st.sampled_from(["pay.*", "*", "mail.send", "crm.update", "pay.refund", "über.*", "a: b"])
WRITTEN_RULES = st.fixed_dictionaries(
    {"approval": st.sampled_from(["MANUAL", "DENY"])},
    optional={
        "when": st.sampled_from(
            ["args.amount > 100", 'tool == "a # b"', 'args.to != "it\'s: {x}"']
        ),
        "risk": st.sampled_from(["LOW", "HIGH"]),
        "words": st.sampled_from(["No: “never”", "two\nlines", "- dash", "yes", " # none"]),
        "expires": st.just("30m"),
        "bounded": st.builds(
            lambda uses: {"uses": uses, "for": "1d", "same": ["args.currency"]}, st.integers(1, 9)
        ),
        "escalate": st.builds(lambda after: {"after": after, "group": "leads"}, st.just("30m")),
        "requires": st.lists(st.builds(lambda n: {"count": n}, st.integers(2, 9)), min_size=1),
        "compensation": st.just("REFUND"),
        "selfApproval": st.booleans(),
    },
).map(lambda rule: rule if rule["approval"] == "MANUAL" else {
    name: one for name, one in rule.items() if name not in {"bounded", "escalate", "requires"}
})  # fmt: skip
TABLES = st.sampled_from([editing.RULES, editing.ALWAYS])
UNDER_GLOBS = st.dictionaries(
    GLOBS, st.one_of(WRITTEN_RULES, st.lists(WRITTEN_RULES, max_size=3)), max_size=4
)
DOCUMENTS = st.fixed_dictionaries(
    {"unknownTools": st.just("ASK")}, optional={"policies": UNDER_GLOBS, "always": UNDER_GLOBS}
)
STYLES: list[Callable[[Any], str]] = [
    json.dumps,
    lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    lambda value: yaml.safe_dump(value, sort_keys=False),
    lambda value: "---\n" + yaml.safe_dump(value, default_flow_style=None, width=60),
    lambda value: yaml.safe_dump({"agentSafety": value}, allow_unicode=True, indent=4),
    lambda value: "# ours\n" + yaml.safe_dump(value).replace("\n-", "\n# note\n-") + "# end",
]
OURS = st.builds(lambda value, style: style(value), DOCUMENTS, st.sampled_from(STYLES))
STARTERS = st.sampled_from([versions.starter(name) for name in versions.STARTERS])
SOURCES = st.integers(0, 5).flatmap(lambda n: OURS if n else STARTERS)
ACTS = st.sampled_from(["add", "remove", "replace", "relocate", "up", "down"])


def rules_of(source: str) -> list[str]:
    """Every rule with its glob and section, whatever their order."""
    return sorted(
        json.dumps([one.section, one.glob, one.entry], sort_keys=True)
        for one in editing.rows(source)
    )


def document_of(rules: list[str], rest: Any) -> Any:
    """A document of these rules, written by nobody."""
    found: dict[str, Any] = {}
    for section, glob, entry in map(json.loads, rules):
        found.setdefault(section, {}).setdefault(glob, []).append(entry)
    return {**rest, **found}


def answers(policy: Policy) -> list[Any]:
    found = [judge(policy, one) for one in CALLS]
    return [(one.approval, one.risk, one.requires, one.expires_seconds) for one in found]


@settings(max_examples=20, deadline=None)
@given(
    source=SOURCES, acts=st.lists(st.tuples(ACTS, st.integers(0, 30)), max_size=3), data=st.data()
)
def test_what_is_done_in_the_table_is_what_the_document_says(source, acts, data):
    value = read(source).value
    rest = {
        name: one
        for name, one in value.get("agentSafety", value).items()
        if name not in editing.SECTIONS
    }
    for act, at in acts:
        rows, expected = editing.rows(source), rules_of(source)
        row = rows[at % len(rows)] if rows else None
        if act == "add" or row is None:
            section, glob, rule = data.draw(st.tuples(TABLES, GLOBS, WRITTEN_RULES))
            edited = editing.added(source, glob, rule, section)
            expected.append(json.dumps([section, glob, rule], sort_keys=True))
        elif act == "remove":
            edited = editing.removed(source, row.glob, row.place, row.section)
        elif act in {"up", "down"}:
            edited = editing.moved(source, row, -1 if act == "up" else 1)
        else:
            rule = data.draw(WRITTEN_RULES)
            if act == "replace" and "requires" not in {*rule, *row.entry}:  # as its form does it
                typed = rules.fields_of(rule)
                rule = rules.entry_of(row.entry, {**typed, "words": rule.get("words", "")})
            section, glob = row.section, row.glob
            if act == "relocate":
                section, glob = data.draw(st.tuples(TABLES, GLOBS))
            edited = editing.relocated(source, row, rule, glob, section)
            expected.append(json.dumps([section, glob, rule], sort_keys=True))
        if row is not None and act in {"remove", "replace", "relocate"}:
            was = json.dumps([row.section, row.glob, row.entry], sort_keys=True)
            expected.remove(was)
        source = edited.source
        assert rules_of(source) == sorted(expected)
        inner = read(source).value
        inner = inner.get("agentSafety", inner)
        assert {name: inner[name] for name in inner if name not in editing.SECTIONS} == rest
    assert answers(load(source)) == answers(load(document_of(rules_of(source), rest)))


@pytest.mark.parametrize("name", versions.STARTERS)
def test_no_comment_of_a_starter_is_lost_in_the_table(name):
    source = versions.starter(name)
    for n in range(0, len(editing.rows(source)), 5):
        row = editing.rows(source)[n]
        for edited in (
            editing.replaced(source, row, {**row.entry, "words": "Changed", "risk": "HIGH"}),
            editing.moved(source, row, 1),
            editing.added(source, row.glob, RULE, row.section),
            editing.removed(source, row.glob, row.place, row.section),
        ):
            assert edited.lost == ()
            changed = set(edited.source.splitlines()) - set(source.splitlines())
            assert len(changed) <= 2, changed
