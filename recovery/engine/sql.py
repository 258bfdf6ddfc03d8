"""Small pieces of SQL that moves are put together from: conditions, and values by the database."""

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from django.db import InterfaceError, OperationalError, connection

from ledger import drivers
from ledger.append.statements import Rows, Statement, array
from ledger.desk_events import plain_connection

DATABASE_AWAY = (OperationalError, InterfaceError)


class Sql(NamedTuple):
    """An expression with its parameters. Names in it are ours, never anybody's input."""

    text: str
    values: tuple[Any, ...] = ()


NOW = Sql("clock_timestamp()")

LEASE_OVER = Sql("lease_until < clock_timestamp()")

# A step that is in nobody's hands, and waits for no time.
AT_REST = MappingProxyType({"lease_until": Sql("NULL"), "wake_at": Sql("NULL")})

# A sub-query on another table: after a wait for the row's lock PostgreSQL looks at the row's own
# columns again, which it would not do for a row found through a join. And a scalar one, which stays
# where it is: of EXISTS the planner makes a join, and begins there where it knows little of plans.
PLAN_RUNS = Sql(
    "(SELECT p.state FROM recovery_plan p WHERE p.id = recovery_step.plan_id) = 'running'"
)

# A step that has not ended, asked of the steps of one plan in their order. Of `state` itself the
# planner would go to an index of all living steps, for each plan anew, whenever the statistics are
# from a moment in which there were few.
LIVING = "({0}.state || '') NOT IN ('verified', 'reported', 'skipped', 'cancelled')"


def in_seconds(seconds: float) -> Sql:
    """So many seconds from now, by the database's clock."""
    return Sql("clock_timestamp() + %s * interval '1 second'", (seconds,))


# For `steps.move_all`, which knows of each step how many `seconds` are needed.
LEASE_OUTLASTS = Sql("lease_until > clock_timestamp() + u.seconds * interval '1 second'")


def ask(text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Run a statement that is run again and again, and give its rows.

    psycopg prepares it after some times, which Django's own cursors never do: for the statements of
    the engine PostgreSQL needs longer to plan than to carry out. Lists are for parameters that are
    cast to arrays. JSON comes back as text.
    """
    return ask_all([(text, values)])[0]


def ask_all(asked: Sequence[Statement], meanwhile: Callable[[], None] | None = None) -> list[Rows]:
    """Several in one go. `meanwhile` is done while PostgreSQL is at work, and must not ask it
    anything.
    """
    sent = [
        (text, [array(value) if isinstance(value, list) else value for value in values])
        for text, values in asked
    ]
    with connection.wrap_database_errors:
        return drivers.execute(plain_connection(), sent, meanwhile)
