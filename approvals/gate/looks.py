"""What is looked up for one call, and what was found: the words of `approvals.gate.gathering`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from approvals import memory
from approvals.gate.begin_context import BeginContext
from approvals.gate.begin_request import BeginRequest
from approvals.memory import Caller, Meter, Standing, Value
from approvals.policy import UNKNOWN, CannotEvaluate, Finding, Policy, Question
from ledger.append.statements import Statement


@dataclass(frozen=True, slots=True)
class Look:
    """One scalar of the statement, and how its answer is read."""

    sql: str
    values: Sequence[Any]
    read: Callable[[Any], Finding]


@dataclass(slots=True)
class Gathered:
    """What was found for one call, and what is to be remembered of it if it goes on."""

    request: BeginRequest
    context: BeginContext
    policy: Policy
    findings: dict[str, Finding] = field(default_factory=dict)
    meters: list[Meter] = field(default_factory=list)
    standings: list[tuple[Meter, Standing]] = field(default_factory=list)
    sighted: dict[tuple[str, str], Value] = field(default_factory=dict)
    milliseconds: dict[str, float] = field(default_factory=dict)
    """What each look took by itself, where it is only asked what would be."""

    @property
    def caller(self) -> Caller:
        actor = self.request.actor
        return Caller(actor.workspace_id, actor.agent_id or 0, self.request.key)

    def disagrees(self, name: str) -> bool:
        """Whether the run was begun with this more than once, each time otherwise."""
        return self.context.run is not None and f"disagree:{name}" in self.context.run.flags

    @property
    def person(self) -> str:
        """On whose behalf the run acts; empty where nobody is named, or more than one was."""
        person = None if self.disagrees("on_behalf_of") else self.context.on_behalf_of
        return str(person.get("id") or "") if isinstance(person, dict) else ""

    def proceeding(self, run: str, action: str) -> list[Statement]:
        """What is written with the call that proceeds: what it holds, and the values it has."""
        sights = [
            memory.sight(self.caller, self.sighted, person=self.person, run=run, action=action)
        ]
        return [*self._reserved(run, action, held=True), *(sights if self.sighted else [])]

    def asking(self, run: str, action: str) -> list[Statement]:
        """What is written where people are asked: it holds as much from their yes on."""
        return self._reserved(run, action, held=False)

    def _reserved(self, run: str, action: str, *, held: bool) -> list[Statement]:
        return [
            memory.reserve(
                self.caller, meter, standing, self.context.now, run=run, action=action, held=held
            )
            for meter, standing in self.standings
        ]


Looker = Callable[[Question, Gathered, Mapping[str, Any]], Look | Finding]


def value_of(question: Question, facts: Mapping[str, Any]) -> Any:
    """The value that is asked about, of several targets that of each; UNKNOWN where there is
    none.
    """
    if question.argument is None:
        return UNKNOWN
    targets = facts.get("targets") or ()
    try:
        if "target" in question.argument.names and len(targets) > 1:
            return [question.argument.evaluate({**facts, "target": one}) for one in targets]
        return question.argument.evaluate(facts)
    except CannotEvaluate:
        return UNKNOWN
