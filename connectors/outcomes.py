"""What came of a call, in the words of the contract, without a trace of the credentials."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from connectors.contract import Answer, CannotRead, Finding, Refused
from connectors.errands import Errand
from connectors.failures import said, tells
from connectors.models.connections import CallOutcome

T = TypeVar("T")


def as_read(errand: Errand[T]) -> T:
    if errand.failure is None:
        return errand.came  # type: ignore[return-value]
    detail = errand.redaction.text(said(errand.failure))
    errand.line.ended(CallOutcome.FAILED, detail, tells=tells(errand.failure))
    raise CannotRead(detail) from None


def as_answer(errand: Errand[Answer]) -> Answer:
    answer, is_telling = _answer(errand)
    redaction = errand.redaction
    answer = replace(
        answer,
        evidence=redaction.evidence(answer.evidence),
        detail=redaction.text(answer.detail),
    )
    errand.line.ended(CallOutcome(answer.outcome), answer.detail, tells=is_telling)
    return answer


def _answer(errand: Errand[Answer]) -> tuple[Answer, bool]:
    """The answer, and whether it says something of the connection's health."""
    failure = errand.failure
    if failure is None:
        assert errand.came is not None  # noqa: S101 - it came back without a failure
        return errand.came, True
    if errand.work is None:  # never opened
        return Answer(outcome="no_effect", detail=str(failure)), False
    if isinstance(failure, Refused):
        return Answer(outcome="no_effect", detail=str(failure)), tells(failure)
    # Whatever else it is, we do not know.
    return Answer(outcome="unknown", detail=said(failure)), True


def as_finding(errand: Errand[Finding]) -> Finding:
    if errand.failure is not None:
        detail = errand.redaction.text(said(errand.failure))
        errand.line.ended(CallOutcome.FAILED, detail, tells=tells(errand.failure))
        return Finding(found="cannot_tell", evidence={"error": detail})
    assert errand.came is not None  # noqa: S101 - it came back without a failure
    return replace(errand.came, evidence=errand.redaction.evidence(errand.came.evidence))
