"""Small pieces of SQL that moves are put together from: conditions, and values by the database."""

from typing import Any, NamedTuple


class Sql(NamedTuple):
    """An expression with its parameters. Names in it are ours, never anybody's input."""

    text: str
    values: tuple[Any, ...] = ()


NOW = Sql("clock_timestamp()")

LEASE_OVER = Sql("lease_until < clock_timestamp()")

IS_DUE = Sql("(wake_at IS NULL OR wake_at <= clock_timestamp())")

# A sub-query on another table: after a wait for the row's lock PostgreSQL looks at the row's own
# columns again, which it would not do for a row found through a join.
PLAN_RUNS = Sql(
    "EXISTS (SELECT FROM recovery_plan p WHERE p.id = recovery_step.plan_id"
    " AND p.state = 'running')"
)


def in_seconds(seconds: float) -> Sql:
    """So many seconds from now, by the database's clock."""
    return Sql("clock_timestamp() + %s * interval '1 second'", (seconds,))


def lease_outlasts(seconds: float) -> Sql:
    return Sql("lease_until > clock_timestamp() + %s * interval '1 second'", (seconds,))
