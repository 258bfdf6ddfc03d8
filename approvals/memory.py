"""Memory: values that are known, and what is written with a call: these, and what it holds of sums;
and which runs were denied often, or did what is worth a look.

A tally is written in the transaction in which the call proceeds, and only where nobody has written
it since it was read (`gate_remember`, in the last migration of that name), so that any number of
calls at once never pass a cap. What a call holds is written beside it, by its action: whoever reads
the tally next looks what became of it. A call without effect gives back what it held, and a granted
call holds what it asked for before it is made; nobody has to be told of either, so nothing is lost.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.db.models import Max, QuerySet, Sum
from django.db.models.functions import Now

from amends.protocol.vocabulary import KEYS_KEPT_DAYS, WITHOUT_EFFECT
from approvals import tallies
from approvals.models import Denial, Reservation, Review, Sighting, Tally
from approvals.policy.conditions import Cap
from approvals.policy.spelling import as_known
from approvals.tallies import Meter, TallyOwner, TallyState, digest_of
from ledger.append.statements import Statement, array
from ledger.models import ActionState, Compensated, Run
from ledger.models.runs import Verified
from ledger.schemas import IMPORTED
from workspaces.lookalikes import skeleton
from workspaces.moves import literals

KEPT_DAYS = 62  # twice the longest window
DENIALS_KEPT_DAYS = 30  # as far back as a dry run looks
FORGOTTEN_AT_A_TIME = 1_000
SIGHTED_MAX = 200
"""Of a value so many calls, the newest, are looked through."""
ALIKE_MAX, ALIKE_CALLS_MAX = 50, 20
"""Of the values that look like one that is not known so many, and of each so many calls."""

_json = msgspec.json.Encoder()


# Values that are known: done before, stood every check, and never overturned.

_READING = ", ".join(f"'{one}'" for one in sorted(WITHOUT_EFFECT))
GOOD = f"""a.state = '{ActionState.SUCCEEDED.value}'
    AND a.verified <> '{Verified.FAILED.value}' AND a.compensated = '{Compensated.NONE.value}'"""
TAKEN_BACK = (Compensated.PARTLY, Compensated.COMPENSATED, Compensated.CORRECTED)
OVERTURNED = f"a.verified = '{Verified.FAILED.value}' OR a.compensated IN ({literals(TAKEN_BACK)})"
_MAKES_KNOWN = f"""{GOOD} AND a.tool ~ %b
    AND (%b OR (a.tool !~ %b AND a.action_class NOT IN ({_READING})))"""
TOLD_AGAIN = ("disagree:tool", "disagree:targets", "disagree:args")
GATED = f"""((a.fence > 0 OR '{IMPORTED}' = ANY(r.flags))
    AND NOT a.flags && '{{{",".join(TOLD_AGAIN)}}}')"""
"""That it came to the gate as it stands there, or was brought by a key to import: else an agent
only says so, as where it told of the call a second time, and otherwise.
"""
ASKED_FOR = """(a.fence = 0 OR a.targets = '[]' OR a.targets @> json_build_array(
            json_build_object('type', {0}.type, 'id', {0}.id))::jsonb)"""
"""That the call named this target, or none, before it was made: what it did is its agent's word."""
_SEEN = f"""
SELECT count(*) FILTER (WHERE n.good), coalesce(bool_or(n.overturned), false),
    extract(epoch FROM min(n.at) FILTER (WHERE n.good))
FROM (SELECT s.at, {_MAKES_KNOWN} AND {GATED} AND is_asked AS good, {OVERTURNED} AS overturned
    FROM ("""  # noqa: S608 - our own words
# One probe for each call, whatever the statistics say: a join read all calls of its run, or of a
# young desk all that there are, and a connection keeps such a plan.
_OF_RUN = """
    CROSS JOIN LATERAL (SELECT * FROM ledger_run
        WHERE workspace_id = s.workspace_id AND run = s.run_ref LIMIT 1) r
    CROSS JOIN LATERAL (SELECT * FROM ledger_action
        WHERE run_id = r.id AND action = s.action LIMIT 1) a"""
_BY = """
    WHERE (%b::bigint IS NULL OR s.agent_id = %b::bigint)
        AND (%b::text IS NULL OR s.person = %b::text)) n"""
_OF_SHAPE = """SELECT s.value FROM approvals_sighting s
        WHERE s.workspace_id = h.workspace_id AND s.field = h.field AND s.shape = v.shape"""
# From one value to the next by the index, so that it matters to nobody how often each was used.
_ALIKE = f"""NOT (seen.times > 0 AND NOT seen.overturned) AND EXISTS (
    WITH RECURSIVE others AS (
        ({_OF_SHAPE} ORDER BY s.value LIMIT 1)
        UNION ALL
        SELECT following.value FROM others o CROSS JOIN LATERAL (
            {_OF_SHAPE} AND s.value > o.value ORDER BY s.value LIMIT 1) following
    )
    SELECT FROM (SELECT o.value FROM others o WHERE o.value <> v.value LIMIT {ALIKE_MAX}) o
    CROSS JOIN LATERAL (SELECT * FROM approvals_sighting s
        WHERE s.workspace_id = h.workspace_id AND s.field = h.field AND s.shape = v.shape
            AND s.value = o.value ORDER BY s.id DESC LIMIT {ALIKE_CALLS_MAX}) s {_OF_RUN}
    WHERE {GOOD})"""  # noqa: S608
_ANSWERS = "SELECT json_agg(json_build_array(seen.times, seen.overturned, seen.since"
_HERE = "FROM (SELECT %b::bigint AS workspace_id, %b::text AS field) h"
VALUES = f"""
{_HERE} CROSS JOIN unnest(%b::text[], %b::text[]) AS v (value, shape)
CROSS JOIN LATERAL ({_SEEN}
    SELECT *, true AS is_asked FROM approvals_sighting s
    WHERE s.workspace_id = h.workspace_id AND s.field = h.field AND s.shape = v.shape
        AND s.value = v.value
    ORDER BY s.id DESC LIMIT {SIGHTED_MAX}) s {_OF_RUN} {_BY}) seen (times, overturned, since)"""  # noqa: S608
# The targets of calls stand in the ledger by themselves.
TARGETS = f"""
{_HERE} CROSS JOIN unnest(%b::text[], %b::text[], %b::text[], %b::text[])
    AS v (value, shape, type, id)
CROSS JOIN LATERAL ({_SEEN}
    SELECT a.started_at AS at, a.id AS action, a.agent_id, a.run_id,
        {ASKED_FOR.format("v")} AS is_asked FROM (
        SELECT * FROM ledger_effect e WHERE e.workspace_id = h.workspace_id
            AND e.target_type = v.type AND e.target_id = v.id
        ORDER BY e.id DESC LIMIT {SIGHTED_MAX}) e
    JOIN ledger_action a ON a.id = e.action_id) s
    JOIN ledger_action a ON a.id = s.action JOIN ledger_run r ON r.id = a.run_id
    WHERE (%b::bigint IS NULL OR a.agent_id = %b::bigint)
        AND (%b::text IS NULL OR r.customer = %b::text)) n) seen (times, overturned, since)"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class ValueDigest:
    """One value that is asked about: its digest, and that of what looks like it."""

    value: str
    shape: str

    @classmethod
    def of(cls, text: str) -> "ValueDigest":
        return cls(digest_of(as_known(text)), digest_of(skeleton(text)))


class ValueHistory(msgspec.Struct, array_like=True):
    """What is on record of one value."""

    times: int
    overturned: bool
    since: float | None
    is_alike: bool

    @property
    def is_known(self) -> bool:
        return self.times > 0 and not self.overturned


@dataclass(frozen=True, slots=True)
class HistoryScope:
    """Where it is looked, and by whose calls; None stands for anybody's."""

    workspace_id: int
    field: str
    agent_id: int | None
    person: str | None
    tools: str = ""
    """A pattern of the tools whose calls make known; empty: all."""
    reading: str | None = "^$"
    """One of those whose calls only read, and make nothing known; None: also these do."""

    @property
    def place(self) -> list[Any]:
        return [self.workspace_id, self.field]

    @property
    def making_known(self) -> list[Any]:
        return [self.tools, self.reading is None, self.reading or "^$"]


def seen_values(whose: HistoryScope, values: Sequence[ValueDigest], *, alike: bool) -> Statement:
    """What is on record of these values, and with `alike` whether they look like others."""
    person = None if whose.person is None else digest_of(whose.person)
    by = [whose.agent_id, whose.agent_id, person, person]
    return _seen(VALUES, [*whose.place, *_digests(values), *whose.making_known, *by], alike=alike)


def seen_targets(
    whose: HistoryScope,
    targets: Sequence[tuple[str, str]],
    values: Sequence[ValueDigest],
    *,
    alike: bool,
) -> Statement:
    """The same of targets, each a type and an id."""
    types, ids = zip(*targets, strict=True)
    by = [whose.agent_id, whose.agent_id, whose.person, whose.person]
    told = [*_digests(values), array(types), array(ids), *whose.making_known]
    return _seen(TARGETS, [*whose.place, *told, *by], alike=alike)


def _digests(values: Sequence[ValueDigest]) -> list[str]:
    return [array(one.value for one in values), array(one.shape for one in values)]


def _seen(sql: str, values: list[Any], *, alike: bool) -> Statement:
    return f"{_ANSWERS}, {_ALIKE if alike else 'false'})) {sql}", values


# What is written with a call.

# The parameters of `gate_remember` after the first: the types that its migration gives them, in the
# order of `remember_arguments`.
REMEMBER_SIGNATURE = {
    "here": "bigint", "of_agent": "bigint", "under_key": "text", "in_run": "text",
    "by_action": "text", "is_held": "boolean",
    "meters": "text[]", "subjects": "text[]", "seen_at": "timestamptz[]", "sums": "text[]",
    "buckets": "bigint[]", "amounts": "numeric[]", "settled": "bigint[]",
    "fields": "text[]", "had": "text[]", "looking_like": "text[]", "for_person": "text",
}  # fmt: skip
REMEMBER_PARAMETERS = ", ".join(f"%b::{kind}" for kind in REMEMBER_SIGNATURE.values())
REMEMBER = f"SELECT gate_remember(clock_timestamp(), {REMEMBER_PARAMETERS})"


def remember_within(begun: str) -> str:
    """The same of a call that `begun`, SQL for until when, begins with it, if its sums stay within
    their caps; else neither is carried out, and there is no row.
    """
    return f"""
SELECT gate_remember({begun}, %b::bigint, %b::bigint, %b::text, %b::text, %b::text, true,
    meters, subjects, seen_at, sums, buckets, amounts, settled,
    %b::text[], %b::text[], %b::text[], %b::text)
FROM ({tallies.WITHIN_CAPS}) s"""  # noqa: S608 - our own words


@dataclass(frozen=True, slots=True)
class RememberedCall:
    """The call that is remembered: whose, which, for whom, and whether it may be made at once."""

    caller: TallyOwner
    run: str
    action: str
    person: str
    is_held: bool

    @property
    def named(self) -> list[Any]:
        """The first parameters of `gate_remember`."""
        caller = self.caller
        return [caller.workspace_id, caller.agent_id, caller.key, self.run, self.action]

    def with_values(self, sighted: Mapping[tuple[str, str], ValueDigest]) -> list[Any]:
        """Its last: by field the values that the call has, and for whom it is made."""
        return [
            array(field_ for field_, _ in sighted),
            array(one.value for one in sighted.values()),
            array(one.shape for one in sighted.values()),
            digest_of(self.person) if self.person else "",
        ]


def remember_arguments(
    doing: RememberedCall,
    tally_states: Sequence[TallyState],
    sighted: Mapping[tuple[str, str], ValueDigest],
    now: datetime,
) -> list[Any]:
    """What `gate_remember` is given: what the call holds, at once where it may be made, else once
    people say yes; and the values it has.
    """
    meters = [one.meter for one in tally_states]
    sums = [one.written(now, held=doing.is_held) for one in tally_states]
    return [
        *doing.named, doing.is_held,
        array(one.meter for one in meters),
        array(one.subject for one in tally_states),
        array(one.touched_at for one in tally_states),
        array(_json.encode(one).decode() for one in sums),
        array(one.bucket(now) for one in meters),
        array(str(one.amount) for one in meters),
        array(id_ for one in tally_states for id_ in one.done),
        *doing.with_values(sighted),
    ]  # fmt: skip


def remember_within_arguments(
    doing: RememberedCall,
    caps: Sequence[tuple[Meter, Cap]],
    sighted: Mapping[tuple[str, str], ValueDigest],
) -> list[Any]:
    """What `remember_within` is given, of a call that may be made at once."""
    _, look = tallies.within_caps(doing.caller, caps)
    return [*doing.named, *doing.with_values(sighted), *look]


# What of denied calls, and of those worth a look, makes their run a case.

DENIED_OFTEN = 10
"""So many calls of one run that a rule denied are a case: whatever drives it does not take no."""


def denied_often(runs: Iterable[Run]) -> dict[int, str]:
    """Of these runs those that were denied often, each with the tool that was denied last."""
    by_name, denials = _of_runs(runs, Denial.objects.all())
    counted = denials.values("workspace_id", "run_ref").annotate(
        in_all=Sum("times"), last=Max("pk")
    )
    last = {
        row["last"]: (row["workspace_id"], row["run_ref"])
        for row in counted.filter(in_all__gte=DENIED_OFTEN)
    }
    tools = dict(Denial.objects.filter(pk__in=last).values_list("pk", "deed__tool"))
    return {by_name[name]: str(tools[pk] or "") for pk, name in last.items() if name in by_name}


def worth_a_look(runs: Iterable[Run]) -> Mapping[int, Sequence[tuple[str, str]]]:
    """Of these runs the calls that the policy has reviewed: the action, and why."""
    by_name, reviews = _of_runs(runs, Review.objects.order_by("pk"))
    found: dict[int, list[tuple[str, str]]] = {}
    for here, run, action, words in reviews.values_list(
        "workspace_id", "run_ref", "action", "words"
    ):
        if (here, run) in by_name:
            found.setdefault(by_name[here, run], []).append((action, words))
    return found


def _of_runs(runs: Iterable[Run], rows: Any) -> tuple[dict[tuple[int, str], int], Any]:
    """The runs by workspace and name, and of the rows those that may be theirs."""
    by_name = {(run.workspace_id, run.run): run.pk for run in runs}
    workspaces, names = {pk for pk, _ in by_name}, {name for _, name in by_name}
    return by_name, rows.filter(workspace__in=workspaces, run_ref__in=names)


def forget_denials() -> int:
    """Drop what no dry run looks at any more; how many went."""
    old = Now() - timedelta(days=DENIALS_KEPT_DAYS)
    return _drop(Denial.objects.filter(denied_at__lt=old))


def forget_old() -> int:
    """Drop what no window reaches any more, values that nobody used for so long, and what was
    worth a look so long ago.
    """
    kept = Now() - timedelta(days=KEPT_DAYS)
    seen = Now() - timedelta(days=KEYS_KEPT_DAYS)
    return (
        _drop(Reservation.objects.filter(at__lt=kept), among=Reservation.objects.order_by("pk"))
        + _drop(Tally.objects.filter(touched_at__lt=kept))
        + _drop(Sighting.objects.filter(at__lt=seen), among=Sighting.objects.order_by("pk"))
        + _drop(Review.objects.filter(at__lt=seen))
    )


def _drop(old: QuerySet[Any], among: QuerySet[Any] | None = None) -> int:
    """Drop some of these rows; where no index tells their age, those `among` the first.

    In one statement: a row that a call writes meanwhile is read anew, and stays.
    """
    some = (old if among is None else among).values("pk")[:FORGOTTEN_AT_A_TIME]
    dropped: int = old.filter(pk__in=some)._raw_delete(old.db)  # noqa: SLF001 - without a look first
    return dropped
