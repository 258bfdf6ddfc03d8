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
import redis
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
from tests.processes import Processes
from tests.whole import Whole, is_whole, pytest_addoption  # noqa: F401 - pytest asks the conftest for it

started: dict[str, Any] = {}
searching_by_default = (700, 10, 10)

# A hundred processes are started from the same source: compiled once, each spends a quarter less.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

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


# What takes nearly half of all time: whole deployments, weeks that were recorded, every page under
# axe. `make long` runs it; of each a shorter story beside it runs with all others.
LONG = (
    "tests/adapters/test_story.py::test_three_calls_the_third_fails_and_what_was_done_is_undone[pydantic_ai",
    "tests/approvals/test_begin_attacked.py::test_one_call_by_many_tries",
    "tests/approvals/test_begin_attacked.py::test_one_key_in_two_runs",
    "tests/approvals/test_begin_attacked.py::test_twenty_questions_over_two_processes",
    "tests/approvals/test_bounded_grants.py::test_of_a_thousand_at_once",
    "tests/approvals/test_keys_change.py",
    "tests/approvals/test_notifications.py::test_a_scanner_that_opens_every_link",
    "tests/approvals/test_redteam.py::test_no_generated_attack_on_payments_passes_and_every_honest_call_does[1",
    "tests/approvals/test_redteam.py::test_no_generated_attack_on_payments_passes_and_every_honest_call_does[2",
    "tests/approvals/test_starters.py::test_hijacked_runs_are_stopped",
    "tests/approvals/test_two_desks.py::test_a_bounded_grant_lets_nine_pass",
    "tests/approvals/test_two_desks.py::test_a_changed_call_is_made_once_and_as_it_was_changed[pooled",
    "tests/approvals/test_two_desks.py::test_a_signed_yes_is_used_once",
    "tests/approvals/test_waiting.py::test_a_thousand_agents_wait",
    "tests/approvals/test_who_may_approve.py::test_python_sql_and_the_database_agree_on_who_may_approve[1",
    "tests/browser/test_api_docs.py",
    "tests/browser/test_approvals.py::test_an_open_inbox_is_told_once",
    "tests/browser/test_approvals.py::test_ben_asks_back_by_keyboard",
    "tests/browser/test_approvals.py::test_everybody_can_use_the_pages",
    "tests/browser/test_approvals.py::test_rows_keep_their_place_on_the_screen",
    "tests/browser/test_approvals.py::test_the_affected_person_answers_without_a_script_and_people_see_it[dark",
    "tests/browser/test_approvals.py::test_what_a_change_would_mean",
    "tests/browser/test_console.py::test_ada_walks_from_case_to_case",
    "tests/browser/test_console.py::test_ada_writes_a_query",
    "tests/browser/test_console.py::test_an_answer_that_takes_long",
    "tests/browser/test_console.py::test_every_new_page_is_for_everybody",
    "tests/browser/test_console.py::test_the_focus_stays_where_it_is",
    "tests/browser/test_deputies.py::test_pages_of_deputies_glass_and_directory",
    "tests/browser/test_every_page.py",
    "tests/browser/test_every_page_outside.py",
    "tests/browser/test_first_event.py::test_the_page_of_a_new_key_has_its_lines_and_turns_to_the_run_as_it_arrives[look1",
    "tests/browser/test_first_event.py::test_the_page_of_a_new_key_has_its_lines_and_turns_to_the_run_as_it_arrives[look2",
    "tests/browser/test_granting.py::test_ben_approves_the_next_ones_too",
    "tests/browser/test_granting.py::test_ben_corrects_an_amount_and_sees_both",
    "tests/browser/test_inbox_keys.py::test_the_other_lists_are_reached",
    "tests/browser/test_inbox_keys.py::test_what_a_decision_leaves_behind_is_for_everybody[dark",
    "tests/browser/test_look.py::test_a_page_goes_by_the_browsers_clock",
    "tests/browser/test_look.py::test_everybody_can_use_the_pages",
    "tests/browser/test_look.py::test_who_lives_in_lists_may_have_them_compact",
    "tests/browser/test_policy_table.py::test_a_rule_that_is_none",
    "tests/browser/test_policy_table.py::test_ada_makes_a_rule_of_a_call",
    "tests/browser/test_policy_table.py::test_ada_says_more_of_a_rule",
    "tests/browser/test_policy_table.py::test_what_a_check_finds",
    "tests/browser/test_queue.py::test_every_page_of_a_case_is_for_everybody",
    "tests/browser/test_queue.py::test_on_a_slow_line_who_presses_again",
    "tests/browser/test_record.py::test_a_person_is_erased_in_two_steps",
    "tests/browser/test_record.py::test_everybody_can_read_the_record",
    "tests/browser/test_settling.py::test_it_was_not_done",
    "tests/browser/test_settling.py::test_what_finn_changed",
    "tests/browser/test_signing.py::test_ben_puts_his_key_on_record_and_signs_with_it",
    "tests/browser/test_teaching.py",
    "tests/browser/test_verifier.py::test_it_says_of_whatever_is_brought",
    "tests/config/test_any_request.py",
    "tests/config/test_backup.py",
    "tests/config/test_checks.py",
    "tests/config/test_door.py::test_each_process_lives_by_a_name_of_its_own",
    "tests/config/test_door.py::test_with_worker_scheduler_and_sweeper",
    "tests/config/test_local_servers.py::test_root_on_a_kernel_without_user_namespaces",
    "tests/config/test_pooler.py",
    "tests/config/test_processes.py",
    "tests/config/test_scim.py::test_the_checker_of_the_standard_finds_nothing_wrong",
    "tests/config/test_single_sign_on.py::test_an_administrator_sets_the_provider",
    "tests/config/test_single_sign_on.py::test_people_come_by_it_into_its_workspace",
    "tests/config/test_single_sign_on.py::test_who_stands_in_a_group_stands_in_its_team",
    "tests/config/test_slow_clients.py",
    "tests/config/test_strong_locks.py",
    "tests/config/test_vanished_hosts.py",
    "tests/config/test_web_processes.py",
    "tests/config/test_worker.py::test_a_pool_shares_what_was_imported",
    "tests/config/test_worker.py::test_a_web_process_outlives_its_database",
    "tests/config/test_worker.py::test_a_worker_finds_the_broker_again",
    "tests/config/test_worker.py::test_a_worker_goes_on_after_all_its_connections",
    "tests/config/test_worker.py::test_a_worker_goes_on_when_a_broker_that_hung",
    "tests/config/test_worker.py::test_a_worker_outlives_a_full_broker",
    "tests/config/test_worker.py::test_a_worker_that_is_at_work_outlives_its_broker",
    "tests/connectors/test_feeds.py::test_a_batch_whose_sender_died",
    "tests/connectors/test_tracker.py::test_restoring_an_issue_keeps_the_promises",
    "tests/contract/test_contract.py::test_a_client_does_what_the_table_says[python: a desk slower than the limit",  # noqa: E501 - one of several
    "tests/contract/test_contract.py::test_a_client_does_what_the_table_says[python: a log-in page in the desk's place",  # noqa: E501 - one of several
    "tests/contract/test_contract.py::test_a_client_does_what_the_table_says[python: what refuses everything on the way",  # noqa: E501 - one of several
    "tests/crash/test_approved_behind_a_pooler.py",
    "tests/crash/test_behind_a_pooler.py",
    "tests/crash/test_canaries.py",
    "tests/crash/test_killed_workers.py",
    "tests/crash/test_slow_systems.py",
    "tests/crash/test_traces.py::test_begin_goes_on_in_the_agents_trace",
    "tests/examples/",
    "tests/failclosed/test_failclosed.py::test_a_frameworks_own_gate_is_measured_beside_it",
    "tests/failclosed/test_failclosed.py::test_our_gate_lets_nothing_run_unapproved_or_twice[pyd",
    "tests/ledger/test_erasure_in_parts.py::test_a_person_with_a_long_run",
    "tests/ledger/test_erasure_in_parts.py::test_a_person_with_more_than_ten_thousand",
    "tests/ledger/test_large_batches.py::test_a_batch_that_waits_too_long_for_its_run",
    "tests/ledger/test_large_batches.py::test_more_batches_than_may_wait",
    "tests/ledger/test_large_batches.py::test_while_the_database_is_away",
    "tests/ledger/test_races.py::test_law_13_two_processes",
    "tests/ledger/test_rates.py::test_after_a_long_outage_nobody_is_held",
    "tests/ledger/test_rates.py::test_while_valkey_is_away",
    "tests/mutants/test_written.py::test_a_sample_of_them",
    "tests/mutants/test_written.py::test_a_server_that_a_mutant_left",
    "tests/recorded/test_in_the_browser.py",
    "tests/recorded/test_recorded_runs.py",
    "tests/recovery/cases/test_alarms.py::test_a_flood_of_critical_cases",
    "tests/recovery/cases/test_alarms.py::test_people_are_told_by_mail_chat_and_signed_webhook",
    "tests/recovery/cases/test_disclosure.py::test_no_page_and_no_endpoint_shows_what_may_not_be_seen[ada",
    "tests/recovery/cases/test_insights.py::test_each_figure_opens_the_cases_that_it_counts",
    "tests/recovery/cases/test_lists.py::test_thirty_rows_take_as_many_queries_as_three",
    "tests/recovery/cases/test_neighbours.py::test_no_address_leads_a_neighbour_to_anything_of_ours[globex",
    "tests/recovery/cases/test_pages_of_one.py::test_a_page_of_one_thing_asks_as_often",
    "tests/recovery/cases/test_roles.py::test_each_right_opens_what_it_is_for",
    "tests/recovery/cases/test_roles_outside.py::test_each_answers_those_that_it_is_for",
    "tests/recovery/cases/test_roles_outside.py::test_no_page_outside_of_a_workspace_is_heavier",
    "tests/recovery/cases/test_settle_pages.py::test_a_page_that_is_loaded_again_and_again",
    "tests/recovery/cases/test_waiting_for_directives.py::test_three_hundred_agents_wait",
    "tests/recovery/engine/test_signed_plans.py::test_a_step_is_not_made_under_a_forged_signature[none-row",
    "tests/sdk/test_approval_receivers.py::test_who_waits_for_a_call_that_was_approved_for_later",
    "tests/sdk/test_away.py::test_killed_between_call_and_outcome",
    "tests/sdk/test_docs.py::test_the_tests_of_the_guide_run_wherever",
    "tests/sdk/test_real_resume.py::test_an_agent_that_was_killed",
    "tests/test_plans.py",
    "tests/test_schema.py::test_the_key_of_events_changes",
)
# `make adapters` runs these folders whole, each client and each framework.
OF_ADAPTERS = (
    "tests/adapters/test_faults.py",
    "tests/adapters/test_story.py::test_what_an_approver_made_of_the_arguments",
    "tests/adapters/test_traps.py",
    "tests/adapters/test_types.py",
    "tests/contract/test_contract.py::test_a_call_does_not_wait_for_all_that_an_outage_has_left[typescript",
    "tests/contract/test_contract.py::test_a_client_does_what_the_table_says[typescript",
    "tests/mcp/",
)


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
    with redis.Redis.from_url(started["valkey"].url) as client:
        client.flushall()


AS_IF_NEW = """
ROLLBACK; RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; CLOSE ALL; UNLISTEN *; DISCARD TEMP;
SELECT pg_advisory_unlock_all()"""


def clean() -> None:
    """The database as it was: emptied where that is enough, else cloned anew."""
    renew_connection()
    if not servers.empty(os.environ["DATABASE_URL"], started["fresh"]):
        clone_anew()
        return
    with redis.Redis.from_url(started["valkey"].url) as client:
        client.flushall()


def renew_connection() -> None:
    """Django's own is as if new, but its server process knows the tables already."""
    from django.db import Error, connection, connections

    servers.spared["django"] = []
    try:
        with connection.cursor() as cursor:
            cursor.execute(AS_IF_NEW)
        connection.ensure_timezone()
        servers.spared["django"] = [connection.connection.info.backend_pid]
    except Error:  # the story cut it, or left it in the middle of something
        connections.close_all()


def hash_passwords_quickly() -> None:
    """Half a second of each test was the hash of a password that everybody knows. Servers that a
    test starts read these hashes as any other, and make and check their own at full strength.
    """
    from django.contrib.auth.hashers import PBKDF2PasswordHasher

    PBKDF2PasswordHasher.iterations = 1


def let_commits_be_cleaned() -> None:
    from django.test import TransactionTestCase

    def _fixture_teardown(self: TransactionTestCase) -> None:
        clean()

    TransactionTestCase._fixture_teardown = _fixture_teardown  # type: ignore[attr-defined]


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
