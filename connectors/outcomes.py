"""What came of a call, in the words of the contract, without a trace of the credentials."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar, get_args, get_type_hints

from connectors import keeping
from connectors.contract import (
    Answer,
    CannotRead,
    CannotRestore,
    Check,
    Finding,
    Observation,
    Refused,
)
from connectors.errands import Errand
from connectors.failures import said, tells
from connectors.models.connections import CallOutcome

T = TypeVar("T")


FINDINGS = get_args(get_type_hints(Finding)["found"])
OUTCOMES = get_args(get_type_hints(Answer)["outcome"])
READS = {"observe": Observation, "verify": Check}


class NoAnswer(Exception):
    """We stopped because a connector gave back what is not in the contract. We know nothing."""


def as_read(errand: Errand[T]) -> T:
    if errand.failure is None and not isinstance(errand.came, READS[errand.line.method]):
        errand.failure = NoAnswer(f"`{errand.line.method}` gave back no answer of its kind.")
    if errand.failure is None:
        return _kept(errand.came)  # type: ignore[return-value]
    detail = errand.redaction.text(said(errand.failure))
    errand.line.ended(CallOutcome.FAILED, detail, tells=tells(errand.failure))
    kind = CannotRestore if isinstance(errand.failure, CannotRestore) else CannotRead
    raise kind(detail) from None


def _kept(read: T) -> T:
    """What was read, in a form that can be written down."""
    if isinstance(read, Observation):
        return replace(read, state=keeping.value(read.state))
    if isinstance(read, Check):
        return replace(read, checks=keeping.value(read.checks))
    return read


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
        came = errand.came
        if isinstance(came, Answer) and came.outcome in OUTCOMES:
            return came, True
        failure = NoAnswer("`apply` gave back no answer of its kind.")
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
    came = errand.came
    if not isinstance(came, Finding) or came.found not in FINDINGS:
        detail = "`probe` gave back no finding."
        errand.line.ended(CallOutcome.FAILED, detail, tells=True)
        return Finding(found="cannot_tell", evidence={"error": detail})
    return replace(came, evidence=errand.redaction.evidence(came.evidence))
