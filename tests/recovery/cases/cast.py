"""What the stories about cases are told with: an agent's events, and a shop that it works on."""

from collections.abc import Iterable
from typing import Any

from django.db import transaction

from ledger import drivers
from ledger.append.events import record
from ledger.drivers import plain_connection
from ledger.models import Run
from ledger.parsed_events import Actor, ParsedEvent, new_id
from ledger.wire import read
from recovery.casework import resuming
from recovery.models import Case, Directive, Plan
from recovery.planning import plans
from recovery.triage import triage
from tests.recovery.engine import by_hand
from workspaces.models import Agent, User


class AgentRun:
    """An agent that tells the ledger what it does, event by event."""

    def __init__(self, agent: Agent, run: str, *, trusted: bool = True) -> None:
        self.agent, self.run, self.n = agent, run, 0
        self.trace: dict[str, str] | None = None
        self.time = ""
        workspace = agent.workspace
        self.actor = Actor(
            workspace.pk, workspace.slug, "agent", agent.name, agent.pk, "0123456789", trusted
        )

    def send(self, type_: str, action: str = "", **data: Any) -> None:
        self._record(self._event(type_, action, data))

    def _event(self, type_: str, action: str, data: dict[str, Any]) -> ParsedEvent:
        import msgspec

        one = {"id": new_id(), "type": type_, "run": self.run, "n": self.n, "data": data}
        if action:
            one["action"] = action
        if self.trace:
            one["trace"] = self.trace
        if self.time:
            one["time"] = self.time
        said = read(msgspec.json.encode(one), self.actor)
        assert isinstance(said, ParsedEvent), said
        return said

    def sends_at_once(self, *told: tuple[str, str, dict[str, Any]]) -> None:
        """What a spool kept, in its order: type, action and data of each."""
        self._record(*(self._event(*one) for one in told))

    def _record(self, *events: ParsedEvent) -> None:
        """What belongs together comes together, as from a client that has it in its spool."""
        with transaction.atomic():
            answers = drivers.run(record(self.actor, events), plain_connection()).results
        assert {one.status for one in answers} == {"accepted"}, answers

    def begins(
        self, request: str = "Put ticket T-182 right", person: Any = None, **more: Any
    ) -> "AgentRun":
        person = {"id": "eve", "name": "Eve Adams", "contact": "eve@example.com"} | (person or {})
        self.send("run.started", request=request, on_behalf_of=person, model="m-1", **more)
        return self

    def plans(self, tool: str, *targets: tuple[str, str], **more: Any) -> str:
        action, begun = self._begun(tool, targets, more)
        self._record(*begun)
        return action

    def _begun(
        self, tool: str, targets: Iterable[tuple[str, str]], more: dict[str, Any]
    ) -> tuple[str, list[ParsedEvent]]:
        self.n += 1
        action = f"act_{self.n}"
        told = {
            "tool": tool,
            "targets": [{"type": kind, "id": name} for kind, name in targets],
            "args": {},
            "key": f"key-{self.run}-{self.n}",
            "class": "internal_update",
        }
        return action, [
            self._event("action.planned", action, told | more),
            self._event("action.started", action, {"attempt": "1"}),
        ]

    def does(
        self, tool: str, *effects: tuple[str, str, Any, Any], planned: Any = None, **more: Any
    ) -> str:
        """A call that succeeded; each effect is a type, an id, before and after."""
        action, begun = self._begun(tool, (one[:2] for one in effects), planned or {})
        told = [
            {"target": {"type": kind, "id": name}, "before": before, "after": after}
            for kind, name, before, after in effects
        ]
        outcome = {"attempt": "1", "effects": told} | more
        self._record(*begun, self._event("action.succeeded", action, outcome))
        return action

    def fails(
        self,
        tool: str,
        *,
        outcome: str = "no_effect",
        message: str = "504",
        kind: str = "GatewayTimeout",
        **more: Any,
    ) -> str:
        action, begun = self._begun(tool, [("mail", "welcome")], more)
        error = {"type": kind, "message": message}
        failed = {"attempt": "1", "outcome": outcome, "error": error}
        self._record(*begun, self._event("action.failed", action, failed))
        return action

    def is_verified(self, action: str, *, ok: bool) -> None:
        check = {"name": "flights", "expected": "HAT074", "actual": "HAT290", "ok": ok}
        self.send("action.verified", action, ok=ok, checks=[check])

    def ends(self, how: str = "completed", **data: Any) -> "AgentRun":
        self.n += 1
        self.send(f"run.{how}", **data)
        return self

    @property
    def row(self) -> Run:
        return Run.objects.get(run=self.run, agent=self.agent)

    def case(self) -> Case | None:
        """Triage looks; the run's case, if it has one."""
        triage.look()
        return Case.objects.filter(run__run=self.run).first()


def stands(shop: Any, row: dict[str, Any]) -> None:
    """The shop has this ticket."""
    shop.execute(
        "INSERT INTO tickets (world, id, priority, assignee)"
        " VALUES (%(world)s, %(id)s, %(priority)s, %(assignee)s)",
        row,
    )


def submitted(case: Case, by: User, *, reason: str = "Wrong", **more: Any) -> Plan:
    """The plan that a preview of the case shows, submitted."""
    draft = plans.draft(case, **more)
    revision = draft.case.revision
    return plans.submit(case, digest=draft.digest, revision=revision, by=by, reason=reason, **more)


def undone(case: Case, by: User) -> Plan:
    """Submitted, and done as far as it goes."""
    plan = submitted(case, by)
    by_hand.advance(plan.pk)
    return plan


def directed(run: AgentRun, by: User, **more: Any) -> Directive:
    """The run is told to resume, as a preview of its case shows."""
    seen = resuming.preview(run.case(), **more)
    revision = seen.case.revision
    return resuming.commit(
        seen.case, digest=seen.digest, revision=revision, by=by, reason="Again", **more
    )
