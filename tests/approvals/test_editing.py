"""A rule is changed in the text of a policy, and the rest stays as somebody wrote it."""

import json
from typing import Any

import pytest

from approvals.policy import editing
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


def test_one_more_rule_of_a_tool_loses_the_comments_inside_and_says_which():
    edited = editing.added(YAML, "pay.*", RULE)

    assert policies(edited.source)["pay.*"] == [policies(YAML)["pay.*"], RULE]
    assert edited.lost == ("# always",)
    assert "# refunds ask" in edited.source
    assert "# harmless" in edited.source
    assert list(policies(edited.source)) == list(policies(YAML))


@pytest.mark.parametrize(("glob", "place"), [("crm.*", 0), ("mail.send", 1), ("pay.*", 0)])
def test_a_rule_is_taken_out(glob, place):
    edited = editing.removed(YAML, glob, place)
    before = policies(YAML)
    rest = before[glob]
    rest = [one for n, one in enumerate(rest if isinstance(rest, list) else [rest]) if n != place]
    wanted = {name: one for name, one in before.items() if name != glob or rest}
    if rest:
        wanted[glob] = rest[0]
    assert policies(edited.source) == wanted
    assert "# we are few" in edited.source


def test_json_stays_json_with_and_without_its_wrapper():
    documents: list[dict[str, Any]] = [
        {"policies": {"a": RULE}}, {"agentSafety": {"policies": {}}}, {},
    ]  # fmt: skip
    for document in documents:
        edited = editing.added(json.dumps(document), "pay.refund", RULE)
        found = json.loads(edited.source)
        assert found.get("agentSafety", found)["policies"]["pay.refund"] == RULE


def test_a_form_that_is_not_known_is_written_anew_and_what_was_lost_is_said():
    edited = editing.added("# ours\nunknownTools: ASK\n", "pay.refund", RULE)
    assert read(edited.source).value == {"unknownTools": "ASK", "policies": {"pay.refund": RULE}}
    assert edited.lost == ("# ours",)


def test_what_is_added_and_taken_out_again_is_the_text_as_it_was():
    edited = editing.added(YAML, "pay.refund", RULE)
    assert editing.removed(edited.source, "pay.refund", 0).source == YAML
