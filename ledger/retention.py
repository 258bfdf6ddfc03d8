"""Retention: nothing is kept longer than the workspace says, but for what somebody works with.

A run whose last event is older than the workspace's days is forgotten: what was said in it goes
out of every row (workspaces.erasure_registry), while the rows go on telling what happened, and its
key goes on guarding against a second effect. Its events go with their week's partition
(ledger.retention). After 400 days event ids and the rows of forgotten runs go too. Each part bounds
its work: the next turn comes soon, and takes up what was cut off.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import islice, takewhile
from typing import Any

from django.db import connections, transaction
from django.db.models import Max, Q, QuerySet
from django.db.utils import OperationalError
from psycopg import sql

from amends.protocol.vocabulary import KEYS_KEPT_DAYS, EventType
from ledger import erasure, partitions, snapshots
from ledger.erasure import scope_of
from ledger.models import Run, Thinning
from ledger.partitions import PARENT, Partition, guard, owner_alias, owner_cursor
from workspaces import clock, erasure_registry, outbox, periodic
from workspaces.clock import database_time
from workspaces.models import Act, Heartbeat, Workspace

# Thinning: a past week's partition without the events whose time is over.
#
# Nothing is deleted from a partition: triggers refuse that, and a deletion leaves the disk full. A
# partition is dropped, or, where some of its events must stay (another workspace keeps them
# longer, somebody still works on their run), written anew with those and put in the old one's
# place. The log over the events, its leaves and nodes, is not touched: every proof that was handed
# out still holds.

# Taking a partition out locks the whole table for a moment: better another day than a traffic jam.
LOCK_TIMEOUT = "SET LOCAL lock_timeout = '3s'"

# One process thins at a time; whoever comes second finds the partition as it was left.
LOCK = 0x7415
OURS_TO_DO = "SELECT pg_try_advisory_xact_lock(%s) AND to_regclass(%s) IS NOT NULL"

# What an event's run still holds is not forgotten; what waits for its seal is read by the sealer.
# By which key somebody signs, and that a right was handed over, is asked for as long as it counts;
# which policy was in force, as long as there is a run of that time.
MUST_STAY = f"""
(NOT e.workspace_id = ANY(%s) OR EXISTS (
    SELECT 1 FROM ledger_run r WHERE e.run <> '' AND r.workspace_id = e.workspace_id
        AND r.run = e.run AND r.forgotten_at IS NULL)
 OR EXISTS (
    SELECT 1 FROM ledger_unsealed u
    WHERE u.workspace_id = e.workspace_id AND u.place = e.place)
 OR e.run = '' AND (e.type IN ('signing_key.enrolled', 'signing_key.removed')
    OR e.type = 'policy.activated' AND EXISTS (
        SELECT 1 FROM ledger_run r WHERE r.workspace_id = e.workspace_id
            AND r.started_at < e.received_at AND r.forgotten_at IS NULL)
    OR e.type = 'delegation.given' AND EXISTS (
        SELECT 1 FROM workspaces_delegation d WHERE d.workspace_id = e.workspace_id
            AND to_jsonb(d.id) = e.data -> 'delegation'
            AND d.until > statement_timestamp() - interval '{KEYS_KEPT_DAYS} days')))"""  # noqa: S608 - our own words
COUNTS = """
SELECT e.workspace_id, count(*) FILTER (WHERE NOT stays), count(*) FILTER (WHERE stays),
    max(e.place) FILTER (WHERE NOT stays)
FROM {partition} e, LATERAL (SELECT {must_stay} AS stays) s
WHERE e.workspace_id = ANY(%s) GROUP BY 1 HAVING count(*) FILTER (WHERE NOT stays) > 0"""
COPY = "INSERT INTO {fresh} SELECT e.* FROM {partition} e WHERE {must_stay}"


@dataclass(frozen=True)
class RetentionCount:
    """What would go, and what stays, of one workspace in one partition."""

    workspace_id: int
    let_go: int
    kept: int
    last_place: int


def count(cursor: Any, partition: Partition, expired: list[int]) -> list[RetentionCount]:
    """What is over in a partition, of the workspaces whose time for it has come."""
    query = sql.SQL(COUNTS).format(
        partition=sql.Identifier(partition.name), must_stay=sql.SQL(MUST_STAY)
    )
    cursor.execute(query, [expired, expired])
    return [RetentionCount(*row) for row in cursor.fetchall()]


def thin(partition: Partition, expired: list[int]) -> list[Thinning]:
    """Let go what is over; one line in the registry and one act for each workspace concerned."""
    alias = owner_alias()
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        cursor.execute(LOCK_TIMEOUT)
        cursor.execute(OURS_TO_DO, [LOCK, partition.name])
        if not cursor.fetchone()[0]:
            return []
        cursor.execute(
            sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(
                sql.Identifier(partition.name)
            )
        )
        counts = count(cursor, partition, expired)
        if not counts:
            return []
        fresh = _copied(cursor, partition, expired)
        _replace(cursor, partition, fresh)
        return [_written_down(partition, one, alias) for one in counts]


def _copied(cursor: Any, partition: Partition, expired: list[int]) -> str:
    """The name of a new table with what stays, ready to be a partition; empty if nothing does."""
    fresh = f"{partition.name}_kept"
    names = {"fresh": sql.Identifier(fresh), "parent": sql.Identifier(PARENT),
             "since": sql.Literal(partition.since.isoformat()),
             "until": sql.Literal(partition.until.isoformat()),
             "partition": sql.Identifier(partition.name),
             "must_stay": sql.SQL(MUST_STAY)}  # fmt: skip
    cursor.execute(sql.SQL("CREATE TABLE {fresh} (LIKE {parent} INCLUDING ALL)").format(**names))
    cursor.execute(sql.SQL(COPY).format(**names), [expired])
    if cursor.rowcount == 0:
        cursor.execute(sql.SQL("DROP TABLE {fresh}").format(**names))
        return ""
    # With these in place, taking it in needs no look at its rows.
    cursor.execute(
        sql.SQL(
            "ALTER TABLE {fresh} ADD FOREIGN KEY (workspace_id)"
            " REFERENCES workspaces_workspace (id),"
            " ADD CHECK (received_at >= {since} AND received_at < {until})"
        ).format(**names)
    )
    return fresh


def _replace(cursor: Any, partition: Partition, fresh: str) -> None:
    names = {"old": sql.Identifier(partition.name), "parent": sql.Identifier(PARENT),
             "fresh": sql.Identifier(fresh), "since": sql.Literal(partition.since.isoformat()),
             "until": sql.Literal(partition.until.isoformat())}  # fmt: skip
    cursor.execute(sql.SQL("ALTER TABLE {parent} DETACH PARTITION {old}").format(**names))
    cursor.execute(sql.SQL("DROP TABLE {old}").format(**names))
    if not fresh:
        return
    cursor.execute(sql.SQL("ALTER TABLE {fresh} RENAME TO {old}").format(**names))
    cursor.execute(
        sql.SQL(
            "ALTER TABLE {parent} ATTACH PARTITION {old} FOR VALUES FROM ({since}) TO ({until})"
        ).format(**names)
    )
    guard(cursor, partition.name)


def _written_down(partition: Partition, found: RetentionCount, alias: str) -> Thinning:
    workspace = Workspace.objects.get(pk=found.workspace_id)
    told = {"week": partition.name.removeprefix(f"{PARENT}_"), "let_go": found.let_go,
            "kept": found.kept}  # fmt: skip
    outbox.record(workspace, EventType.LEDGER_THINNED, by=None, data=told, using=alias)
    return Thinning.objects.using(alias).create(
        workspace=workspace, partition=partition.name, let_go=found.let_go, kept=found.kept,
        last_place=found.last_place,
    )  # fmt: skip


KEYS_KEPT = timedelta(days=KEYS_KEPT_DAYS)
ROOTS_KEPT = timedelta(days=1)
CLOCKS_APART_MAX = timedelta(hours=1)
RUNS_AT_A_TIME = 500
RUNS_GLANCED_MAX = 5_000
ROWS_AT_A_TIME = 10_000
TURN_SECONDS_MAX = 60.0

# An event that is still there is found by its key: by which somebody signs is asked for years on.
# Each is looked up by itself (a scalar): joined, the events of every week would be read.
OLD_KEYS = """
DELETE FROM ledger_eventkey WHERE ctid = ANY(ARRAY(
    SELECT k.ctid FROM ledger_eventkey k
    WHERE (k.received_at AT TIME ZONE 'UTC')::date >= %(since)s
        AND (k.received_at AT TIME ZONE 'UTC')::date < %(until)s
        AND (k.workspace_id = %(workspace)s OR %(workspace)s IS NULL)
        AND (SELECT true FROM ledger_event e WHERE e.workspace_id = k.workspace_id
            AND e.place = k.place AND e.received_at = k.received_at LIMIT 1) IS NULL
    LIMIT %(most)s))"""
OLD_CONFLICTS = """
DELETE FROM ledger_eventconflict WHERE id IN (
    SELECT id FROM ledger_eventconflict WHERE received_at < %s LIMIT %s)"""
OLD_ROOTS = """
DELETE FROM ledger_traceroot WHERE id IN (
    SELECT id FROM ledger_traceroot WHERE received_at < %s LIMIT %s)"""
OLD = {OLD_CONFLICTS: KEYS_KEPT, OLD_ROOTS: ROOTS_KEPT}
# A snapshot that comes again is renewed; but it need not come again to be named by a young run. Its
# time is asked for twice: the second time of the row as it is when it goes, for it may have come
# again meanwhile.
OLD_BLOBS = f"""
WITH named AS (
    SELECT found[1] AS sha256 FROM ledger_run r
    JOIN ledger_event e ON e.workspace_id = r.workspace_id AND e.run = r.run,
    regexp_matches(e.data::text, '"sha256:([0-9a-f]{{64}})"', 'g') AS found
    WHERE r.workspace_id = %(workspace)s AND r.forgotten_at IS NULL AND r.started_at < %(before)s
)
DELETE FROM ledger_blob WHERE received_at < %(before)s AND id IN (
    SELECT id FROM ledger_blob WHERE workspace_id = %(workspace)s AND received_at < %(before)s
        AND sha256 NOT IN (SELECT sha256 FROM named) AND NOT EXISTS (
            SELECT FROM ({snapshots.naming("'sha256:' || ledger_blob.sha256")}) AS named OFFSET 0)
    LIMIT %(most)s)"""  # noqa: S608 - our own words


@dataclass
class RetentionResult:
    """What one turn did, or would do."""

    runs_forgotten: int = 0
    runs_removed: int = 0
    events: int = 0
    rows: int = 0
    thinnings: list[Thinning] = field(default_factory=list)
    put_off: list[str] = field(default_factory=list)
    is_all: bool = False
    """Whether the turn came to its end with nothing left that is over its time."""


def keep_to_time(now: datetime | None = None) -> RetentionResult:
    """Let go what is over its time in every workspace, by the database's clock: what a machine
    whose own is ahead let go would not come back.
    """
    now, until = now or database_time(), time.monotonic() + TURN_SECONDS_MAX
    done = RetentionResult()
    for workspace in Workspace.objects.order_by("pk"):
        for runs in takewhile(lambda _: time.monotonic() < until, over(workspace, now)):
            done.runs_forgotten += _forget(workspace, runs, now)
        for runs in takewhile(lambda _: time.monotonic() < until, _removable(workspace, now)):
            Run.objects.using(owner_alias()).filter(pk__in=runs).delete()
            done.runs_removed += len(runs)
        done.rows += _delete(
            OLD_BLOBS,
            {"workspace": workspace.pk, "before": before(workspace, now), "most": ROWS_AT_A_TIME},
        )
    for partition, expired in _due(now):
        try:
            done.thinnings += thin(partition, expired)
        except OperationalError:  # locked by somebody who reads: at the next turn
            done.put_off.append(partition.name)
    done.events = sum(one.let_go for one in done.thinnings)
    done.rows += _old_rows(now, until)
    done.is_all = time.monotonic() < until and not done.put_off
    if done.is_all:
        periodic.done(periodic.RETENTION)
    return done


def before(workspace: Workspace, now: datetime) -> datetime:
    """What happened before this moment is over its time."""
    return now - timedelta(days=workspace.retention_days)


def over(workspace: Workspace, now: datetime) -> Iterator[list[int]]:
    """Runs to be forgotten now, some at a time: over their time, and nothing holds them."""
    then = before(workspace, now)
    found = Run.objects.filter(started_at__lt=then, last_event_at__lt=then, forgotten_at=None)
    for runs in _oldest_first(found.filter(workspace=workspace)):
        yield _free(workspace, runs)


def _free(workspace: Workspace, runs: list[int]) -> list[int]:
    """Those that nobody works with, and that are kept for nothing else."""
    held = erasure_registry.resting(workspace, runs)
    held |= erasure_registry.lingering(workspace, runs)
    return [one for one in runs if one not in held]


def _oldest_first(rows: QuerySet[Run]) -> Iterator[list[int]]:
    """Walk once over the runs: what is held is met in each turn, but only once."""
    ordered, start = rows.order_by("started_at", "pk"), Q()
    while found := list(ordered.filter(start).values_list("pk", "started_at")[:RUNS_AT_A_TIME]):
        pk, at = found[-1]
        start = Q(started_at__gt=at) | Q(started_at=at, pk__gt=pk)
        yield [one for one, _ in found]


def preview(workspace: Workspace, now: datetime | None = None) -> RetentionResult:
    """What the next turn would let go in one workspace; it looks at all of it."""
    now = now or database_time()
    done = RetentionResult(runs_forgotten=sum(len(runs) for runs in over(workspace, now)))
    with owner_cursor() as cursor:
        for partition, expired in _due(now):
            if workspace.pk in expired:
                counts = count(cursor, partition, [workspace.pk])
                done.events += sum(one.let_go for one in counts)
    return done


@dataclass(frozen=True)
class RetentionPreview:
    """What a page says of the next turn: how many runs, if few, and which weeks."""

    runs: int
    weeks: list[str]


def glance(workspace: Workspace) -> RetentionPreview:
    """At most `RUNS_GLANCED_MAX` + 1 runs are counted, and no event: a week may have a million."""
    now, count = clock.now(), 0
    for runs in islice(over(workspace, now), RUNS_GLANCED_MAX // RUNS_AT_A_TIME + 1):
        count += len(runs)
    weeks = [week.name for week, expired in _due(now) if workspace.pk in expired]
    return RetentionPreview(count, weeks)


def let_go_up_to(workspace: Workspace) -> int:
    """The last place that retention let go: an event missing above it was taken away."""
    found = Thinning.objects.filter(workspace=workspace).aggregate(last=Max("last_place"))
    return found["last"] or 0


def _forget(workspace: Workspace, runs: list[int], now: datetime) -> int:
    if runs:
        alias = owner_alias()
        with transaction.atomic(using=alias):
            erasure.hold(runs, using=alias)
            # Of those that somebody took up, or told more of, meanwhile, none.
            over = Run.objects.using(alias).filter(last_event_at__lt=before(workspace, now))
            runs = _free(workspace, list(over.filter(pk__in=runs).values_list("pk", flat=True)))
            erasure.forget(scope_of(workspace, runs), using=alias)
    return len(runs)


def _removable(workspace: Workspace, now: datetime) -> Iterator[list[int]]:
    """Runs forgotten long ago; not those of which a case or a decision tells."""
    then = min(before(workspace, now), now - KEYS_KEPT)
    found = Run.objects.filter(workspace=workspace, started_at__lt=then, last_event_at__lt=then)
    for runs in _oldest_first(found.exclude(forgotten_at=None)):
        staying = erasure_registry.staying(workspace, runs)
        yield [one for one in runs if one not in staying]


def _due(now: datetime) -> list[tuple[Partition, list[int]]]:
    """Past partitions, each with the workspaces whose time for all of it is over."""
    workspaces = list(Workspace.objects.all())
    with owner_cursor() as cursor:
        known = [partitions.named(name) for name in sorted(partitions.existing(cursor))]
    found = []
    for partition in known:
        if partition is not None:
            expired = [one.pk for one in workspaces if partition.until <= before(one, now)]
            found += [(partition, expired)] if expired else []
    return found


def _old_rows(now: datetime, until: float) -> int:
    """Ids over 400 days old, roots whose run never began, and acts that the ledger has taken in."""
    done = 0
    wanted: list[tuple[str, Any]] = [(OLD_KEYS, days) for days in _days_of_old_keys(now)]
    wanted += [(one, [now - kept, ROWS_AT_A_TIME]) for one, kept in OLD.items()]
    for statement, values in wanted:
        while time.monotonic() < until:
            some = _delete(statement, values)
            done += some
            if some < ROWS_AT_A_TIME:
                break
    for workspace in Workspace.objects.all():
        taken_in = Act.objects.filter(
            workspace=workspace, taken_in_at__lt=before(workspace, now)
        ).order_by("pk")
        old = list(taken_in.values_list("pk", flat=True)[:ROWS_AT_A_TIME])
        done += Act.objects.filter(pk__in=old).delete()[0]
    return done


def _days_of_old_keys(now: datetime) -> Iterator[dict[str, Any]]:
    """Days whose keys are old since the last turn that came to its end, and weeks that were thinned
    since: whoever keeps events longer would have all of their keys looked at in each turn.
    """
    over = _day(now - KEYS_KEPT)
    last = Heartbeat.objects.filter(pk=periodic.RETENTION).values_list("beat_at", flat=True).first()
    given = {"workspace": None, "until": over, "most": ROWS_AT_A_TIME}
    if last is None:
        yield given | {"since": date.min}
        return
    begun = last - timedelta(seconds=TURN_SECONDS_MAX)
    if (since := _day(begun - KEYS_KEPT)) < over:
        yield given | {"since": since}
    thinned = Thinning.objects.filter(at__gte=begun - CLOCKS_APART_MAX)
    for workspace, name in thinned.values_list("workspace", "partition").distinct():
        week = partitions.named(name)
        if week is not None and _day(week.since) < over:
            days = {"since": _day(week.since), "until": min(over, _day(week.until))}
            yield given | days | {"workspace": workspace}


def _day(moment: datetime) -> date:
    return moment.astimezone(UTC).date()


def _delete(statement: str, values: Any) -> int:
    """As the owner: the runtime's role may not remove an id by which an event is known."""
    with owner_cursor() as cursor:
        cursor.execute(statement, values)
        return int(cursor.rowcount)
