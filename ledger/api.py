"""The ledger over HTTP, to read: runs, actions, tree heads and proofs."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.db.models import F, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from ninja import Router

from amends.protocol.vocabulary import EventType
from edge.asgi import PROBLEM
from ledger import disclosure, entries, logkeys, merkle, proofs, snapshots
from ledger.models import Action, Checkpoint, Effect, Event, Run
from ledger.settlements import Settlement, settlements_of
from workspaces import outbox
from workspaces.access import require
from workspaces.keys import ByAgent, ByPerson, Caller, caller_of, reader_of
from workspaces.pages import problem_response

# Reading runs, actions and effects: what other floors and the API ask of the projections.

ACTIONS_SHOWN_MAX = 1_000
CHECKPOINTS_SHOWN_MAX = 200
TRACE_CHARACTERS_MAX = 128


def in_order(run: Run) -> QuerySet[Action]:
    """The actions of a run, oldest first: by the agent's count, then by ledger place."""
    return run.actions.order_by(F("n").asc(nulls_last=True), "first_place")


class Trace(NamedTuple):
    """Where an agent's own tracing tells of an action; a client that opens no span gives none."""

    trace_id: str
    span_id: str

    @property
    def url(self) -> str:
        return trace_url(self._asdict())


def trace_url(trace: object) -> str:
    """Where a trace can be read: AMENDS_TRACE_URL with the trace's id put in."""
    pattern = settings.AMENDS_TRACE_URL
    found = trace.get("trace_id") if isinstance(trace, dict) else None
    if not pattern or not isinstance(found, str) or not found.isalnum():
        return ""
    return str(pattern).replace("{trace_id}", found[:TRACE_CHARACTERS_MAX])


def traces_of(run: Run, actions: Iterable[Action]) -> dict[str, Trace]:
    """Of each action the trace that its first traced event named, in one query."""
    events = Event.objects.filter(
        workspace=run.workspace_id,
        run=run.run,
        action__in=[one.action for one in actions],
        trace__isnull=False,
        **({"received_at__gte": run.started_at} if run.started_at else {}),
    )
    return first_traces(events.order_by("place").values_list("action", "trace"))


def first_traces(said: Iterable[tuple[str, Any]]) -> dict[str, Trace]:
    """The same of events in their order, each by its action and what it says of its trace."""
    found: dict[str, Trace] = {}
    for action, trace in said:
        told = trace if isinstance(trace, dict) else {}
        ids = [str(told.get(name) or "")[:TRACE_CHARACTERS_MAX] for name in Trace._fields]
        if ids[0] and action not in found:
            found[action] = Trace(*ids)
    return found


def run_as_json(run: Run, *, sensitive: bool) -> dict[str, Any]:
    """A run with its actions and checkpoints; payloads only if the reader may see them."""
    actions = in_order(run).prefetch_related("effects", "attempts")[:ACTIONS_SHOWN_MAX]
    settled, traces = settlements_of(run, actions), traces_of(run, actions)
    checkpoints = run.checkpoints.order_by("n", "place")[:CHECKPOINTS_SHOWN_MAX]
    found: dict[str, Any] = {
        "run": run.run, "agent": run.agent.name if run.agent else None, "model": run.model,
        "state": run.state, "revision": run.revision, "customer": run.customer,
        "labels": run.labels, "trace": run.trace, "flags": run.flags,
        "failed_action": run.failed_action or None, "cancelled_by": run.cancelled_by or None,
        "started_at": run.started_at, "ended_at": run.ended_at, "lease_until": run.lease_until,
        "held_by": run.held_by or None, "action_count": run.action_count,
        "effect_count": run.effect_count,
        "actions": [
            action_as_json(action, settled.get(action.action), sensitive=sensitive)
            | _trace(traces.get(action.action))
            for action in actions
        ],
        "checkpoints": [_checkpoint(one, sensitive=sensitive) for one in checkpoints],
    }  # fmt: skip
    if sensitive:
        found |= {
            "request": run.request, "goal": run.goal, "on_behalf_of": run.on_behalf_of,
            "summary": run.summary, "error": run.error, "reason": run.reason,
        }  # fmt: skip
    return found


def action_as_json(
    action: Action, settled: Settlement | None, *, sensitive: bool
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "action": action.action, "n": action.n, "tool": action.tool, "key": action.key,
        "class": action.action_class, "risk": action.risk, "saga": action.saga, "op": action.op,
        "state": action.state, "compensated": action.compensated, "verified": action.verified,
        "targets": action.targets, "args_digest": action.args_digest, "flags": action.flags,
        "fence": action.fence, "settled_by": action.settled_by or None,
        "settled": settled.as_json(sensitive=sensitive) if settled else None,
        "planned_at": action.planned_at, "started_at": action.started_at,
        "finished_at": action.finished_at,
        "attempts": [
            {"attempt": one.attempt, "state": one.state, "fence": one.fence, "stale": one.stale,
             "retry": one.retry or None,
             "settled": settled is not None and settled.covers(one.attempt)}
            for one in action.attempts.all()
        ],
        "effects": [
            _effect(one, sensitive=sensitive)
            for one in sorted(action.effects.all(), key=lambda effect: effect.position)
            if not one.withdrawn
        ],
    }  # fmt: skip
    if sensitive:
        found |= {
            "args": action.args, "intent": action.intent, "result": action.result,
            "error": action.error, "checks": action.checks, "compensation": action.compensation,
        }  # fmt: skip
    return found


def _trace(trace: Trace | None) -> dict[str, Any]:
    return {"trace": trace and trace._asdict()}


def _effect(effect: Effect, *, sensitive: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "position": effect.position,
        "target": {"type": effect.target_type, "id": effect.target_id},
        "summary": effect.summary, "reversibility": effect.reversibility,
        "undo_until": effect.undo_until, "compensated": effect.compensated,
        "source": effect.source,
    }  # fmt: skip
    if sensitive:
        found |= {name: getattr(effect, name) for name in ("before", "after")
                  if getattr(effect, f"has_{name}")}  # fmt: skip
        found["affects"] = effect.affects
    return found


def _checkpoint(one: Checkpoint, *, sensitive: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": one.pk, "name": one.name, "n": one.n, "at": one.at, "completed": one.completed,
        "pending": one.pending, "recovery_mode": one.recovery_mode, "summary": one.summary,
    }  # fmt: skip
    if sensitive:
        found |= {"state": one.state, "state_ref": one.state_ref, "instructions": one.instructions}
    return found


READERS = [ByAgent("read"), ByPerson()]
WATCHERS = [ByAgent("audit"), ByPerson()]
TEXT = "text/plain; charset=utf-8"
ENTRIES_MAX = 1_000
"""Of the log in one answer."""

router = Router(tags=["ledger"])


@router.get("/runs/{path:run}/actions/{path:action}", auth=READERS, summary="One action")
def read_action(request: HttpRequest, run: str, action: str) -> dict[str, Any]:
    caller = reader_of(request)
    row = _run(caller, run)
    found = Action.objects.filter(run=row, action=action).first()
    if found is None:
        raise Http404("There is no such action in this run.")
    settled = settlements_of(row, [found]).get(action)
    shown = action_as_json(found, settled, sensitive=_reveals(caller, row.run, action))
    return _with_addresses(caller, shown) | _trace(traces_of(row, [found]).get(action))


@router.get("/runs/{path:run}", auth=READERS, summary="A run with its actions and checkpoints")
def read_run(request: HttpRequest, run: str) -> dict[str, Any]:
    """An agent reads its own runs. A person without `view_sensitive` reads them without payloads;
    each reveal is on the record.
    """
    caller = reader_of(request)
    found = _run(caller, run)
    shown = run_as_json(found, sensitive=_reveals(caller, found.run))
    return shown | {"actions": [_with_addresses(caller, one) for one in shown["actions"]]}


def _with_addresses(caller: Caller, action: dict[str, Any]) -> dict[str, Any]:
    """With where a person reads the large snapshots that its effects name."""
    for effect in action["effects"] if caller.person else ():
        for name in ("before", "after"):
            if snapshots.is_ref(effect.get(name)):
                sha256 = snapshots.digest_of(effect[name])
                url = f"{settings.AMENDS_URL}/api/v1/ledger/snapshots/{sha256}"
                effect[name] = effect[name] | {"url": url}
    return action


@router.get("/ledger/snapshots/{sha256}", auth=ByPerson(), summary="A large snapshot, as it is")
def read_snapshot(request: HttpRequest, sha256: str) -> HttpResponse:
    """What `{"ref": "sha256:…"}` names, for whoever holds `view_sensitive`; that it was read is on
    the record. 404 if it is not kept, or no longer what was named.
    """
    caller = caller_of(request)
    require(caller.person or AnonymousUser(), "view_sensitive", caller.workspace)
    found = snapshots.content_of(caller.workspace.pk, sha256)
    if found is None:
        raise Http404("There is no such snapshot here, or it was erased.")
    told = {"snapshot": sha256}
    outbox.record(caller.workspace, EventType.PAYLOAD_REVEALED, by=caller.person, data=told)
    return HttpResponse(found, content_type="application/json")


@router.get("/ledger/key", auth=READERS, summary="The log's public keys, the living one first")
def read_keys(request: HttpRequest) -> HttpResponse:
    return text("".join(f"{key}\n" for key in logkeys.published(reader_of(request).workspace)))


@router.get("/ledger/head", auth=READERS, summary="The newest signed tree head (C2SP checkpoint)")
def read_head(request: HttpRequest) -> HttpResponse:
    head = proofs.newest_head(reader_of(request).workspace)
    if head is None:
        raise Http404("Nothing is sealed yet.")
    return text(head.note)


@router.get(
    "/ledger/entries", auth=WATCHERS, summary="The log, entry by entry, for a SIEM",
    openapi_extra={"responses": {409: {"description": "It went back: `next` says from where"}}},
)  # fmt: skip
def read_entries(
    request: HttpRequest, since: int = 0, origin: str = "", limit: int = ENTRIES_MAX
) -> HttpResponse | dict[str, Any]:
    """Entries from the number `since` on, at most `limit`; `next` is what to ask for then, also
    where there is nothing yet. Numbers have no gaps. With `origin`, that of the last answer, 409 if
    the log went back and goes on under another one: `next` says from where.
    """
    caller = reader_of(request)
    workspace = caller.workspace
    head = proofs.newest_head(workspace)
    if head is None:
        return {"origin": "", "size": 0, "next": 0, "entries": []}
    if origin and origin != head.origin:
        again = entries.next_under(head, origin, max(since, 0))
        where = {"origin": head.origin, "size": head.size, "next": again}
        return JsonResponse(where, status=409)
    at_most = min(max(limit, 1), ENTRIES_MAX)
    begin = min(max(since, 0), head.size)
    found = entries.between(workspace, begin, min(begin + at_most, head.size))
    sensitive = caller.person is None or disclosure.sees(caller.person, workspace)
    told = [entries.streamed(one, sensitive=sensitive) for one in found]
    return {
        "origin": head.origin, "size": head.size, "next": begin + len(told), "entries": told,
    }  # fmt: skip


@router.get(
    "/ledger/proof/{path:event}", auth=READERS, summary="Inclusion of an event (tlog-proof)"
)
def read_proof(request: HttpRequest, event: str) -> HttpResponse:
    """404 if there is no such event or it is not sealed yet; 409 if its row was tampered with."""
    try:
        found = proofs.proof_of(reader_of(request).workspace, event)
    except proofs.Tampered as tampered:
        return changed_since(tampered)
    if found is None:
        raise Http404("There is no such event, or it is not sealed yet.")
    return text(found)


@router.get("/ledger/consistency", auth=READERS, summary="That one tree grew out of another")
def read_consistency(request: HttpRequest, old: int, new: int) -> HttpResponse | dict[str, Any]:
    """`old` and `new` are sizes of signed heads; hashes in base64, as in RFC 9162, 2.1.4.
    409 if the stored tree has holes.
    """
    workspace = reader_of(request).workspace
    head = proofs.newest_head(workspace)
    if head is None or not 0 < old <= new <= head.size:
        told = "old and new must be sizes of this log: 0 < old <= new"
        return problem_response(422, "It does not fit", told)
    try:
        found = proofs.consistency(workspace, old, new)
    except proofs.Tampered as tampered:
        return changed_since(tampered)
    return {"old": old, "new": new, "proof": [merkle.base64_text(one) for one in found]}


def changed_since(tampered: proofs.Tampered) -> HttpResponse:
    kind, title = f"{PROBLEM}tampered", "It is not what was sealed"
    return problem_response(409, title, str(tampered), type=kind)


def text(body: str) -> HttpResponse:
    return HttpResponse(body, content_type=TEXT)


def _run(caller: Caller, run: str) -> Run:
    found = Run.objects.select_related("agent").filter(workspace=caller.workspace, run=run)
    if caller.agent is not None:
        found = found.filter(agent=caller.agent)
    row = found.first()
    if row is None:
        raise Http404("There is no such run, or it is not yours.")
    return row


def _reveals(caller: Caller, run: str, action: str = "") -> bool:
    """Whether payloads are shown; a person who is shown some is on the record."""
    if caller.person is None:
        return True
    told = {"run": run} | ({"action": action} if action else {})
    return disclosure.reveals(caller.person, caller.workspace, **told)
