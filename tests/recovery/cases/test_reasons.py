"""Every kind of reason has words of its own, for those who recover and for the affected person."""

import ast
import inspect
from typing import Any

import pytest

from recovery.corrections.facts import WITHOUT_REASON, why
from recovery.models import Case
from recovery.run_facts.runs import facts_of
from recovery.triage import detectors, repeated_calls
from recovery.triage.case_reasons import Reason, ReasonKind
from recovery.triage.detectors import KINDS
from recovery.triage.headlines import brief, headline


def test_every_code_that_triage_finds_has_a_row():
    """Found in the source: a reason is made with a literal, or with one out of a table."""
    texts = {
        one.value
        for module in (detectors, repeated_calls)
        for one in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(one, ast.Call) and getattr(one.func, "id", "") == "Reason"
        for one in one.args[:1]
        if isinstance(one, ast.Constant)
    }
    assert texts <= set(KINDS)
    assert set(KINDS) - texts == {"failed_with_effects", "cancelled_with_effects", "stalled"}


@pytest.mark.parametrize("lacking", ["headline", "person"])
def test_a_kind_of_reason_without_its_words_stops_the_start(lacking):
    kind = KINDS["denied_often"]
    said: dict[str, Any] = {"headline": kind.headline, "person": kind.person}

    with pytest.raises(TypeError, match=lacking):
        ReasonKind("new", kind.finder, **{k: v for k, v in said.items() if k != lacking})
    with pytest.raises(ValueError, match="lacks its words"):
        ReasonKind("new", kind.finder, **said | {lacking: ""})


@pytest.mark.django_db
def test_the_words_of_every_kind_name_what_is_known_of_the_run(raised):
    facts = facts_of(raised.row)
    for code, kind in KINDS.items():
        reason = Reason(code, "What was found", action="act_1")

        assert reason.as_json()["words"] == "What was found"
        assert "{" not in headline(facts, [reason]) + brief(facts, [reason])
        assert why(Case(reasons=[code], evidence=[reason.as_json()])) == kind.person

    repaired = Case(reasons=["step_needs_person", "stalled"])
    assert why(repaired) == KINDS["stalled"].person
    assert why(Case()) == WITHOUT_REASON
    assert why(Case(reasons=["of_a_newer_version"])) == WITHOUT_REASON
    assert why(Case(reasons=["of_a_newer_version", "stalled"])) == KINDS["stalled"].person
