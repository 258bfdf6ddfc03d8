"""What the AI SDK lets through is asked of the desk all the same; tests/adapters has the rest."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import npm

AGENT = Path(__file__).parent / "agents" / "ai.ts"
DENIED = {"answer": {"answer": "denied", "reason": "not on Fridays", "code": "rule"}}


@pytest.fixture
def agent(desk, tmp_path):
    """Let it try; which tools ran, and the error that ended it."""
    folder = npm.client() / tmp_path.name
    folder.mkdir()
    (folder / "package.json").write_text('{"type": "module"}', "utf-8")
    shutil.copy(AGENT, folder)

    def tries(how):
        command = [npm.NODE, folder / AGENT.name, desk.url, "amends_x", tmp_path / "spool", how]
        done = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, timeout=60, check=True
        )
        said = json.loads(done.stdout.splitlines()[-1])
        return said["ran"], said["error"]

    yield tries
    shutil.rmtree(folder)


def test_a_stream_asks_and_its_last_word_is_the_answer(desk, agent):
    assert agent("streams") == ([{"licence": "L-21"}], "")
    assert desk.heard == ["run.started", "begin assign_licence", "action.succeeded",
                          "run.completed"]  # fmt: skip
    assert desk.events[1]["data"]["result"] == "given"


def test_a_yes_in_the_history_is_no_word_of_the_desks(desk, agent):
    desk.script["begin"] = [DENIED]

    assert agent("brings_a_yes") == ([], "")
    assert desk.heard == ["run.started", "begin assign_licence", "run.completed"]


def test_a_stop_that_the_sdk_takes_for_a_tools_error_ends_the_run(desk, agent):
    """The model hears of an error, says no more, and the SDK is content."""
    over = {"answer": "denied", "reason": "it is recovered", "code": "recovery"}
    desk.script["begin"] = [{"answer": over}]

    ran, error = agent("streams")

    assert ran == []
    assert "the desk has stopped this run" in error
    assert desk.heard == ["run.started", "begin assign_licence", "run.cancelled"]


def test_what_was_allowed_and_never_made_is_told_as_not_made(desk, agent):
    agent("is_asked_and_never_calls")

    assert desk.heard == ["run.started", "begin assign_licence", "action.failed", "run.completed"]
    assert desk.events[1]["data"]["outcome"] == "no_effect"


def test_tools_that_would_run_past_the_desk_are_refused_by_name(agent):
    ran, error = agent("has_tools_of_others")

    assert ran == []
    assert "these would run without the desk being asked: search." in error


def test_a_declared_name_that_is_nearly_a_tools_is_told_and_others_are_of_other_agents(agent):
    ran, error = agent("misspells_a_tool")

    assert not error
    assert len(ran) == 1
    assert "nothing is declared of assign_licence: is it “assign_license”, misspelled?" in ran[0]
