"""Every test runs against a real PostgreSQL and a real Valkey, started here.

`db` tests are rolled back. After tests that commit (`transactional_db`, `live_server`) the database
is emptied with its triggers off, since the ledger's refuse a flush, as they should; or cloned anew
from the migrated template where that is not enough.

No test may lean on the one before it: `make test SHUFFLE=7` runs them in an order drawn from 7.
"""

import gc
import os
import random
import shutil
import socket
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from django.conf import settings

from config.local.postgres import Postgres
from config.local.servers import Valkey
from tests import npm, servers, worlds
from tests.desk_role import as_the_owner, ask_as_the_desk  # noqa: F401 - as below
from tests.drills import (  # noqa: F401 - as below
    drilled,
    each_has_a_row,
    pytest_terminal_summary,
)
from tests.other_targets import LONG, OF_ADAPTERS
from tests.processes import Processes
from tests.whole import Whole, is_whole, pytest_addoption  # noqa: F401 - pytest asks the conftest for it

started: dict[str, Any] = {}
searching_by_default = (700, 10, 10)

# A hundred processes are started from the same source: compiled once, each spends a quarter less.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("NODE_COMPILE_CACHE", str(servers.home() / "node"))  # a Node: three quarters

# A run says the same as the one before it; `HYPOTHESIS=explore` looks where none has looked yet.
# How long a busy machine takes to draw an example says nothing of the code.
hypothesis.settings.register_profile(
    "steady", derandomize=True, database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)  # fmt: skip
hypothesis.settings.register_profile("explore", print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS", "steady"))


def pytest_configure(config: pytest.Config) -> None:
    if settings.configured:
        raise pytest.UsageError(
            "Unset DJANGO_SETTINGS_MODULE: the tests choose their own settings."
        )
    config.pluginmanager.register(Whole(config))
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        folder = Path(worker["amends_folder"])
    elif lent := os.environ.get(servers.LENT):
        folder = Path(lent)
    else:
        folder = servers.home() / f"run-{os.getpid()}"
        started["postgres"] = servers.start(folder)
        if is_whole(config):
            started["npm"] = npm.install_ahead()
    started["folder"] = folder
    if worker is None and config.getoption("dist", default="no") != "no":
        return  # each of its workers has a database of its own
    name = os.environ.get("PYTEST_XDIST_WORKER", "main")
    started["valkey"] = valkey = Valkey(folder, f"valkey-{name}")
    valkey.start()
    postgres = Postgres(folder, durable=False)
    started["database"] = f"test_{name}"
    started["administration"] = postgres.url("postgres")
    servers.clone(started["administration"], started["database"])
    os.environ.update(servers.environment(postgres.url(started["database"]), valkey.url))
    import django

    django.setup()
    hash_passwords_quickly()
    ask_as_the_desk()
    started["fresh"] = servers.look(os.environ["DATABASE_URL"])
    worlds.tables[:] = started["fresh"].empty
    let_commits_be_cleaned()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """pytest-django would load settings in a worker before its own database is chosen."""
    del os.environ["DJANGO_SETTINGS_MODULE"]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """xdist: tell each worker where the one PostgreSQL is."""
    node.workerinput["amends_folder"] = str(started["folder"])


# Modules of which one runner has all: what they start is started once, or fills both cores.
# xdist's own groups are silently lost with pytest 9.2 (pytest-xdist#1386).
WITH_A_BROWSER = "tests/browser/"
TOGETHER = (
    WITH_A_BROWSER,
    "tests/config/test_processes.py",
    "tests/config/test_single_sign_on.py",
    "tests/config/test_slow_clients.py",
    "tests/config/test_web_processes.py",
    "tests/test_plans.py",
)
# In `make test` every module is one of them, for its worlds are built once, and all with a browser
# share it. These go apart: others would wait for them at the end.
APART = ("tests/recovery/engine/test_restarts.py", "tests/sdk/test_policy_file.py")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    is_quick = "not long" in config.option.markexpr

    class Together(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.partition("::")[0]
            if not is_quick:
                return module if module.startswith(TOGETHER) else nodeid
            if module.startswith(WITH_A_BROWSER):
                return WITH_A_BROWSER
            return nodeid if module in APART else module

    return Together(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    for mark, modules in (("long", LONG), ("adapters", OF_ADAPTERS)):
        if item.nodeid.startswith(modules):
            item.add_marker(mark)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    each_has_a_row(items)
    if seed := os.environ.get("SHUFFLE"):
        random.Random(seed).shuffle(items)  # noqa: S311 - the same in every runner


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: no search for cycles goes through it.
    What a story leaves is found as soon as anywhere.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*searching_by_default)


def pytest_unconfigure(config: pytest.Config) -> None:
    if "npm" in started:
        started["npm"].wait()
    servers.end()
    if "valkey" in started:
        started["valkey"].stop()
    if "postgres" in started:
        started["postgres"].stop()
        shutil.rmtree(started["folder"], ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, Any, Any]:
    """What people did before a story begins is in the ledger when it begins: taken in together,
    which takes a tenth of the time of a story that commits.
    """
    from django.db import transaction
    from django.db.models.signals import post_save

    from ledger import apps, desk_events
    from workspaces.models import Act

    acted: list[bool] = []

    def later(**_: object) -> None:
        transaction.on_commit(lambda: acted.append(True))

    post_save.disconnect(sender=Act, dispatch_uid=apps.TAKES_IN)
    post_save.connect(later, sender=Act)
    try:
        result = yield
    finally:
        post_save.disconnect(later, sender=Act)
        post_save.connect(apps.take_in_soon, sender=Act, dispatch_uid=apps.TAKES_IN)
    if acted:
        desk_events.take_in()
    return result


def clone_anew() -> None:
    from django.db import connections

    connections.close_all()
    started["clones"] = started.get("clones", 0) + 1
    servers.clone(started["administration"], started["database"], number=started["clones"])
    worlds.forget()
    worlds.valkey(started["valkey"].url).flushall()


AS_IF_NEW = """
ROLLBACK; RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; CLOSE ALL; UNLISTEN *; DISCARD TEMP;
SELECT pg_advisory_unlock_all()"""


def clean() -> None:
    """The database as it was: emptied where that is enough, else cloned anew."""
    renew_connection()
    if not servers.empty(os.environ["DATABASE_URL"], started["fresh"]):
        clone_anew()
        return
    worlds.valkey(started["valkey"].url).flushall()


def renew_connection() -> None:
    """Django's own is as if new, but its server process knows the tables already."""
    from django.db import Error, connection, connections

    servers.spared["django"] = []
    left = connection.in_atomic_block or connection.run_on_commit or connection.execute_wrappers
    if connection.connection is None or left or not connection.autocommit:
        connections.close_all()  # the story left it in the middle of something
        return
    try:
        with connection.cursor() as cursor:
            cursor.execute(AS_IF_NEW)
        connection.ensure_timezone()
        servers.spared["django"] = [connection.connection.info.backend_pid]
    except Error:  # the story cut it
        connections.close_all()


def hash_passwords_quickly() -> None:
    """Half a second of each test was the hash of a password that everybody knows. Servers that a
    test starts read these hashes as any other, and make and check their own at full strength.
    """
    from django.contrib.auth.hashers import PBKDF2PasswordHasher

    PBKDF2PasswordHasher.iterations = 1


def let_commits_be_cleaned() -> None:
    """Django would close its connection besides: `renew_connection` has made it as if new."""
    from django.test import TransactionTestCase

    def _fixture_teardown(self: TransactionTestCase) -> None:
        clean()

    def _should_reload_connections(self: TransactionTestCase) -> bool:
        return False

    TransactionTestCase._fixture_teardown = _fixture_teardown  # type: ignore[attr-defined]
    TransactionTestCase._should_reload_connections = _should_reload_connections  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
@worlds.quiet
def django_db_setup() -> None:
    """The database is there already, migrated; pytest-django has nothing to make."""


@pytest.fixture(autouse=True, scope="session")
def only_loopback() -> Iterator[None]:
    """No test talks to the outside: a connection that is not local fails at once."""
    patch = pytest.MonkeyPatch()
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex

    def refuse_outside(address: Any) -> None:
        host = address[0] if isinstance(address, tuple) else None
        if host is not None and host not in {"localhost", "::1"} and not host.startswith("127."):
            raise AssertionError(f"A test reached for {address}: only loopback is allowed.")

    def guarded(self: socket.socket, address: Any) -> None:
        refuse_outside(address)
        return connect(self, address)

    def guarded_ex(self: socket.socket, address: Any) -> int:
        refuse_outside(address)
        return connect_ex(self, address)

    patch.setattr(socket.socket, "connect", guarded)
    patch.setattr(socket.socket, "connect_ex", guarded_ex)
    yield
    patch.undo()


@pytest.fixture
def own_postgres(tmp_path: Path) -> Iterator[Postgres]:
    """A migrated server of this test's own, durable: to be killed, filled or made read-only.

    `own_postgres.url(servers.TEMPLATE)` is its database, for `processes.web(DATABASE_URL=…)`.
    """
    server = servers.start(tmp_path / "own", durable=True)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def kept_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """What outlives its test; see `Processes.kept_web`."""
    kept = Processes(tmp_path_factory.mktemp("kept"))
    yield kept
    kept.stop()


@pytest.fixture
def processes(
    transactional_db: None, tmp_path: Path, kept_processes: Processes
) -> Iterator[Processes]:
    """Start the product's own processes against this test's database (tests/processes.py).

    What they are to see must be committed, so the test is transactional.
    """
    running = Processes(tmp_path, kept_processes)
    yield running
    running.stop()
    for process in running.started + running.lent:
        print(f"--- {process.name} ({process.log})\n{process.said()}")  # noqa: T201 - shown on failure


@pytest.fixture
def read_by_nobody() -> Iterator[int]:
    """A place for what a command says, as `| head` leaves it once it has read enough."""
    reads, writes = os.pipe()
    os.close(reads)
    yield writes
    os.close(writes)
