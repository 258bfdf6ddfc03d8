"""Erasure: a person's payloads go, the log and every proof of it stay.

Who erases walks the registry of workspaces.forgetting, empties the events themselves (the owner's
one lawful change: payload and salt become NULL), and leaves a line in the registry of erasures. The
leaves hold digests over a salt that no longer exists, so nothing can be guessed out of them.
"""

import hashlib
import secrets
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from ledger.emptying import empty_events
from ledger.models import Action, Effect, Erasure, ErasureState, Run
from ledger.partitions import owner_alias
from workspaces import acts, forgetting
from workspaces.forgetting import Scope
from workspaces.models import User, Workspace

SALT_BYTES = 32
RUNS_MAX = 10_000
"""So many of a person are named at a time; the work itself goes on until nothing is left."""

RUNS_AT_A_TIME = 200
TURN_SECONDS_MAX = 20.0
TARGETS_MAX = 10_000
BLOCKERS_SHOWN = 20


class StillWorkedOn(Exception):
    """We stopped because somebody still works on these runs: close their cases first."""

    def __init__(self, runs: list[str]) -> None:
        shown = ", ".join(runs[:BLOCKERS_SHOWN]) + (" …" if len(runs) > BLOCKERS_SHOWN else "")
        super().__init__(f"Still being worked on: {shown}. Close their cases, then erase.")
        self.runs = runs


class NothingFound(Exception):
    """We stopped because nothing here is of that person, or of those runs."""


@dataclass(frozen=True)
class Found:
    """What an erasure would forget, and what stands in its way."""

    scope: Scope
    names: list[str] = field(default_factory=list)
    """Of the runs that were meant, without the desk's own that belong to them."""
    blockers: list[str] = field(default_factory=list)

    @property
    def is_nothing(self) -> bool:
        return not self.scope.runs and not self.scope.actions


def find(workspace: Workspace, *, person: str = "", runs: Sequence[str] = ()) -> Found:
    """A person's runs, those that are named, and single actions of others on what is theirs."""
    mine = Run.objects.filter(workspace=workspace)
    whole = set(mine.filter(run__in=runs).values_list("pk", flat=True))
    if person:
        whole |= set(mine.filter(customer=person).values_list("pk", flat=True)[:RUNS_MAX])
    names = list(mine.filter(pk__in=whole).order_by("pk").values_list("run", flat=True))
    whole = set(forgetting.with_what_belongs(workspace, sorted(whole)))
    actions = list(_actions_on(workspace, person, whole)) if person else []
    touched = sorted(set(Action.objects.filter(pk__in=actions).values_list("run", flat=True)))
    scope = scope_of(workspace, sorted(whole), actions=actions, person=person, touched=touched)
    return Found(scope, names, _blockers(workspace, [*scope.runs, *touched]))


def _actions_on(workspace: Workspace, person: str, runs: Collection[int] = ()) -> list[int]:
    affecting = Effect.objects.filter(workspace=workspace, affects__id=person)
    others = affecting.exclude(action__run__in=runs)
    return sorted(set(others.values_list("action", flat=True)[:RUNS_MAX]))


def scope_of(
    workspace: Workspace,
    runs: Sequence[int],
    *,
    actions: Sequence[int] = (),
    person: str = "",
    touched: Sequence[int] = (),
) -> Scope:
    names = Run.objects.filter(pk__in=runs).values_list("run", flat=True)
    effects = Effect.objects.filter(action__run__in=runs) | Effect.objects.filter(
        action__in=actions
    )
    targets = effects.values_list("target_type", "target_id").distinct()[:TARGETS_MAX]
    return Scope(
        workspace, tuple(runs), tuple(names), tuple(actions), person,
        tuple(f"{kind}/{name}" for kind, name in targets), touched=tuple(touched),
    )  # fmt: skip


def _blockers(workspace: Workspace, runs: Sequence[int]) -> list[str]:
    busy = Run.objects.filter(pk__in=forgetting.resting(workspace, runs))
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
    """
    waiting = Erasure.objects.filter(workspace=workspace, state=ErasureState.WAITING)
    if person and (same := waiting.filter(person=person).first()):
        return same
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
    """Ask for it and see it through. Raises `NothingFound` or `StillWorkedOn`, as `ask` does."""
    asked = ask(workspace, person=person, runs=runs, by=by, reason=reason)
    while work(asked.pk):
        pass
    asked.refresh_from_db()
    if asked.state == ErasureState.REFUSED:
        raise StillWorkedOn(asked.detail.split(", "))
    return asked


def sweep() -> int:
    """Go on with erasures that people asked for; how many parts were done."""
    until, parts = time.monotonic() + TURN_SECONDS_MAX, 0
    open_ = Erasure.objects.filter(state=ErasureState.WAITING).order_by("pk")
    for pk in list(open_.values_list("pk", flat=True)):
        while time.monotonic() < until:
            parts += 1
            if not work(pk):
                break
    return parts


def work(erasure_id: int) -> bool:
    """Forget one more part, in one transaction of the owner's role; False when it is over.

    A part is bounded, so nobody waits long for its locks, and what was done stays done whatever
    happens to this process.
    """
    alias = owner_alias()
    with transaction.atomic(using=alias):
        mine = Erasure.objects.using(alias).select_for_update(of=("self",), skip_locked=True)
        erasure = mine.filter(pk=erasure_id, state=ErasureState.WAITING).first()
        if erasure is None:
            return False
        part = _next_part(erasure)
        if part is None:
            _finish(erasure, ErasureState.DONE)
            return False
        scope = part.scope
        if blockers := _blockers(erasure.workspace, [*scope.runs, *scope.touched]):
            _finish(erasure, ErasureState.REFUSED, ", ".join(blockers[:BLOCKERS_SHOWN]))
            return False
        _forget_part(erasure, scope, alias)
        if part.is_last:
            _finish(erasure, ErasureState.DONE)
            return False
        erasure.named = part.left
        erasure.save()
    return True


@dataclass(frozen=True)
class Part:
    """What is forgotten in one transaction, and which named runs are left after it."""

    scope: Scope
    left: list[str]
    is_last: bool


def _next_part(erasure: Erasure) -> Part | None:
    """Runs first, then single actions of others; a small erasure is one part, all or nothing.

    No index leads from a person to their runs: they were named when it was asked for, and only who
    came since is looked for at the end.
    """
    workspace, person = erasure.workspace, erasure.person
    mine = Run.objects.filter(workspace=workspace)
    named, left = erasure.named[:RUNS_AT_A_TIME], erasure.named[RUNS_AT_A_TIME:]
    whole = list(mine.filter(run__in=named).values_list("pk", flat=True))
    if person and not left:
        since = mine.filter(customer=person).exclude(pk__in=whole).order_by("pk")
        left = list(since.values_list("run", flat=True)[:RUNS_MAX])
    whole = forgetting.with_what_belongs(workspace, sorted(whole))
    actions = _actions_on(workspace, person, whole) if person and not left else []
    if not whole and not actions and not left:
        return None
    is_last = not left and len(actions) < RUNS_AT_A_TIME
    actions = actions[:RUNS_AT_A_TIME]
    touched = sorted(set(Action.objects.filter(pk__in=actions).values_list("run", flat=True)))
    scope = scope_of(workspace, whole, actions=actions, person=person, touched=touched)
    return Part(scope, left, is_last)


def _forget_part(erasure: Erasure, scope: Scope, alias: str) -> None:
    pairs = list(_pairs(scope))
    for model, count in forget(scope, using=alias).items():
        erasure.rows[model] = erasure.rows.get(model, 0) + count
    erasure.event_count += empty_events(scope, pairs, using=alias)
    erasure.run_count += len(scope.runs)


def _finish(erasure: Erasure, state: str, detail: str = "") -> None:
    """The person's id was only needed for the work."""
    erasure.state, erasure.detail = state, detail
    erasure.person, erasure.named = "", []
    erasure.save()
    told = {"erasure": erasure.pk, "runs": erasure.run_count, "events": erasure.event_count}
    acts.record(erasure.workspace, "ledger.erased", by=erasure.by, data=told, using=owner_alias())


def _pairs(scope: Scope) -> Any:
    return Action.objects.filter(pk__in=scope.actions).values_list("run__run", "action")


def forget(scope: Scope, *, using: str) -> dict[str, int]:
    """Replace what stands in the rows of a scope; how many, by table. The events stay."""
    rows: dict[str, int] = {}
    for one in forgetting.held():
        if changed := one.forget(scope, using):
            rows[one.model] = max(rows.get(one.model, 0), changed)
    Run.objects.using(using).filter(pk__in=scope.runs).update(forgotten_at=Now())
    return rows


def person_digest(salt: bytes, person: str) -> bytes:
    return hashlib.sha256(salt + person.encode()).digest()


def erased_before(workspace: Workspace, person: str) -> list[Erasure]:
    """The erasures of this very person: their ids are not kept, but can be recognised."""
    known: Any = Erasure.objects.filter(workspace=workspace).exclude(person_digest=None)
    return [
        one for one in known.order_by("-pk")
        if bytes(one.person_digest) == person_digest(bytes(one.salt), person)
    ]  # fmt: skip
