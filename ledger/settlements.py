"""Settlements: who said what became of a call whose outcome nobody had reported, and on what.

What was settled is not what the agent reported: wherever the outcome is shown, so is this.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from amends.protocol.vocabulary import EventType
from ledger.models import Action, Event, Run
from workspaces.models import User

OUTCOMES = {"applied": "happened", "no_effect": "did not happen"}


@dataclass(frozen=True, slots=True)
class Settlement:
    """`text` is what a person wrote, or what a probe's answer means; `saw` what the probe saw."""

    outcome: str
    by: str
    at: datetime
    text: str = ""
    saw: Any = None
    attempts: Sequence[str] = field(default_factory=tuple)

    @property
    def words(self) -> str:
        """`settled by Ada: happened`"""
        became = OUTCOMES.get(self.outcome, "")
        return f"settled by {self.by}: {became}" if became else f"settled by {self.by}"

    @property
    def state(self) -> str:
        """What stands where an agent's report would say its state; empty once it was erased."""
        return f"settled_{self.outcome}" if self.outcome in OUTCOMES else ""

    def covers(self, attempt: str) -> bool:
        """Whether it was this try's outcome that nobody had reported."""
        return not self.attempts or attempt in self.attempts

    def as_json(self, *, sensitive: bool) -> dict[str, Any]:
        found = {"outcome": self.outcome, "by": self.by, "at": self.at, "evidence": self.text}
        return found | ({"saw": self.saw} if sensitive else {})


def settlements_of(run: Run, actions: Iterable[Action]) -> dict[str, Settlement]:
    """The last settlement of each of these actions that has one, by the action's id."""
    settled = [one.action for one in actions if one.settled_by]
    if not settled or run.started_at is None:
        return {}
    return settlements_in(
        Event.objects.filter(
            workspace=run.workspace_id,
            run=run.run,
            action__in=settled,
            type=EventType.ACTION_SETTLED,
            received_at__gte=run.started_at,
        ).order_by("place")
    )


def settlements_in(events: Iterable[Event]) -> dict[str, Settlement]:
    """The same of events at hand, which are in the order of the ledger."""
    last = {event.action: event for event in events if event.type == EventType.ACTION_SETTLED}
    ids = {int(one.actor) for one in last.values() if _is_person(one)}
    people = User.objects.in_bulk(ids) if ids else {}
    return {action: _settlement(event, people) for action, event in last.items()}


def _is_person(event: Event) -> bool:
    return event.actor_kind == "person" and event.actor.isdecimal()


def _settlement(event: Event, people: dict[int, User]) -> Settlement:
    data = event.data or {}
    evidence = data.get("evidence")
    person = people.get(int(event.actor)) if _is_person(event) else None
    by = str(person or "somebody") if event.actor_kind == "person" else f"a {event.actor}"
    text = evidence.get("text") if isinstance(evidence, dict) and person else data.get("words")
    if event.data is None:
        text = "The evidence was erased."
    return Settlement(
        outcome=str(data.get("outcome", "")),
        by=by,
        at=event.received_at,
        text=text if isinstance(text, str) else "",
        saw=None if person else evidence,
        attempts=tuple(map(str, data.get("attempts") or ())),
    )
