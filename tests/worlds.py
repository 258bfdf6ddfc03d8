"""Worlds that many stories begin with are built once, and put back for the next: where a conftest
has `kept_world = worlds.kept_world`.

    @pytest.fixture
    @kept
    def ada(operators: Team) -> User:
        return person("ada", operators)

What a story takes of kept fixtures is its world. The first story builds it; the rows that it made
and what its fixtures gave are put back for each later one, which costs a copy where the acts of
people took a hundred statements. A story gets objects of its own and rows that it may change: they
go as they came, by a rollback or by the cleaning between stories.

A kept fixture makes rows, of the desk and of `shop`, sends no mail, and gives what can be pickled.
Whatever else it takes is `quiet` or pytest's own: it makes no rows of a world, and is set up anew
for each story; so what changes settings or patches is never kept itself.
Where a file has an `acme` of its own that is not kept, all that rests on it is built as ever.
`kept(in_turn=True)` is for what others might have changed before: it is of the world only where
none but kept and quiet fixtures of the story come first.

A world is built anew when it is old, for stories ask how long ago something was. For processes that
outlive a story none is put back: ids that come again might mislead them.
"""

import functools
import inspect
import math
import os
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
import redis
from psycopg import sql

from tests import servers

OLD_SECONDS = 20.0
WORLDS_MAX = 50
CHANGING = {"settings", "monkeypatch", "request"}
OUTLIVING = {"kept_processes", "processes", "web_process"}
COLUMNS_SQL = """
SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''"""
Rows = Sequence[tuple[str, bytes]]


@dataclass(frozen=True)
class World:
    """What fixtures gave, pickled together, and rows as PostgreSQL copies them."""

    built_at: float
    given: bytes
    rows: Rows
    rows_of_shop: Rows


tables: list[str] = []
"""Those that a fresh database has empty."""

_worlds: dict[object, World] = {}
_given: dict[object, Any] = {}
"""What kept fixtures are to give in the present story, by function."""


def kept(function: Callable[..., Any] | None = None, *, in_turn: bool = False) -> Any:
    """Below `@pytest.fixture`; see above."""
    if function is None:
        return functools.partial(kept, in_turn=in_turn)
    names = CHANGING.intersection(inspect.signature(function).parameters)
    assert not names, f"{function.__name__} is not kept: what it does with {names} is not of rows"

    @functools.wraps(function)
    def give(*args: Any, **named: Any) -> Any:
        return _given[give] if give in _given else function(*args, **named)

    give.kept = "in turn" if in_turn else "always"  # type: ignore[attr-defined]
    return give


def quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """Below `@pytest.fixture`; see above."""
    function.kept = "quiet"  # type: ignore[attr-defined]
    return function


def forget() -> None:
    """The database is another one, whose ids begin elsewhere."""
    _worlds.clear()


@pytest.fixture(autouse=True)
@quiet
def kept_world(request: pytest.FixtureRequest) -> Iterator[None]:
    """The world of this story, before anything else of it."""
    _given.clear()
    if OUTLIVING.isdisjoint(request.fixturenames) and (parts := Parts(request.node)).kept:
        request.getfixturevalue("_django_db_helper")
        _put_back_or_build(request, parts)
    yield
    _given.clear()


class Parts:
    """What a story's world is made of."""

    def __init__(self, item: Any) -> None:
        self._known = item._fixtureinfo.name2fixturedefs
        self._seen: dict[str, bool] = {}
        self._is_first = True
        self.kept: dict[str, Any] = {}
        """Fixtures, as they are set up, and their functions."""
        self.all: dict[str, Any] = {}
        """Those and what they rest on: another `shop_url` is another world."""
        for name in item.fixturenames:
            self._is_of_world(name)

    def _is_of_world(self, name: str) -> bool:
        if name in self._seen or name not in self._known:
            return self._seen.get(name, name == "request")
        self._seen[name] = False  # while it is looked at, should it rest on itself
        definition = self._known[name][-1]
        rests = [self._is_of_world(one) for one in definition.argnames]
        how = getattr(definition.func, "kept", "")
        if how == "in turn" and not self._is_first:
            how = ""
        of = getattr(definition.func, "__module__", "")
        by_pytest, is_given = of.startswith(("_pytest.", "pytest_django.")), of == "_pytest.python"
        is_of = bool(how or by_pytest) and all(rests) and not definition.params and not is_given
        if is_of and how not in {"", "quiet"}:
            self.kept[name] = definition.func
            self._take(name)
        if not is_of and not by_pytest and definition.scope == "function":
            self._is_first &= how == "always"
        self._seen[name] = is_of
        return is_of

    def _take(self, name: str) -> None:
        if name in self._known and name not in self.all:
            self.all[name] = self._known[name][-1]
            for one in self.all[name].argnames:
                self._take(one)


def _put_back_or_build(request: pytest.FixtureRequest, parts: Parts) -> None:
    from django.db import connection

    kept, shop = parts.kept, None
    if "shop_connection" in kept:
        request.getfixturevalue("shop_allowed")
        shop = request.getfixturevalue("shop")
    key = tuple(parts.all.values()), connection.in_atomic_block
    world = _worlds.get(key)
    if world is not None and time.monotonic() - world.built_at <= OLD_SECONDS:
        _put_back(world, shop)
        given = pickle.loads(world.given)  # noqa: S301 - our own, of this process
        _given.update((function, given[name]) for name, function in kept.items())
        return
    given = {name: request.getfixturevalue(name) for name in kept}
    _worlds.pop(key, None)
    while len(_worlds) >= WORLDS_MAX:
        del _worlds[next(iter(_worlds))]
    _worlds[key] = _found(given, shop)


def _found(given: dict[str, Any], shop: Any) -> World:
    """The world as it has just been built; what people did is taken in where that is done."""
    from django.core import mail
    from django.db import connection

    from ledger import desk_events

    assert not mail.outbox, "the next story would miss what was sent"
    if not connection.in_atomic_block:
        desk_events.take_in()
    of_shop: Rows = ()
    if shop is not None:
        of_shop = _rows(shop, [name for (name,) in shop.execute(servers.TABLES_SQL)])
    rows = _rows(connection.connection, tables)
    _forget_what_others_did()
    return World(time.monotonic(), pickle.dumps(given), rows, of_shop)


def _rows(connection: psycopg.Connection[Any], names: Sequence[str]) -> Rows:
    asked = " UNION ALL ".join(
        f"SELECT {number} WHERE EXISTS (SELECT FROM {name})" for number, name in enumerate(names)
    )
    found = []
    with psycopg.Cursor(connection) as cursor:
        for name in [names[number] for (number,) in cursor.execute(asked).fetchall()]:
            [columns] = cursor.execute(COLUMNS_SQL, [name]).fetchone() or [""]
            with cursor.copy(
                f"COPY (SELECT {columns} FROM {name}) TO STDOUT (FORMAT BINARY)"
            ) as out:
                rows = b"".join(out)
            found.append((f"COPY {name} ({columns}) FROM STDIN (FORMAT BINARY)", rows))
    return found


def _put_back(world: World, shop: psycopg.Connection[Any] | None) -> None:
    from django.db import connection

    _forget_what_others_did()
    if connection.in_atomic_block:
        _copy_past_triggers(connection.connection, world.rows)
    else:
        line = servers.past_triggers(os.environ["DATABASE_URL"], tables)
        with line.transaction():
            _copy(line, world.rows)
    if shop is not None:
        from connectors.builtin.sql import MARKER_DDL

        with shop.transaction():
            if any(
                statement.startswith("COPY amends_marker ") for statement, _ in world.rows_of_shop
            ):
                shop.execute(sql.SQL(MARKER_DDL).format(sql.Identifier("amends_marker")))
            _copy_past_triggers(shop, world.rows_of_shop)


def _copy(connection: psycopg.Connection[Any], rows: Rows) -> None:
    with psycopg.Cursor(connection) as cursor:
        for statement, data in rows:
            with cursor.copy(statement) as into:
                into.write(data)


def _copy_past_triggers(connection: psycopg.Connection[Any], rows: Rows) -> None:
    """Past the guards of the ledger, which look at what is new. The connection forgets over it how
    the statements of its triggers go, so a line that is always past them is better.
    """
    connection.execute("SET LOCAL session_replication_role = replica")
    _copy(connection, rows)
    connection.execute("SET LOCAL session_replication_role = origin")


def _forget_what_others_did() -> None:
    """What this process and Valkey know of a workspace, an agent, a key, a connection by an id that
    comes again, or of rows by how far it came. The first story of a world knows no more either.
    """
    from django.conf import settings

    from approvals import grants, notifications
    from approvals.gate import begin_context, gathering
    from approvals.policy import active_policies
    from connectors import call_pool, channels
    from ledger import agent_keys, sealer
    from recovery.corrections import publishing
    from recovery.triage import case_projection
    from workspaces import rates

    with rates.rates._lock:  # its thread may be about to write down what Valkey says of them
        for meter in rates.rates._meters.values():
            meter.level = meter.untold = 0.0
    for hanging in call_pool._hanging.values():  # that comes back later, and looks for its row
        hanging.since = -math.inf
    agent_keys.known_keys.forget()
    agent_keys._said_at.clear()
    sealer._last.clear()
    call_pool._took.clear()
    channels._failed_at.clear()
    gathering.left_alone.clear()
    active_policies._changes.clear()
    grants._told_of.cache_clear()
    grants._calls_of.cache_clear()
    for noted in (begin_context._snapshots, begin_context._labels, begin_context._shapes):
        noted._values.clear()
    said = (publishing.DRAFTED, publishing.BY_HAND, publishing.UNDONE_AGAIN, publishing.PUBLISHED)
    for walk in (notifications.LOOKED_AT, publishing.FOLLOWED, *said, case_projection.words_walk):
        walk._after = 0
    valkey(settings.REDIS_URL).flushall()


@functools.cache
def valkey(url: str) -> redis.Redis:
    return redis.Redis.from_url(url)
