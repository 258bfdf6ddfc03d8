"""The desk's own events: what people and the desk's parts put into the ledger.

Call it in the transaction of the act, so that the row and what the ledger tells of it are one.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from django.db import connection, transaction
from django.db.models.functions import Now

from amends.protocol.masking import MaskingKey
from amends.protocol.vocabulary import EventType
from ledger import drivers
from ledger.append import events as append
from ledger.append.projection import FoldKey
from ledger.models import Attempt, AttemptState, Event
from ledger.parsed_events import Actor, ParsedEvent, StoredEvent, new_id
from ledger.wire import of_desk
from workspaces import locks
from workspaces.models import Act, User, Workspace, opened_masking_key
from workspaces.pages import is_number
from workspaces.periodic import each


class EventDraft(NamedTuple):
    """One event of the desk, before it has an id."""

    type: EventType
    run: str = ""
    action: str = ""
    data: dict[str, Any] = {}


def record(
    workspace: Workspace,
    type: EventType,  # noqa: A002 - the wire's word
    *,
    run: str = "",
    action: str = "",
    data: dict[str, Any] | None = None,
    by: User | None = None,
    part: str = "engine",
) -> str:
    """Record one event of the desk, fold it, and return its id.

    With `by` the actor is that person, else the desk's `part`. `data` must be JSON; secrets in it
    are masked like anybody's.
    """
    drafted = dict(data or {})
    if type == EventType.ACTION_SETTLED:
        drafted = _of_what_is_known(workspace, run, action) | drafted
    return record_all(workspace, [EventDraft(type, run, action, drafted)], by=by, part=part)[0]


def record_all(
    workspace: Workspace,
    drafts: Sequence[EventDraft],
    *,
    by: User | None = None,
    part: str = "engine",
) -> list[str]:
    """Record several events together, which costs little more than one; returns their ids."""
    who = desk_actor(workspace, by=by, part=part)
    parsed = [_parse(who, one) for one in drafts]
    with transaction.atomic(savepoint=False), connection.wrap_database_errors:
        drivers.run(append.record(who, parsed), drivers.plain_connection())
    return [one.id for one in parsed]


def parse_all(workspace: Workspace, drafts: Sequence[EventDraft]) -> list[ParsedEvent]:
    """The events of the engine as they will be kept; asks the database nothing."""
    who = desk_actor(workspace, part="engine")
    return [_parse(who, one) for one in drafts]


def append_deferred(workspace: Workspace, parsed: Sequence[ParsedEvent]) -> list[StoredEvent]:
    """Record several events of the engine that are folded with the next one of their action.

    See "Deferred append" in `ledger.append.events`.
    """
    who = desk_actor(workspace, part="engine")
    with connection.wrap_database_errors:
        return drivers.run(append.append_deferred(who, parsed), drivers.plain_connection())


def append_completions(
    workspace: Workspace,
    parsed: Sequence[ParsedEvent],
    earlier: Mapping[FoldKey, Sequence[StoredEvent]],
) -> None:
    """Record the engine's last events of several actions in the transaction that is open.

    `earlier` has, of actions that have no row yet, all that was appended of them before; see
    "Completion append" in `ledger.append.events`.
    """
    who = desk_actor(workspace, part="engine")
    with connection.wrap_database_errors:
        plain = drivers.plain_connection()
        if not drivers.run(append.append_completions(who, parsed, earlier), plain):
            drivers.run(append.record(who, parsed), plain)


def _parse(who: Actor, one: EventDraft) -> ParsedEvent:
    event = {"id": new_id(), "type": one.type, "run": one.run, "action": one.action or None}
    return of_desk(who, event | {"data": one.data})


def _of_what_is_known(workspace: Workspace, run: str, action: str) -> dict[str, Any]:
    """Which statements a settlement has seen and so overrules, and which attempts it settles."""
    events = Event.objects.filter(workspace=workspace, run=run, action=action)
    attempts = Attempt.objects.filter(
        action__run__workspace=workspace, action__run__run=run, action__action=action
    )
    return {
        "seen": list(
            events.filter(
                type__in=[
                    EventType.ACTION_SUCCEEDED,
                    EventType.ACTION_FAILED,
                    EventType.ACTION_SETTLED,
                ]
            ).values_list("event_id", flat=True)
        ),
        "attempts": list(
            attempts.filter(
                state__in=[AttemptState.RUNNING, AttemptState.UNKNOWN, AttemptState.CONTRADICTION]
            ).values_list("attempt", flat=True)
        ),
    }


def desk_actor(workspace: Workspace, *, by: User | None = None, part: str) -> Actor:
    kind, name = ("desk", part) if by is None else ("person", str(by.pk))
    return Actor(
        workspace.pk, workspace.slug, kind, name, mask=tuple(workspace.mask),
        masking_key=masking_key(workspace),
    )  # fmt: skip


def masking_key(workspace: Workspace) -> MaskingKey:
    """What makes the workspace's placeholders. Raises `encryption.CannotOpen`."""
    secret = opened_masking_key(bytes(workspace.masking_key))
    return MaskingKey(secret, shows_last4=workspace.mask_shows_last4)


# Acts of people, taken in from the outbox of the floor below.

ACTS_AT_A_TIME = 200


def take_in() -> int:
    """Turn acts that wait into events, of each workspace the oldest first; returns how many. Two at
    once share it, and a workspace whose acts cannot be taken in keeps no other's waiting.
    """
    waiting = Act.objects.filter(taken_in_at=None).order_by("workspace")
    return each(list(waiting.values_list("workspace", flat=True).distinct()), _take_in_of)


def _take_in_of(workspace_id: int) -> int:
    done = 0
    while taken := _take_some(workspace_id):
        done += taken
        if taken < ACTS_AT_A_TIME:
            break
    return done


@transaction.atomic
def _take_some(workspace_id: int) -> int:
    waiting = list(
        locks.not_in_hand(Act.objects.filter(workspace=workspace_id))
        .select_related("workspace", "person")
        .filter(taken_in_at=None)
        .order_by("id")[:ACTS_AT_A_TIME]
    )
    for _, group in groupby(waiting, key=lambda act: act.person_id):
        acts = list(group)
        drafts = [
            EventDraft(EventType(act.type), data=act.data | {"at": act.at.isoformat()})
            for act in acts
        ]
        record_all(acts[0].workspace, drafts, by=acts[0].person, part="desk")
    Act.objects.filter(pk__in=[act.pk for act in waiting]).update(taken_in_at=Now())
    return len(waiting)


def people_of(events: Iterable[Event]) -> dict[int, User]:
    """Who did what these tell of, by their ids; the desk itself is nobody."""
    return User.objects.in_bulk({int(e.actor) for e in events if is_number(e.actor)})
