"""What a reason is, and a kind of reason; which there are say `recovery.triage.detectors`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from amends.protocol.vocabulary import EventType
from ledger.models import Event
from recovery.models import Case
from recovery.run_facts.policies import ATTEMPTS_ARE_TOLD_BY
from recovery.run_facts.runs import RunFacts
from recovery.run_facts.sentences import shortened

REASONS_MAX = 100
KEY_CHARACTERS_MAX = 200
WORDS_CHARACTERS_MAX = 300


FORMERLY = {"not_as_allowed": "unapproved", "unplanned": "unapproved"}
"""Codes that had another one in earlier versions, by which closed cases have answered them."""


DOUBTS = frozenset({"outcome_unknown", "past_its_time", "contradiction"})
"""Of what nobody knows whether it happened."""

OF_EACH_CALL = frozenset({"failed_with_effects", "cancelled_with_effects", "stalled"})
"""Of a run that ended badly, one for each call that stands: more than a closing can answer singly,
and of a long run more than are gathered.
"""

WAITED_SECONDS_MAX = 300
"""For its run, by a recording that had read the clock: what it tells came after a closing that has
a later time.
"""


@dataclass(frozen=True, slots=True)
class Reason:
    """`code` is the kind, `action` the action's id in its run (or nothing), `words` for people."""

    code: str
    words: str
    action: str = ""
    more: str = ""

    @property
    def key(self) -> str:
        return ":".join(part for part in (self.code, self.action, self.more) if part)[
            :KEY_CHARACTERS_MAX
        ]

    def is_answered(self, answered: Sequence[str]) -> bool:
        """Whether a closing has seen it, under this code or the one that it had before."""
        formerly = FORMERLY.get(self.code)
        return self.key in answered or (
            formerly is not None and replace(self, code=formerly).key in answered
        )

    def as_json(self) -> dict[str, str]:
        return {
            "code": self.code,
            "key": self.key,
            "action": self.action,
            "words": shortened(self.words, WORDS_CHARACTERS_MAX),
        }


def unanswered(facts: RunFacts, case: Case, found: Iterable[Reason]) -> list[Reason]:
    """Those that the last closing of a case has not seen. Where it saw more than it answered singly
    and nobody told of a call since, what that did stood then, and is answered with its kind.
    """
    fresh = [one for one in found if not one.is_answered(case.answered)]
    if case.closed_at is None or not (facts.whole or len(case.answered) >= REASONS_MAX):
        return fresh
    codes = {key.partition(":")[0] for key in case.answered} & OF_EACH_CALL
    calls = {one.action for one in fresh if one.code in codes and one.action}
    events = Event.objects.filter(workspace=case.workspace_id, run=facts.run.run, action__in=calls)
    told = events.filter(
        type__in=[*ATTEMPTS_ARE_TOLD_BY, EventType.ACTION_SETTLED],
        received_at__gt=case.closed_at - timedelta(seconds=WAITED_SECONDS_MAX),
    )
    calls -= {*told.values_list("action", flat=True)}
    return [one for one in fresh if one.code not in codes or one.action not in calls]


Finder = Callable[..., Iterator[Reason]]


@dataclass(frozen=True, slots=True)
class ReasonKind:
    """A kind of reason; what has no default must be said of every kind.

    `headline` is the second half of “Agent “x” changed a, …”, `brief` its short form for a line of
    the queue where the headline's own will not do. Both may name {tool}, {call} (the tool, or “a
    call”), {reporter}, {failure} (` at a.tool (its error)`), {error} (`: its error`) and {not_so}
    (`: “…” is not so`, the first check that failed); the last three are empty where unknown.
    `person` is what the affected person is told, without blame and without our words.
    """

    code: str
    finder: Finder
    headline: str
    person: str
    brief: str = ""
    settled: str = ""  # the headline of a call that somebody has settled
    known: str = ""  # of a doubt that is over: which may name {ended} as well
    is_about_repair: bool = False  # what went wrong before says more to the affected person
    likens_by_error: bool = True  # alike are those with the same error; else the same checks
    allows_automatic: bool = True  # whether it may still be undone without a person

    def __post_init__(self) -> None:
        if not (self.code and self.headline and self.person):
            raise ValueError(f"The kind of reason “{self.code}” lacks its words.")


def doubted(evidence: Iterable[Any]) -> set[str]:
    """The calls of which a case's evidence says that nobody knows whether they happened."""
    told = (one for one in evidence if isinstance(one, dict) and one.get("code") in DOUBTS)
    return {str(one.get("action")) for one in told}


def is_without_effects(found: Sequence[Reason]) -> bool:
    """Whether all that is told of a run is that it failed and did nothing."""
    return [reason.code for reason in found] == ["failed_without_effects"]


def is_for_review(found: Sequence[Reason]) -> bool:
    """Whether nothing is known to be wrong with a run, and somebody is to look at it."""
    return {reason.code for reason in found} == {"unlike_before"}
