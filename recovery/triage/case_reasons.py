"""What a reason is, and a kind of reason; which there are say `recovery.triage.detectors`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recovery.run_facts.sentences import shortened

KEY_CHARACTERS_MAX = 200
WORDS_CHARACTERS_MAX = 300


FORMERLY = {"not_as_allowed": "unapproved", "unplanned": "unapproved"}
"""Codes that had another one in earlier versions, by which closed cases have answered them."""


DOUBTS = frozenset({"outcome_unknown", "past_its_time", "contradiction"})
"""Of what nobody knows whether it happened."""


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
    blames_failed_action: bool = False
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
