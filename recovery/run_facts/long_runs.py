"""Long runs: which of their actions are looked at, and what all of them come to.

Of a run of more actions than are gathered those come first about which somebody has to do
something: calls in doubt, then effects that stand, then what cannot be undone or was never told,
each the newest first, whatever number of other calls lies between. All of it is counted, so that
nothing which is said of the whole run depends on what was gathered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from django.db.models import (
    Case,
    Count,
    Exists,
    F,
    FilteredRelation,
    Max,
    Min,
    OuterRef,
    Q,
    QuerySet,
    When,
    Window,
)
from django.db.models.fields.json import KT
from django.db.models.functions import RowNumber

from amends.protocol.vocabulary import WITHOUT_EFFECT, ActionClass
from approvals.policy import Policy, ToolCall, class_of
from ledger.models import Action, ActionState, Checkpoint, Compensated, Effect, Reversibility, Run

ACTIONS_LOOKED_AT_MAX = 2_000
"""Of one run. A longer one is gone through in parts: what stands and finds no room comes once the
newer is undone.
"""

EFFECTS_LOOKED_AT_MAX = 10_000
"""Of these actions, but for the last one: each may have a thousand."""

LAST_SHARE = 8
"""One in so many is kept for the last calls of the run, and one for those last heard of: what they
did is often the reason why somebody looks. The first order an agent can write, the second none.
"""

NEWEST_FIRST = (F("n").desc(nulls_first=True), F("first_place").desc())
"""As the index `action_in_order` is read backwards; the order in which effects are undone."""

HAPPENED = (ActionState.SUCCEEDED, ActionState.UNKNOWN)


class Mark(NamedTuple):
    """Where in a run the first or the last call of some kind stands."""

    tool: str
    n: int | None
    first_place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """What all actions of a long run come to, as they stood when they were counted."""

    tools: frozenset[str] = frozenset()
    changing: int = 0
    """Actions of which effects are told, or something was undone."""
    effects: int = 0
    undone: Sequence[Mark] = ()
    """Of what was undone or corrected, the first of each kind of call."""
    unkeyed: Sequence[Mark] = ()
    """Likewise the last, of what succeeded, stands, and no key would recognise if it came again."""
    unknown: int = 0
    running: int = 0
    standing: int = 0
    """Effects that nobody has undone, of calls that happened or may have."""
    lasting: int = 0
    """What cannot be undone and was not corrected, beyond what stands."""
    claims: frozenset[Reversibility] = frozenset()
    """How what stands is undone, as far as catalogue, agent and twins say."""
    is_cut: bool = False
    """Whether more has to be looked at than there is room for."""


def is_behind(action: Action | Mark, checkpoint: Checkpoint) -> bool:
    """Whether the action came after the checkpoint, by `n`, else by the ledger's order."""
    if action.n is not None and checkpoint.n is not None:
        return action.n > checkpoint.n
    return action.first_place > checkpoint.place


def behind(checkpoint: Checkpoint | None) -> Q:
    """The same of many, as PostgreSQL finds them; all of them where it is the start."""
    if checkpoint is None:
        return Q()
    by_place = Q(first_place__gt=checkpoint.place)
    if checkpoint.n is None:
        return by_place
    return Q(n__gt=checkpoint.n) | (Q(n=None) & by_place)


def standing_behind(run: Run, checkpoint: Checkpoint) -> int:
    """How many effects of a run stand that came after the checkpoint."""
    acted = Action.objects.filter(behind(checkpoint), run=run, state__in=HAPPENED)
    stands = Q(effects__withdrawn=False, effects__compensated=Compensated.NONE)
    return acted.aggregate(number=Count("effects", filter=stands))["number"] or 0


def is_long(run: Run) -> bool:
    return run.action_count > ACTIONS_LOOKED_AT_MAX or run.effect_count > EFFECTS_LOOKED_AT_MAX


def looked_at(run: Run, policy: Policy, usable: Collection[str]) -> tuple[Whole, list[int]]:
    """What the run comes to, and which of its actions are gathered; `usable` are the connections
    over which something can be undone now.
    """
    groups = _grouped(run)
    share = ACTIONS_LOOKED_AT_MAX // LAST_SHARE
    room = ACTIONS_LOOKED_AT_MAX - 2 * share
    mine = Action.objects.filter(run=run)
    found: list[int] = []
    for number, rows in _to_look_at(mine, groups, policy, usable):
        most = min(number, room + 1 - len(found))
        if most > 0:
            newest = rows.exclude(pk__in=found).order_by(*NEWEST_FIRST)
            found += newest.values_list("pk", flat=True)[:most]
    chosen = found[:room]
    chosen += mine.order_by(*NEWEST_FIRST).values_list("pk", flat=True)[:share]
    if run.failed_action:
        chosen += mine.filter(action=run.failed_action).values_list("pk", flat=True)
    heard = mine.order_by(F("last_place").desc(nulls_last=True), "pk").values_list("pk", flat=True)
    chosen += heard[: max(0, ACTIONS_LOOKED_AT_MAX - len(chosen))]
    chosen = _with_room(list(dict.fromkeys(chosen)))
    is_cut = len(found) > room or not {*found} <= {*chosen}
    return _whole(groups, policy, is_cut=is_cut), chosen


def _with_room(chosen: Sequence[int]) -> list[int]:
    """The first of these actions, as many as have no more effects than are looked at."""
    effects = Effect.objects.filter(action__in=chosen, withdrawn=False).order_by()
    told = dict(effects.values_list("action").annotate(Count("pk")))
    before = accumulate((told.get(pk, 0) for pk in chosen), initial=0)
    return [pk for pk, sum_ in zip(chosen, before, strict=False) if sum_ <= EFFECTS_LOOKED_AT_MAX]


def newest_of_each_person(run: Run) -> list[int]:
    """Actions that changed something of somebody's, by turns the newest of each; none of a run that
    is gathered as a whole.
    """
    if not is_long(run):
        return []
    order = [F("action__n").desc(nulls_first=True), F("action__first_place").desc()]
    turn = Window(RowNumber(), partition_by=KT("affects__id"), order_by=order)
    found = _effects_of(run).annotate(turn=turn).order_by("turn", "-pk")
    pks = found.values_list("action", flat=True)[:ACTIONS_LOOKED_AT_MAX]
    return _with_room(list(dict.fromkeys(pks)))


def effects_by_person(run: Run) -> Iterable[tuple[str | None, str, str, int]]:
    """How many effects there are on whose things (None where nobody is named with them), of which
    type and how undone.
    """
    kinds = _effects_of(run).order_by().annotate(who=KT("affects__id"))
    return kinds.values_list("who", "target_type", "compensated").annotate(Count("pk"))


def _effects_of(run: Run) -> QuerySet[Effect]:
    return Effect.objects.filter(action__run=run, withdrawn=False)


@dataclass(frozen=True, slots=True)
class _Group:
    """So many effects that are alike, or actions without any (`target_type` is None then)."""

    state: str
    compensated: str
    tool: str
    action_class: str
    trusted: bool
    target_type: str | None
    reversibility: str | None
    undone: str | None
    is_first: bool
    """Whether each is the first effect of its action, or no effect at all: one for each action."""
    is_unkeyed: bool
    has_n: bool
    number: int
    first_n: int | None
    last_n: int | None
    first_place: int
    last_place: int

    @property
    def call(self) -> ToolCall:
        return ToolCall(tool=self.tool, action_class=self.action_class, trusted=self.trusted)

    @property
    def stands(self) -> bool:
        return self.undone == Compensated.NONE and self.state in HAPPENED

    def is_irreversible(self, policy: Policy) -> bool:
        """As `RunFacts.is_irreversible` has it."""
        if class_of(policy, self.call) == ActionClass.EXTERNAL_IRREVERSIBLE:
            return True
        if self.target_type is None:
            return False
        twin = policy.twin(self.tool, self.target_type)
        claims = (self.reversibility, twin.reversibility if twin is not None else None)
        return Reversibility.IRREVERSIBLE in claims

    def claim(self, policy: Policy) -> Reversibility | None:
        """As `RunFacts.reversibility_of`; None where the connector of a twin tells."""
        if self.is_irreversible(policy):
            return Reversibility.IRREVERSIBLE
        twin = policy.twin(self.tool, self.target_type or "")
        claims = {self.reversibility, twin.reversibility if twin is not None else None}
        for one in (Reversibility.COMPENSABLE, Reversibility.EXACT):
            if one in claims:
                return one
        return None if twin is not None else Reversibility.UNKNOWN

    def lasts(self, policy: Policy) -> bool:
        """Whether it goes on after what stands is undone, as `RunFacts.irreversible` has it."""
        if self.state != ActionState.SUCCEEDED or self.compensated == Compensated.CORRECTED:
            return False
        is_open = not self.stands and self.undone != Compensated.CORRECTED
        return is_open and self.is_irreversible(policy)

    def may_double(self, policy: Policy) -> bool:
        """Whether a call that comes again would be made again, as `resuming` labels it."""
        is_done = self.state == ActionState.SUCCEEDED and self.compensated == Compensated.NONE
        return is_done and self.is_unkeyed and class_of(policy, self.call) not in WITHOUT_EFFECT

    def is_untold(self, policy: Policy) -> bool:
        """Whether it may have changed something of which nobody told."""
        is_silent = self.target_type is None and self.compensated == Compensated.NONE
        succeeded = self.state == ActionState.SUCCEEDED
        return is_silent and succeeded and class_of(policy, self.call) not in WITHOUT_EFFECT


def _grouped(run: Run) -> list[_Group]:
    """All of a run, once, by what a judgement looks at: as many rows as it has kinds of calls."""
    told = FilteredRelation("effects", condition=Q(effects__withdrawn=False))
    rows = Action.objects.filter(run=run).order_by().alias(told=told)
    rows = rows.annotate(
        is_first=Case(When(told__position__gt=0, then=False), default=True),
        is_unkeyed=Case(When(key="", then=True), default=False),
        has_n=Case(When(n=None, then=False), default=True),
    )
    columns = (
        "state", "compensated", "tool", "action_class", "trusted", "told__target_type",
        "told__reversibility", "told__compensated", "is_first", "is_unkeyed", "has_n",
    )  # fmt: skip
    found = rows.values_list(*columns).annotate(
        Count("pk"), Min("n"), Max("n"), Min("first_place"), Max("first_place")
    )
    return [_Group(*one) for one in found]


def _whole(groups: Sequence[_Group], policy: Policy, *, is_cut: bool) -> Whole:
    calls = [one for one in groups if one.is_first]
    undone = [one for one in calls if one.compensated != Compensated.NONE]
    told = [one for one in groups if one.target_type is not None]
    return Whole(
        tools=frozenset(one.tool for one in calls),
        changing=_count(one for one in calls if one.target_type is not None or one in undone),
        effects=_count(told),
        undone=[Mark(one.tool, one.first_n, one.first_place) for one in undone],
        unkeyed=[
            Mark(one.tool, one.last_n, one.last_place) for one in calls if one.may_double(policy)
        ],
        unknown=_count(one for one in calls if one.state == ActionState.UNKNOWN),
        running=_count(one for one in calls if one.state == ActionState.RUNNING),
        standing=_count(one for one in groups if one.stands),
        lasting=_count(one for one in groups if one.lasts(policy)),
        claims=frozenset(filter(None, (one.claim(policy) for one in groups if one.stands))),
        is_cut=is_cut,
    )


def _to_look_at(
    mine: QuerySet[Action], groups: Sequence[_Group], policy: Policy, usable: Collection[str]
) -> Iterator[tuple[int, QuerySet[Action]]]:
    """What comes first, and at most how many actions of each kind there are, so that none are
    sought in vain; of what stands that which can be undone, as far as tool and connection say, for
    only that makes room.
    """
    told = Effect.objects.filter(action=OuterRef("pk"), withdrawn=False)
    stands = Exists(told.filter(compensated=Compensated.NONE))
    doubtful = [ActionState.UNKNOWN, ActionState.RUNNING]
    yield (
        _count(one for one in groups if one.is_first and one.state in doubtful),
        mine.filter(state__in=doubtful),
    )
    standing = [one for one in groups if one.stands]
    ways = {one.tool for one in standing if _has_way(one, policy, usable)}
    succeeded = mine.filter(state=ActionState.SUCCEEDED)
    has_way = Q(tool__in=ways) | Q(compensation__has_key="connection")
    yield _count(standing), succeeded.filter(has_way, stands)
    yield _count(one for one in standing if one.tool not in ways), succeeded.filter(stands)
    lasting = {one.tool for one in groups if one.lasts(policy)}
    is_open = ~Exists(told) | Exists(told.exclude(compensated=Compensated.CORRECTED))
    yield ACTIONS_LOOKED_AT_MAX * bool(lasting), succeeded.filter(is_open, tool__in=lasting)
    untold = {one.tool for one in groups if one.is_untold(policy)}
    silent = succeeded.filter(~Exists(told), tool__in=untold, compensated=Compensated.NONE)
    yield ACTIONS_LOOKED_AT_MAX * bool(untold), silent


def _has_way(one: _Group, policy: Policy, usable: Collection[str]) -> bool:
    twin = policy.twin(one.tool, one.target_type or "")
    return twin is not None and twin.connection in usable


def _count(groups: Iterable[_Group]) -> int:
    return sum(one.number for one in groups)
