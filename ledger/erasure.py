"""Erasure: a person's payloads go, the log and every proof of it stay.

Who erases walks workspaces.erasure_registry, empties the events themselves (the owner's one lawful
change: payload and salt become NULL), and leaves a line in the registry of erasures. The leaves
hold digests over a salt that no longer exists, so nothing can be guessed out of them.
"""

import hashlib
import secrets
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connections, transaction
from django.db.models import QuerySet
from django.db.models.functions import Collate, Now

from amends.protocol.vocabulary import EventType
from ledger import snapshots
from ledger.models import Action, Effect, Erasure, ErasureState, Run
from ledger.partitions import owner_alias
from workspaces import erasure_registry, locks, outbox
from workspaces.erasure_registry import Scope
from workspaces.models import User, Workspace
from workspaces.periodic import each

# Emptying events: the owner's one lawful change, payload and salt become NULL.
#
# What is to be emptied is asked for first and then named by lists of values. Joined in one
# statement PostgreSQL read the events of every week for each part of an erasure.
#
# A run may have a hundred thousand events: whoever empties says how many at most, and comes again.

EVENTS_AT_A_TIME = 5_000

# The trigger lets this through and nothing else; only the owner's role may UPDATE at all.
ERASING = "SET LOCAL amends.erasing = 'yes'"
OVER = "SET LOCAL amends.erasing = ''"
_TOLD = """
SELECT place, received_at, event_id, ARRAY(
    SELECT found[1] FROM regexp_matches(data::text, '"sha256:([0-9a-f]{64})"', 'g') AS found)
FROM ledger_event WHERE workspace_id = %(workspace)s AND data IS NOT NULL"""
OF_RUNS = f"{_TOLD} AND run = ANY(%(runs)s) LIMIT %(at_most)s"
# Each pair is looked up by itself (OFFSET 0 keeps it so): an action's id alone may stand in many.
OF_ACTIONS = f"""
SELECT told.* FROM unnest(%(runs)s::text[], %(actions)s::text[]) AS wanted(of_run, of_action)
CROSS JOIN LATERAL ({_TOLD} AND run = of_run AND action = of_action OFFSET 0) AS told
LIMIT %(at_most)s"""  # noqa: S608 - put together of constants
# What the desk and people said of a whole run of somebody else's: its case, its plans, letters.
OF_TOUCHED = f"""{_TOLD} AND run = ANY(%(touched)s) AND action = '' AND actor_kind <> 'agent'
    AND type NOT LIKE 'run.%%' LIMIT %(at_most)s"""
EMPTY_EVENTS = """
UPDATE ledger_event SET data = NULL, salt = NULL WHERE workspace_id = %(workspace)s
    AND place = ANY(%(places)s) AND received_at = ANY(%(moments)s)"""
EMPTY_KEYS = """
UPDATE ledger_eventkey SET content = ''
WHERE workspace_id = %(workspace)s AND event_id = ANY(%(events)s)"""
# Of an event that came again with other content; its digest has no salt either.
EMPTY_CONFLICTS = """
UPDATE ledger_eventconflict SET content = ''
WHERE workspace_id = %(workspace)s AND event_id = ANY(%(events)s)"""
EMPTY_SNAPSHOTS = """
UPDATE ledger_blob SET content = NULL
WHERE workspace_id = %(workspace)s AND sha256 = ANY(%(snapshots)s)"""
# By which somebody else's call is undone. Each is looked up by itself (OFFSET 0 keeps it so).
NAMED_BY_OTHERS = f"""
SELECT wanted.ref FROM unnest(%(refs)s::text[]) AS wanted (ref) WHERE EXISTS (
    SELECT FROM ({snapshots.naming("wanted.ref")}) AS named
    JOIN ledger_action a ON a.id = named.action_id AND a.id <> ALL(%(single)s)
    JOIN ledger_run r ON r.id = a.run_id AND r.id <> ALL(%(whole)s) AND r.forgotten_at IS NULL
    OFFSET 0)"""  # noqa: S608 - our own words


def empty_events(
    scope: Scope, pairs: Sequence[tuple[str, str]], *, using: str, at_most: int
) -> int:
    """Empty the events of the scope's runs, those of single actions: (run, action), and what was
    said of the whole of the runs that these are of.

    Their keys and the snapshots that they alone name go with them. Returns how many events were
    emptied; where that is `at_most`, more may be left.
    """
    emptied = 0
    with connections[using].cursor() as cursor:
        told = _told(cursor, scope, pairs, at_most)
        cursor.execute(ERASING)
        for start in range(0, len(told), EVENTS_AT_A_TIME):
            some = told[start : start + EVENTS_AT_A_TIME]
            emptied += empty_these(cursor, scope.workspace.pk, some)
        cursor.execute(OVER)
        if named := sorted({one for row in told for one in row[3]}):
            _empty_snapshots(cursor, scope, named)
    return emptied


def _empty_snapshots(cursor: Any, scope: Scope, named: list[str]) -> None:
    workspace, refs = scope.workspace.pk, [f"{snapshots.PREFIX}{one}" for one in named]
    mine = {"whole": list(scope.runs), "single": list(scope.actions)}
    cursor.execute(NAMED_BY_OTHERS, {"workspace": workspace, "refs": refs, **mine})
    theirs = {ref.removeprefix(snapshots.PREFIX) for (ref,) in cursor.fetchall()}
    hers = [one for one in named if one not in theirs]
    cursor.execute(EMPTY_SNAPSHOTS, {"workspace": workspace, "snapshots": hers})


def _told(
    cursor: Any, scope: Scope, pairs: Sequence[tuple[str, str]], at_most: int
) -> list[tuple[Any, ...]]:
    """Place, moment, id and snapshots of events that still have a payload."""
    given: dict[str, Any] = {"workspace": scope.workspace.pk, "at_most": at_most}
    whole = set(scope.names)
    cursor.execute(OF_RUNS, given | {"runs": list(whole)})
    told: list[tuple[Any, ...]] = cursor.fetchall()
    wanted = sorted({pair for pair in pairs if pair[0] not in whole})
    if wanted and len(told) < at_most:
        runs, actions = (list(column) for column in zip(*wanted, strict=True))
        left = {"runs": runs, "actions": actions, "at_most": at_most - len(told)}
        cursor.execute(OF_ACTIONS, given | left)
        told += cursor.fetchall()
    if scope.touched and len(told) < at_most:
        touched = [*scope.touched_names]
        cursor.execute(OF_TOUCHED, given | {"touched": touched, "at_most": at_most - len(told)})
        told += cursor.fetchall()
    # Whether more is left is told by how many were emptied: one that is found twice counts once.
    found = {row[0]: row for row in told}
    for place, moment, event_id in erasure_registry.acts_naming(scope):
        found.setdefault(place, (place, moment, event_id, []))
    return list(found.values())[:at_most]


def empty_these(cursor: Any, workspace_id: int, told: Sequence[tuple[Any, ...]]) -> int:
    """Empty events: (place, moment, id, …). The cursor is the owner's and said ERASING."""
    cursor.execute(
        EMPTY_EVENTS,
        {"workspace": workspace_id, "places": [row[0] for row in told],
         "moments": sorted({row[1] for row in told})},
    )  # fmt: skip
    emptied: int = cursor.rowcount
    events = [row[2] for row in told]
    for statement in (EMPTY_KEYS, EMPTY_CONFLICTS):
        cursor.execute(statement, {"workspace": workspace_id, "events": events})
    return emptied


SALT_BYTES = 32
TURN_SECONDS_MAX = 20.0
LOOK_AGAIN_SECONDS = 0.2
"""Where another worker has it in hand."""
BLOCKERS_SHOWN = 20
FOUND_BY = ("ledger.Effect", "ledger.Run")
"""What other rows of a scope are found by stands in these, so they are forgotten after them."""


class StillWorkedOn(Exception):
    """We stopped because somebody still works on these runs: close their cases first."""

    def __init__(self, runs: list[str]) -> None:
        shown = ", ".join(runs[:BLOCKERS_SHOWN]) + (" …" if len(runs) > BLOCKERS_SHOWN else "")
        super().__init__(f"Still being worked on: {shown}. Close their cases, then erase.")
        self.runs = runs


class NothingFound(Exception):
    """We stopped because nothing here is of that person, or of those runs."""


@dataclass(frozen=True)
class ErasurePreview:
    """What an erasure would forget, and what stands in its way."""

    scope: Scope
    names: list[str] = field(default_factory=list)
    """Of the runs that were meant, without the desk's own that belong to them."""
    blockers: list[str] = field(default_factory=list)

    @property
    def is_nothing(self) -> bool:
        return not self.scope.runs and not self.scope.actions


def find(workspace: Workspace, *, person: str = "", runs: Sequence[str] = ()) -> ErasurePreview:
    """A person's runs, those that are named, and single actions of others on what is theirs."""
    mine = Run.objects.filter(workspace=workspace)
    whole = set(mine.filter(run__in=runs).values_list("pk", flat=True))
    if person:
        whole |= set(_acting_for(workspace, person).values_list("pk", flat=True)[:RUNS_MAX])
    names = list(mine.filter(pk__in=whole).order_by("pk").values_list("run", flat=True))
    whole = set(erasure_registry.with_what_belongs(workspace, sorted(whole)))
    actions = actions_on(workspace, person, whole) if person else []
    actions = erasure_registry.with_mirrors(workspace, actions)
    touched = sorted(set(Action.objects.filter(pk__in=actions).values_list("run", flat=True)))
    scope = scope_of(workspace, sorted(whole), actions=actions, person=person, touched=touched)
    return ErasurePreview(scope, names, _blockers(workspace, [*scope.runs, *touched]))


def _acting_for(workspace: Workspace, person: str) -> QuerySet[Run]:
    """Not what is forgotten: whoever asks for ⟦erased⟧ would find the same runs again and again."""
    return Run.objects.filter(workspace=workspace, customer=person, forgotten_at=None)


def _blockers(workspace: Workspace, runs: Sequence[int]) -> list[str]:
    busy = Run.objects.filter(pk__in=erasure_registry.resting(workspace, runs))
    return list(busy.order_by("run").values_list("run", flat=True)[: BLOCKERS_SHOWN + 1])


def ask(
    workspace: Workspace,
    *,
    person: str = "",
    runs: Sequence[str] = (),
    by: User | None,
    reason: str = "",
) -> Erasure:
    """Write down that what `find` finds is to be forgotten; `work` does it, part by part.

    Raises `NothingFound` or `StillWorkedOn`. It can be asked again: what came since is found then.
    While one of the person goes on it is that one; runs named beside them get one of their own.
    """
    if person and (same := _waiting(workspace).filter(person=person).first()):
        if not runs:
            return same
        person = ""
    found = find(workspace, person=person, runs=runs)
    if found.is_nothing:
        raise NothingFound("Nothing here is of that person or of these runs.")
    if found.blockers:
        raise StillWorkedOn(found.blockers)
    salt = secrets.token_bytes(SALT_BYTES)
    return Erasure.objects.using(owner_alias()).create(
        workspace=workspace, salt=salt, by=by, reason=reason, state=ErasureState.WAITING,
        person_digest=person_digest(salt, person) if person else None,
        person=person, named=found.names, total=len(found.names),
    )  # fmt: skip


def erase(
    workspace: Workspace,
    *,
    person: str = "",
    runs: Sequence[str] = (),
    by: User | None,
    reason: str = "",
) -> Erasure:
    """Ask for it and see it through, whoever else has it in hand; one of the same person that goes
    on, too. Raises `NothingFound` or `StillWorkedOn`, as `ask` does.
    """
    if person and runs and (same := _waiting(workspace).filter(person=person).first()):
        _see_through(same)
    return _see_through(ask(workspace, person=person, runs=runs, by=by, reason=reason))


def _waiting(workspace: Workspace) -> QuerySet[Erasure]:
    return Erasure.objects.filter(workspace=workspace, state=ErasureState.WAITING)


def _see_through(asked: Erasure) -> Erasure:
    while asked.state == ErasureState.WAITING:
        if not work(asked.pk):
            asked.refresh_from_db()
            if asked.state == ErasureState.WAITING:
                time.sleep(LOOK_AGAIN_SECONDS)
    if asked.state == ErasureState.REFUSED:
        raise StillWorkedOn(asked.detail.split(", "))
    return asked


def sweep() -> int:
    """Go on with erasures that people asked for; how many parts were done. One that fails keeps no
    other waiting.
    """
    until = time.monotonic() + TURN_SECONDS_MAX

    def go_on(pk: int) -> int:
        parts = 0
        while time.monotonic() < until:
            parts += 1
            if not work(pk):
                break
        return parts

    open_ = Erasure.objects.filter(state=ErasureState.WAITING).order_by("pk")
    return each(list(open_.values_list("pk", flat=True)), go_on)


def work(erasure_id: int) -> bool:
    """Forget one more part, in one transaction of the owner's role; False when it is over.

    A part is bounded, so nobody waits long for its locks, and what was done stays done whatever
    happens to this process.
    """
    alias = owner_alias()
    with transaction.atomic(using=alias):
        mine = locks.not_in_hand(Erasure.objects.using(alias))
        erasure = mine.filter(pk=erasure_id, state=ErasureState.WAITING).first()
        if erasure is None:
            return False
        part = next_part(erasure)
        if part is None:
            _finish(erasure, ErasureState.DONE)
            return False
        scope = part.scope
        hold([*scope.runs, *scope.touched], using=alias)
        if blockers := _blockers(erasure.workspace, [*_untouched(scope.runs), *scope.touched]):
            _finish(erasure, ErasureState.REFUSED, ", ".join(blockers[:BLOCKERS_SHOWN]))
            return False
        if _forget_part(erasure, scope, alias):
            if part.is_last:
                _finish(erasure, ErasureState.DONE)
                return False
            erasure.named = part.left
        erasure.save()
    return True


def hold(runs: Sequence[int], *, using: str) -> None:
    """Lock runs by their names, as recordings do: who was at work on one has said all they did,
    and who comes now finds it forgotten.
    """
    named = locks.locked(Run.objects.using(using).filter(pk__in=runs))
    list(named.order_by(Collate("run", "C"), "pk").values_list("pk"))


def _untouched(runs: Sequence[int]) -> list[int]:
    """Those of which nothing was forgotten yet."""
    alias = owner_alias()
    found = Run.objects.using(alias).filter(pk__in=runs, forgotten_at=None)
    return list(found.values_list("pk", flat=True))


def _forget_part(erasure: Erasure, scope: Scope, alias: str) -> bool:
    """Whether the scope is forgotten to its end."""
    emptied = empty_events(scope, list(pairs_of(scope)), using=alias, at_most=EVENTS_OF_PART)
    erasure.event_count += emptied
    Run.objects.using(alias).filter(pk__in=scope.touched).update(has_erased_actions=True)
    # What was begun is said in the same transaction: from here on the run takes no more events,
    # nothing folds it anew, and nobody who comes back stops it half done.
    Run.objects.using(alias).filter(pk__in=_untouched(scope.runs)).update(forgotten_at=Now())
    if emptied >= EVENTS_OF_PART:
        return False
    # Single actions are found by whom their effects affect, so those go in one.
    at_most = None if scope.actions else ROWS_OF_PART
    rows, is_over = forget(scope, using=alias, at_most=at_most)
    for model, count in rows.items():
        erasure.rows[model] = erasure.rows.get(model, 0) + count
    erasure.run_count += len(scope.runs) if is_over else 0
    return is_over


def _finish(erasure: Erasure, state: str, detail: str = "") -> None:
    """The person's id was only needed for the work."""
    erasure.state, erasure.detail = state, detail
    erasure.person, erasure.named = "", []
    erasure.save()
    told = {"erasure": erasure.pk, "runs": erasure.run_count, "events": erasure.event_count}
    outbox.record(
        erasure.workspace, EventType.LEDGER_ERASED, by=erasure.by, data=told, using=owner_alias()
    )


def forget(scope: Scope, *, using: str, at_most: int | None = None) -> tuple[dict[str, int], bool]:
    """Replace what stands in the rows of a scope; how many, by table, and whether that was all.
    The events stay. With `at_most` it stops after so many rows of a table, to be asked again.
    """
    rows: dict[str, int] = {}
    order = {model: place for place, model in enumerate(FOUND_BY)}
    for one in sorted(erasure_registry.held(), key=lambda one: order.get(one.model, -1)):
        changed = one.forget(scope, using, at_most)
        if changed:
            rows[one.model] = max(rows.get(one.model, 0), changed)
        if at_most is not None and one.can_stop and changed >= at_most:
            return rows, False
    Run.objects.using(using).filter(pk__in=scope.runs).update(forgotten_at=Now())
    return rows, True


def person_digest(salt: bytes, person: str) -> bytes:
    return hashlib.sha256(salt + person.encode()).digest()


def erased_before(workspace: Workspace, person: str) -> list[Erasure]:
    """The erasures of this very person: their ids are not kept, but can be recognised."""
    known: Any = Erasure.objects.filter(workspace=workspace).exclude(person_digest=None)
    return [
        one for one in known.order_by("-pk")
        if bytes(one.person_digest) == person_digest(bytes(one.salt), person)
    ]  # fmt: skip


# Parts: what of an erasure is forgotten in one transaction.
#
# Many small runs are one part; one with many actions or effects is a part by itself. Whatever has
# more events or rows than a part may have is come back to until it is over: its runs count as
# forgotten from the first of these transactions on.

RUNS_MAX = 10_000
"""So many of a person are named at a time; the work itself goes on until nothing is left."""

RUNS_AT_A_TIME = 200
EVENTS_OF_PART = ROWS_OF_PART = 10_000
"""A part has at most so many events, and rows of a table: a second or two of the owner's locks. A
run that has more is forgotten in several parts, its events first.
"""

SIZES = ("pk", "run", "action_count", "effect_count")


@dataclass(frozen=True)
class ErasureBatch:
    """What is forgotten in one transaction, and which named runs are left after it."""

    scope: Scope
    left: list[str]
    is_last: bool


def next_part(erasure: Erasure) -> ErasureBatch | None:
    """Runs first, then single actions of others; a small erasure is one part.

    No index leads from a person to their runs: they were named when it was asked for, and only who
    came since is looked for at the end.
    """
    workspace, person = erasure.workspace, erasure.person
    whole, left, is_large = _first_named(workspace, erasure.named)
    if person and not left:
        since = _acting_for(workspace, person).exclude(pk__in=whole).order_by("pk")
        left = list(since.values_list("run", flat=True)[:RUNS_MAX])
    whole = erasure_registry.with_what_belongs(workspace, sorted(whole))
    actions = actions_on(workspace, person, whole) if person and not left and not is_large else []
    if not whole and not actions and not left:
        return None
    is_last = not left and len(actions) < RUNS_AT_A_TIME and not (person and is_large)
    actions = erasure_registry.with_mirrors(workspace, actions[:RUNS_AT_A_TIME])
    touched = sorted(set(Action.objects.filter(pk__in=actions).values_list("run", flat=True)))
    scope = scope_of(workspace, whole, actions=actions, person=person, touched=touched)
    return ErasureBatch(scope, left, is_last)


def _first_named(workspace: Workspace, named: list[str]) -> tuple[list[int], list[str], bool]:
    """The runs of the next part, the names left after it, and whether it is one large run: that
    stands alone, for it takes several parts.
    """
    some = Run.objects.filter(workspace=workspace, run__in=named[:RUNS_AT_A_TIME])
    known = {name: (pk, max(a, e)) for pk, name, a, e in some.values_list(*SIZES)}
    whole: list[int] = []
    rows = 0
    for place, name in enumerate(named[:RUNS_AT_A_TIME]):
        pk, more = known.get(name, (None, 0))
        if whole and rows + more > ROWS_OF_PART:
            return whole, named[place:], False
        rows += more
        whole += [pk] if pk else []
    return whole, named[RUNS_AT_A_TIME:], rows > ROWS_OF_PART


def actions_on(workspace: Workspace, person: str, runs: Collection[int]) -> list[int]:
    affecting = Effect.objects.filter(workspace=workspace, affects__id=person)
    others = affecting.exclude(action__run__in=runs)
    return sorted(others.values_list("action", flat=True).distinct()[:RUNS_MAX])


def scope_of(
    workspace: Workspace,
    runs: Sequence[int],
    *,
    actions: Sequence[int] = (),
    person: str = "",
    touched: Sequence[int] = (),
) -> Scope:
    name_of = dict(
        Run.objects.filter(erasure_registry.among("pk", [*runs, *touched])).values_list("pk", "run")
    )
    names, touched_names = (
        tuple(name_of[one] for one in some if one in name_of) for some in (runs, touched)
    )
    return Scope(
        workspace, tuple(runs), names, tuple(actions), person,
        touched=tuple(touched), touched_names=touched_names,
    )  # fmt: skip


def pairs_of(scope: Scope) -> Any:
    return Action.objects.filter(pk__in=scope.actions).values_list("run__run", "action")
