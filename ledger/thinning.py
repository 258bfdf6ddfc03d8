"""Thinning: a past week's partition without the events whose time is over.

Nothing is deleted from a partition: triggers refuse that, and a deletion leaves the disk full. A
partition is dropped, or, where some of its events must stay (another workspace keeps them longer,
somebody still works on their run), written anew with those and put in the old one's place. The log
over the events, its leaves and nodes, is not touched: every proof that was handed out still holds.
"""

from dataclasses import dataclass
from typing import Any

from django.db import connections, transaction
from psycopg import sql

from ledger.models import Thinning
from ledger.partitions import PARENT, Partition, guard, owner_alias
from workspaces import acts
from workspaces.models import Workspace

# Taking a partition out locks the whole table for a moment: better another day than a traffic jam.
LOCK_TIMEOUT = "SET LOCAL lock_timeout = '3s'"

# One process thins at a time; whoever comes second finds the partition as it was left.
LOCK = 0x7415
OURS_TO_DO = "SELECT pg_try_advisory_xact_lock(%s) AND to_regclass(%s) IS NOT NULL"

# What an event's run still holds is not forgotten; what waits for its seal is read by the sealer.
MUST_STAY = """
(NOT e.workspace_id = ANY(%s) OR EXISTS (
    SELECT 1 FROM ledger_run r WHERE e.run <> '' AND r.workspace_id = e.workspace_id
        AND r.run = e.run AND r.forgotten_at IS NULL)
 OR EXISTS (
    SELECT 1 FROM ledger_unsealed u
    WHERE u.workspace_id = e.workspace_id AND u.place = e.place))"""
COUNTS = """
SELECT e.workspace_id, count(*) FILTER (WHERE NOT stays), count(*) FILTER (WHERE stays),
    max(e.place) FILTER (WHERE NOT stays)
FROM {partition} e, LATERAL (SELECT {must_stay} AS stays) s
WHERE e.workspace_id = ANY(%s) GROUP BY 1 HAVING count(*) FILTER (WHERE NOT stays) > 0"""
COPY = "INSERT INTO {fresh} SELECT e.* FROM {partition} e WHERE {must_stay}"


@dataclass(frozen=True)
class Count:
    """What would go, and what stays, of one workspace in one partition."""

    workspace_id: int
    let_go: int
    kept: int
    last_place: int


def count(cursor: Any, partition: Partition, expired: list[int]) -> list[Count]:
    """What is over in a partition, of the workspaces whose time for it has come."""
    query = sql.SQL(COUNTS).format(
        partition=sql.Identifier(partition.name), must_stay=sql.SQL(MUST_STAY)
    )
    cursor.execute(query, [expired, expired])
    return [Count(*row) for row in cursor.fetchall()]


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


def _written_down(partition: Partition, found: Count, alias: str) -> Thinning:
    workspace = Workspace.objects.get(pk=found.workspace_id)
    told = {"week": partition.name.removeprefix(f"{PARENT}_"), "let_go": found.let_go,
            "kept": found.kept}  # fmt: skip
    acts.record(workspace, "ledger.thinned", by=None, data=told, using=alias)
    return Thinning.objects.using(alias).create(
        workspace=workspace, partition=partition.name, let_go=found.let_go, kept=found.kept,
        last_place=found.last_place,
    )  # fmt: skip
