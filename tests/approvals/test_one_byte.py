"""Law 1: whatever decides what a call does is in the digest, and a difference names itself."""

from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

from approvals import digests, grants
from approvals.digests import CallFacts
from tests.approvals.cast import refund

OTHER: dict[str, Any] = {
    "args": {"charge": "ch_1", "amount": 101},
    "targets": [{"type": "charge", "id": "ch_2"}],
    "must_be_true": {"state": "open"},
    "more": {"agent": "somebody else"},
}
PLACE = {
    "args": "args.amount",
    "more": "more.agent",
}


def test_one_byte_of_any_member_is_another_digest_and_is_named(ask, subtests):
    call, approval = refund(), ask()
    assert digests.digest_with(approval, [call]) == approval.digest

    for name in (field.name for field in fields(CallFacts)):
        other: dict[str, Any] = {name: OTHER.get(name) or f"{getattr(call, name)}."}
        changed = replace(call, **other)

        with subtests.test(name=name):
            assert digests.digest_with(approval, [changed]) != approval.digest
            (changes,) = grants.differences(approval, [changed])
            assert PLACE.get(name, name) in [one.field for one in changes]
            assert len(changes) == 1
            if name == "args":
                assert (changes[0].approved, changes[0].now) == (100, 101)


def test_rule_expiry_subject_and_workspace_are_in_it_too(ask):
    approval = ask(rules=({"glob": "payments.*", "words": "asks finance"},))
    calls = [digests.call_digest(call) for call in approval.calls]
    same = ("acme", approval.subject, calls, approval.rules, approval.expires_at)
    assert digests.approval_digest(*same) == approval.digest

    later = approval.expires_at + timedelta(microseconds=1)
    others = {
        "workspace": ("acm", *same[1:]),
        "subject": (*same[:1], {**approval.subject, "case": "13"}, *same[2:]),
        "calls": (*same[:2], [*calls, calls[0]], *same[3:]),
        "rules": (*same[:3], [{**approval.rules[0], "words": "asks finance."}], same[4]),
        "expiry": (*same[:4], later),
    }
    found = {name: digests.approval_digest(*other) for name, other in others.items()}
    assert approval.digest not in found.values()
    assert len(set(found.values())) == len(others)
    two = [*calls, "f" * 64]
    assert digests.approval_digest(*same[:2], two, *same[3:]) != digests.approval_digest(
        *same[:2], two[::-1], *same[3:]
    )


def test_one_call_more_or_less_is_not_what_was_approved(ask):
    approval = ask()
    ((change,),) = grants.differences(approval, [refund(), refund()])
    assert (change.field, change.approved, change.now) == ("calls", 1, 2)
