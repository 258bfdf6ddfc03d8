"""Every kind of reason has words of its own, for those who recover and for the affected person."""

import ast
import inspect

import pytest

from recovery.corrections.facts import WITHOUT_REASON, why
from recovery.models import Case
from recovery.run_facts.runs import facts_of
from recovery.triage import detectors
from recovery.triage.detectors import CODES, Reason
from recovery.triage.headlines import brief, headline


def test_every_code_that_triage_finds_is_listed():
    """Found in the source: a reason is made with a literal, or with one out of a table."""
    texts = {
        one.value
        for one in ast.walk(ast.parse(inspect.getsource(detectors)))
        if isinstance(one, ast.Call) and getattr(one.func, "id", "") == "Reason"
        for one in one.args[:1]
        if isinstance(one, ast.Constant)
    }
    assert texts <= CODES
    assert CODES - texts == {"failed_with_effects", "cancelled_with_effects", "stalled"}


@pytest.mark.django_db
def test_every_code_has_a_headline_words_and_a_sentence_for_the_affected_person(raised):
    facts = facts_of(raised.row)
    spoken = {}
    for code in CODES:
        reason = Reason(code, "What was found", action="act_1")
        case = Case(reasons=[code], evidence=[reason.as_json()])

        assert reason.as_json()["words"] == "What was found"
        assert headline(facts, [reason])
        assert brief(facts, [reason])
        spoken[code] = why(case)

    assert WITHOUT_REASON not in spoken.values()
    assert [code for code, words in spoken.items() if "A check" in words] == ["verification_failed"]
    assert why(Case(reasons=["step_needs_person", "stalled"])) == spoken["stalled"]
    assert why(Case()) == WITHOUT_REASON
    with pytest.raises(KeyError):
        why(Case(reasons=["never_heard_of"]))
