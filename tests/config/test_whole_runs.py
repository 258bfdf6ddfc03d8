"""A run of the tests is green only if what should have run has run, each story in its own world."""

import functools
import json
import os
import pickle
import subprocess
import sys

import pytest
from django.db import connection

from approvals import grants
from approvals.gate import begin_context
from config.local.places import ROOT
from recovery.corrections import publishing
from tests import people, worlds
from tests.worlds import kept, quiet

acme, operators, ada = people.acme, people.operators, people.ada

CONFTEST = """
import pathlib, pytest
from tests.whole import Whole, pytest_addoption

def pytest_configure(config):
    pins = pathlib.Path(__file__).with_name("pinned.json")
    config.pluginmanager.register(Whole(config, pins))
"""
INI = """
[pytest]
testpaths = stories
addopts = -p no:cacheprovider -m 'not chaos'
markers =
    chaos: long
"""
TWO = "import pytest\n\ndef test_one():\n    pass\n\n@pytest.mark.parametrize('n', [1, 2])\ndef test_more(n):\n    pass\n"  # noqa: E501


@pytest.fixture
def project(tmp_path):
    """A project of two folders with three tests each, all of them pinned."""
    for folder in ("ledger", "gate"):
        (tmp_path / "stories" / folder).mkdir(parents=True)
        (tmp_path / "stories" / folder / f"test_{folder}.py").write_text(TWO)
    (tmp_path / "stories" / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text(INI)
    pins(tmp_path).write_text(json.dumps({"stories/gate": 3, "stories/ledger": 3}))
    return tmp_path


def pins(project):
    return project / "stories" / "pinned.json"


def ran(project, *more):
    """The exit status, and what was printed."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    # Only the plug-ins that matter here: loading all of them takes longer than the run.
    plain["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xdist", *more],
        cwd=project,
        env=plain | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("how", [[], ["-n", "2"]], ids=["alone", "by two workers"])
def test_a_file_that_is_no_longer_found_is_noticed(project, how):
    assert ran(project, *how)[0] == 0
    (project / "stories" / "gate" / "test_gate.py").rename(project / "stories" / "gate" / "gone.py")

    status, said = ran(project, *how)

    assert status == 1
    assert "stories/gate: 0 tests ran, 3 are pinned" in said
    assert "3 passed" in said.splitlines()[-1], "pytest's own last line is still the last"


def test_a_parametrisation_that_became_empty_is_noticed_beside_a_folder_that_grew(project):
    """pytest skips it, in words that nobody expects."""
    empty = TWO.replace("[1, 2]", "[]")
    (project / "stories" / "gate" / "test_gate.py").write_text(empty)
    (project / "stories" / "ledger" / "test_grown.py").write_text(TWO)

    status, said = ran(project)

    assert status == 1
    assert "stories/gate: 2 tests ran, 3 are pinned" in said
    assert "skipped, and nobody expects it: got empty parameter set" in said


@pytest.mark.parametrize("how", [[], ["-n", "2"], ["-k", "one"]])
def test_a_skip_that_nobody_expects_fails_the_run(project, how):
    skips = "import pytest\n\ndef test_one():\n    pytest.skip('{}')\n"
    (project / "stories" / "gate" / "test_skips.py").write_text(
        skips.format("the recorded runs are not at /nowhere")
    )
    assert ran(project, *how)[0] == 0

    (project / "stories" / "gate" / "test_skips.py").write_text(skips.format("no time today"))

    status, said = ran(project, *how)
    assert status == 1
    assert "skipped, and nobody expects it: no time today" in said


def test_more_tests_than_are_pinned_are_no_fault_and_are_pinned_when_asked_for(project):
    (project / "stories" / "ledger" / "test_grown.py").write_text(TWO)
    status, said = ran(project)
    assert (status, "3 tests more than are pinned" in said) == (0, True)

    assert ran(project, "--pin")[0] == 0

    assert json.loads(pins(project).read_text()) == {"stories/gate": 3, "stories/ledger": 6}


def test_a_run_of_a_part_is_held_against_no_number(project):
    pins(project).write_text(json.dumps({"stories/gate": 300, "stories/ledger": 300}))
    assert ran(project)[0] == 1

    for part in (["stories/ledger"], ["-k", "one"], ["-m", "chaos or not chaos"]):
        assert ran(project, *part)[0] == 0, part
        assert ran(project, "--pin", *part)[0] == pytest.ExitCode.USAGE_ERROR, part


def test_what_is_red_pins_nothing(project):
    before = pins(project).read_text()
    (project / "stories" / "gate" / "test_red.py").write_text("def test_red():\n    assert 0\n")

    assert ran(project, "--pin")[0] == 1

    assert pins(project).read_text() == before


def test_every_test_has_a_time_limit(pytestconfig):
    assert 0 < float(pytestconfig.getini("timeout")) <= 600
    assert pytestconfig.pluginmanager.hasplugin("timeout")


@pytest.mark.django_db
def test_a_world_is_put_back_as_it_was_built(ada):
    built = worlds._found({"ada": ada}, None)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        for statement, _ in built.rows:
            cursor.execute(f"DELETE FROM {statement.split()[1]}")
        cursor.execute("SET LOCAL session_replication_role = origin")
    assert worlds._rows(connection.connection, worlds.tables) == []

    worlds._put_back(built, None)

    assert worlds._rows(connection.connection, worlds.tables) == built.rows
    again = pickle.loads(built.given)["ada"]  # noqa: S301 - our own
    assert (again == ada, again is ada) == (True, False), "each story has its own"


def test_what_was_known_of_an_id_is_forgotten_with_its_world(monkeypatch):
    """The gate believes what it noted of an agent's tools: the next story has the same agent."""
    begin_context._shapes.keep((1, "pay"), "a digest")
    publishing.DRAFTED._after = 7
    recorded = (grants._told_of, grants._calls_of)
    for one in recorded:
        monkeypatch.setattr(grants, one.__name__, functools.lru_cache(lambda _: None))
        getattr(grants, one.__name__)(7)

    worlds._forget_what_others_did()

    assert begin_context._shapes.get((1, "pay")) is None
    assert publishing.DRAFTED._after == 0
    left = [getattr(grants, one.__name__).cache_info().currsize for one in recorded]
    assert left == [0, 0], "that a yes is in the ledger"


@pytest.fixture
@quiet
def shop_url():
    return "of this file"


@pytest.fixture
@kept
def reached(acme, shop_url):
    return acme.agents.create(name=shop_url)


def test_a_world_is_of_all_that_it_rests_on(request, reached):
    assert {"db", "acme", "shop_url", "reached"} <= worlds.Parts(request.node).all.keys()


def test_what_changes_settings_is_not_kept():
    with pytest.raises(AssertionError, match="hardened"):

        @kept
        def hardened(acme, settings):
            """The next story would have the rows, and not the setting."""


@pytest.fixture
@kept(in_turn=True)
def first_agent(acme):
    return acme.agents.create(name="first")


@pytest.fixture
def other_agent(acme):
    return acme.agents.create(name="other")


def test_what_comes_first_is_of_the_world(request, first_agent, other_agent):
    assert {"acme", "first_agent"} == worlds.Parts(request.node).kept.keys()


def test_what_might_have_been_changed_before_is_built_in_its_turn(
    request, other_agent, first_agent
):
    assert {"acme"} == worlds.Parts(request.node).kept.keys()
    assert other_agent.pk < first_agent.pk
