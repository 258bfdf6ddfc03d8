"""Asking the outside whether an agent's call happened: the policy's probe of its tool.

Found is found. Absence is proven only by a probe made after the call's own limit and the
connector's horizon; before that it says nothing, and a person may still say more.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Min, Q, QuerySet
from django.db.models.functions import Now

from amends.protocol.masking import holds_mask
from amends.protocol.vocabulary import EventType
from approvals.policy import CannotEvaluate, Policy
from approvals.policy.document import TwinCall
from connectors import accounts, calllog, calls
from connectors.contract import Finding, Refused, Target
from connectors.models import Connection
from ledger.models import Action, Event
from recovery.cases.lifecycle import locked
from recovery.engine.preconditions import shown_by
from recovery.models import Case, CaseState, Suggestion
from recovery.run_facts.runs import RunFacts, facts_of
from recovery.triage import triage
from workspaces import formatting
from workspaces.clock import database_time

PROBES_MAX = 6
PROBE_SECONDS = 5.0
"""Before the second probe; each further one waits twice as long."""

BATCH = 20

ELSEWHERE = (
    "The probe was not made: its connection may lead elsewhere by now, and would find nothing of"
    " this call there. Since then:"
)


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """What a probe saw, and the outcome that it proves; nothing where it proves none."""

    finding: Finding
    outcome: str
    words: str


def can_ask(facts: RunFacts, action: Action) -> bool:
    return not why_not(facts, action)


def why_not(facts: RunFacts, action: Action) -> str:
    """Why no probe can be asked of it, without a full stop; empty where one can."""
    if probe_of(facts.policy, action) is None:
        return f"The policy has no probe for {action.tool_words}"
    return "" if action.key else "The agent told of no key, by which the probe would look for it"


def probe_of(policy: Policy, action: Action) -> TwinCall | None:
    """The probe that the policy names with the tool's twin."""
    kinds = [str(one.get("type", "")) for one in action.targets or [] if isinstance(one, dict)]
    for kind in kinds or [""]:
        twin = policy.twin(action.tool, kind)
        if twin is not None and twin.probe is not None:
            return twin.probe
    return None


def question(facts: RunFacts, action: Action) -> str:
    """What a probe asks, and whom: “charges · charge, on card ending 0077, by the key of the call”;
    empty where none can be asked.
    """
    probe = probe_of(facts.policy, action)
    if probe is None or not action.key:
        return ""
    first = next((one for one in action.targets or [] if isinstance(one, dict)), {})
    kind, name = str(first.get("type", "")), str(first.get("id", ""))
    on = f", on {formatting.named(kind)} {formatting.named(name)}" if name else ""
    return f"{probe.connection} · {probe.operation}{on}, by the key of the call"


def ask(facts: RunFacts, action: Action) -> ProbeAnswer:
    """Probe once, unless the system is left alone just now. Changes nothing, and stands outside any
    transaction.
    """
    probe = probe_of(facts.policy, action)
    if probe is None or not action.key:
        return _unsure(f"{why_not(facts, action)}.")
    connection = (
        Connection.objects.in_workspace(facts.run.workspace).filter(name=probe.connection).first()
    )
    first = next((one for one in action.targets or [] if isinstance(one, dict)), {})
    target = Target(str(first.get("type", "")), str(first.get("id", "")))
    if connection is None:
        return _unsure(
            f"The probe was not made: there is no connection “{probe.connection}”. Make it, or name"
            " another one in the policy."
        )
    known = {
        "target": {"type": target.type, "id": target.id},
        "args": action.args,
        "result": action.result,
        "before": (action.before or [None])[0] if isinstance(action.before, list) else None,
    }
    try:
        operation = calls.operation_of(connection, probe.operation)
        args = probe.arguments(known)
    except (Refused, CannotEvaluate) as stopped:
        return _unsure(str(stopped))
    made = _made(action)
    if elsewhere := made and accounts.led_elsewhere(connection, made, ["observe"]):
        return _unsure(f"{ELSEWHERE} {elsewhere}.")
    if wait := calllog.may_call(connection):
        return _unsure(f"The probe was not made: {wait.reason}")
    sent_at = made or facts.now
    finding = calls.probe(
        connection, probe.operation, args, target, key=action.key, sent_at=sent_at
    )
    is_masked = holds_mask([args, target.type, target.id])
    shows = facts.now > shown_by(action, operation)
    return _read(finding, proven=shows and not is_masked, is_masked=is_masked)


def _made(action: Action) -> datetime | None:
    """Since when it may have been made: an agent that the desk was away from tells it late."""
    told = Event.objects.filter(
        workspace=action.workspace_id, run=action.run.run, action=action.action,
        type=EventType.ACTION_STARTED,
    )  # fmt: skip
    known = [action.started_at, told.aggregate(at=Min("time"))["at"]]
    return min(filter(None, known), default=None)


def _read(finding: Finding, *, proven: bool, is_masked: bool) -> ProbeAnswer:
    if finding.found == "present":
        return ProbeAnswer(finding, "applied", "A probe found it.")
    if finding.found == "absent" and proven:
        return ProbeAnswer(finding, "no_effect", "A probe shows that it did not happen.")
    if finding.found == "absent":
        masked = "Not found; what it looked for holds a masked value, so it proves nothing."
        on_its_way = "Not there yet; it may still be on its way."
        return ProbeAnswer(finding, "", masked if is_masked else on_its_way)
    return ProbeAnswer(finding, "", "A probe could not tell.")


def _unsure(words: str) -> ProbeAnswer:
    return ProbeAnswer(Finding(found="cannot_tell"), "", words)


@transaction.atomic
def settle(case: Case, action: Action, asked: ProbeAnswer) -> bool:
    """Write down what a probe proved of the call as it was asked about; False if somebody was
    faster, more was told of it since (as of another try), or it proved nothing.
    """
    if not asked.outcome:
        return False
    case = locked(case)
    as_asked = (action.pk, action.last_place)
    if as_asked not in {(one.pk, one.last_place) for one in facts_of(case.run).unknown()}:
        return False
    data: dict[str, Any] = {
        "outcome": asked.outcome,
        "evidence": asked.finding.evidence,
        "words": asked.words,
        "case": case.pk,
    }
    triage.record_of_call(case, action, EventType.ACTION_SETTLED, data=data, part="probe")
    return True


def sweep() -> int:
    """Ask for unknown calls of open cases by itself, a few times; the number settled."""
    now = database_time()
    waiting = in_doubt().select_related("run__workspace", "run__agent", "workspace")
    return sum(_ask_for(case, now) for case in waiting.order_by("probe_at", "pk")[:BATCH])


def in_doubt() -> QuerySet[Case]:
    """Open cases with a call of which it is time to ask whether it happened."""
    return Case.objects.filter(
        Q(probe_at=None) | Q(probe_at__lte=Now()),
        state=CaseState.OPEN,
        suggestion=Suggestion.SETTLE,
        probes__lt=PROBES_MAX,
    )


def _ask_for(case: Case, now: datetime) -> int:
    """One round for one case. The next is put off first, so that two sweeps ask once."""
    pause = timedelta(seconds=PROBE_SECONDS * 2**case.probes)
    taken = Case.objects.filter(pk=case.pk, probes=case.probes)
    if not taken.update(probes=case.probes + 1, probe_at=now + pause):
        return 0
    facts = facts_of(case.run)
    doubtful = [action for action in facts.unknown() if can_ask(facts, action)]
    return sum(settle(case, action, ask(facts, action)) for action in doubtful[:BATCH])
