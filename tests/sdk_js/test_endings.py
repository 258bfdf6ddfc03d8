"""However a program in TypeScript ends or errs, what it did and what nobody knows is told."""

import datetime as dt
import json
import sqlite3
import subprocess
import threading
from pathlib import Path

import pytest

from tests import npm
from tests.contract import desk as contract_desk

AGENT = Path(__file__).parent / "agents" / "endings.ts"
# Told before the program: beside its spool lies a file as soon as it waits for a lock.
TELLS_THAT_IT_WAITS = (
    "data:text/javascript,import { writeFileSync } from 'node:fs'; const { wait } = Atomics;"
    "Atomics.wait = (...told) => { writeFileSync(`${process.argv[4]}.waits`, '');"
    " return wait(...told); };"
)
UNKNOWN = ["run.started", "begin update_flight", "action.failed", "run.cancelled"]


@pytest.fixture
def agent(desk, tmp_path):
    """Let it end so; its exit code, and what it did outside."""

    def ends(how, *flags):
        outside = tmp_path / "outside"
        command = [npm.NODE, *flags, AGENT, desk.url, "amends_x", tmp_path / "spool", outside, how]
        done = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, timeout=60, check=False
        )
        assert "ExperimentalWarning" not in done.stderr
        return done.returncode, outside.read_text("utf-8") if outside.exists() else done.stderr

    return ends


def said_of(desk, kind):
    [event] = [event for event in desk.events if event["type"] == kind]
    return event["data"]


def test_sigterm_in_a_call_is_an_unknown_outcome_and_the_run_is_cancelled(desk, agent):
    code, outside = agent("is_told_to_end")

    assert code == 128 + 15
    assert "went on" not in outside
    assert desk.heard == UNKNOWN
    assert said_of(desk, "action.failed")["outcome"] == "unknown"
    assert said_of(desk, "run.cancelled") == {"by": "the process", "reason": "Terminated"}


def test_a_spool_that_another_process_is_making_is_waited_for(desk, agent, tmp_path):
    other = sqlite3.connect(tmp_path / "spool", isolation_level=None, check_same_thread=False)
    other.executescript("BEGIN IMMEDIATE; CREATE TABLE made_first (x)")
    told, is_over = tmp_path / "spool.waits", threading.Event()

    def lets_go_once_it_is_waited_for():
        while not told.exists() and not is_over.wait(0.01):
            pass
        other.execute("COMMIT")

    beside = threading.Thread(target=lets_go_once_it_is_waited_for)
    beside.start()
    came = agent("handles_the_signal_itself", "--import", TELLS_THAT_IT_WAITS)
    is_over.set()
    beside.join()
    other.close()

    assert came == (0, "handled\n")
    assert told.exists(), "it met the file while another had it"


def test_an_undo_that_is_too_large_to_be_told_costs_no_success(desk, agent):
    """The call was told as one of which nobody knows whether it happened."""
    code, words = agent("names_an_undo_that_is_too_large")

    assert code == 0, words
    told = ["run.started", "begin update_flight", "action.succeeded", "run.completed"]
    assert desk.heard == told


def test_a_draft_that_can_be_undone_has_its_effect_whatever_else_is_wrong_with_what_is_said(
    desk, agent
):
    """Its undo was told, and nothing that it would put away."""
    assert agent("drafts_with_an_undo_and_a_mistake")[0] == 0

    told = said_of(desk, "action.succeeded")
    assert "compensation" in told
    assert told["effects"] == [{"target": {"type": "mail", "id": "m-1"}}]


def test_a_spool_that_is_damaged_is_named_before_anything_is_done(desk, agent, tmp_path):
    assert agent("exits_after_its_run")[0] == 0
    spool = tmp_path / "spool"
    sqlite3.connect(spool).execute("PRAGMA wal_checkpoint(TRUNCATE)").connection.close()
    whole = spool.read_bytes()
    spool.write_bytes(whole[:4096] + b"?" * (len(whole) - 4096))

    code, words = agent("exits_after_its_run")

    assert code == 1
    assert f"the spool {spool} cannot be opened" in words


def test_whoever_handles_sigterm_is_left_alone(desk, agent):
    assert agent("handles_the_signal_itself") == (0, "handled\n")
    assert desk.heard == ["run.started", "run.completed"]


def test_an_exit_in_a_call_is_on_disk_and_told_by_the_next_process(desk, agent):
    code, _ = agent("exits")
    assert code == 3
    assert desk.heard == ["run.started", "begin update_flight"]

    desk.script["begin"] = [{"answer": {"answer": "in_doubt", "action": "act_0"}}]
    _, outside = agent("takes_long")

    assert "InDoubt" in outside
    assert desk.heard[2:4] == ["action.failed", "run.cancelled"]
    assert desk.events[1]["data"]["outcome"] == "unknown"


def test_a_run_is_told_before_it_returns_or_throws_so_that_no_end_of_the_process_hides_it(
    desk, agent, tmp_path
):
    assert agent("exits_after_its_run")[0] == 0
    assert desk.heard == ["run.started", "begin update_flight", "action.succeeded", "run.completed"]

    desk.heard.clear()
    (tmp_path / "spool").unlink()
    code, words = agent("throws_and_nobody_catches")

    assert (code, "RangeError: the model gave up" in words) == (1, True)
    assert desk.heard[-2:] == ["action.succeeded", "run.failed"]


@pytest.mark.parametrize("is_slow", [False, True])
def test_a_desk_that_does_not_answer_keeps_no_run_from_its_end(desk, agent, tmp_path, is_slow):
    if is_slow:
        desk.script["events"] = [{}, *[{"seconds": 9}] * 9]
    else:
        desk.down()
    code, _ = agent("throws_and_nobody_catches")

    assert code == 1
    with sqlite3.connect(tmp_path / "spool") as spool:
        left = [json.loads(body)["type"] for (body,) in spool.execute("SELECT body FROM events")]
    assert left[-1] == "run.failed"


def test_a_program_that_stands_still_for_people_says_so_and_where_they_are_asked(desk, agent):
    asks = {"answer": "wait", "approval": "ap_1", "url": "http://desk/approvals/1"}
    desk.script["begin"] = [{"answer": asks}]

    _, said = agent("waits_for_people")

    assert "amends: update_flight waits until people have decided: http://desk/approvals/1" in said


def test_a_run_that_is_left_open_as_the_process_ends_is_cancelled(desk, agent):
    agent("forgets_its_endings")

    assert desk.heard == UNKNOWN


def test_a_block_that_is_left_without_a_word_has_failed(desk, agent):
    agent("uses_blocks")

    assert desk.heard == ["run.started", "begin update_flight", "action.succeeded",
                          "begin send_mail", "action.failed", "run.failed"]  # fmt: skip
    assert said_of(desk, "action.failed")["outcome"] == "unknown"
    assert said_of(desk, "run.failed")["error"]["type"] == "MissingOutcome"


@pytest.mark.parametrize("behind", [{}, {"hours": 1}, {"days": -2}], ids=str)
def test_the_lease_of_a_long_call_is_renewed_under_its_attempt(desk, agent, behind):
    """Whatever the agent's clock says: one that was behind renewed five minutes later, and one that
    was ahead every second.
    """
    until = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=3, **behind)
    lent = {"answer": "proceed", "action": "act_1", "fence": 1, "lease_until": until.isoformat(),
            "lease_seconds": 3}  # fmt: skip
    desk.script["begin"] = [{"answer": lent}] * 9
    agent("takes_long")

    assert desk.heard.count("begin update_flight") == 2
    assert len({body["attempt"] for body in desk.begun}) == 1
    assert desk.heard[-2:] == ["action.succeeded", "run.completed"]


def test_who_aborts_a_wait_makes_no_call(desk, agent):
    desk.script["begin"] = [{"answer": {"answer": "wait", "approval": "ap_1"}}]
    _, outside = agent("is_aborted_while_it_waits")

    assert "TimeoutError" in outside
    assert "made" not in outside
    assert desk.heard == ["run.started", "begin update_flight", "run.failed"]


def test_who_aborted_before_it_began_makes_no_call_whatever_the_reason(desk, agent):
    _, outside = agent("was_aborted_and_nobody_said_why")

    assert "NoEffect: the signal of this call was aborted" in outside
    assert desk.heard == ["run.started", "begin update_flight", "action.failed", "run.failed"]
    assert said_of(desk, "action.failed")["outcome"] == "no_effect"


def test_who_aborts_between_the_yes_and_the_call_makes_none(desk, agent):
    """It was made, with a signal that was aborted already."""
    _, outside = agent("is_aborted_before_it_performs")

    assert "RangeError: the user has gone" in outside
    assert said_of(desk, "action.failed")["outcome"] == "no_effect"


def test_a_tool_that_is_wrapped_twice_is_one_call(desk, agent):
    _, outside = agent("is_wrapped_twice")

    assert outside.split("\n")[:3] == ["made KL1", "made KL2", "heard of it"]
    calls = ["begin update_flight", "action.succeeded"] * 2
    assert desk.heard[:6] == ["run.started", *calls, "run.completed"]
    assert desk.heard[6:] == ["run.started", "begin cancel", "action.succeeded", "run.completed"]


def test_the_same_call_within_a_call_is_made_once(desk, agent):
    """The second one was made, too, under the one yes, and nobody was told of it."""
    denied = {"answer": "denied", "reason": "it is under way", "code": "rule"}
    desk.script["begin"] = [{}, {}, {"answer": denied}]
    _, outside = agent("calls_the_same_twice_within")

    assert outside.split("\n")[:3] == ["paid ada", "paid mia", "paid mia"]
    assert outside.count("paid") == 3
    assert desk.heard.count("begin pay") == 3


def test_what_a_tool_leaves_behind_or_has_changed_is_asked_for_anew(desk, agent):
    """It was taken for the call that was under way, and made unasked."""
    proceed = {"answer": "proceed", "action": "act_1", "fence": 1}
    replay = {"answer": "replay", "action": "act_1", "result": "KL1"}
    desk.script["begin"] = [{"answer": proceed}, {"answer": replay}]
    _, outside = agent("leaves_a_timer_behind")

    assert outside.split("\n")[0] == "made KL1"
    assert outside.count("made") == 1
    assert [one for one in desk.heard if one.startswith("begin")] == [
        *["begin update_flight"] * 2, *["begin cancel"] * 2,
    ]  # fmt: skip


def test_one_action_is_one_call_whatever_its_block_does_and_however_often_it_begins(desk, agent):
    proceed = {"answer": "proceed", "action": "act_1", "fence": 1}
    replay = {"answer": "replay", "action": "act_1", "result": None}
    desk.script["begin"] = [{"answer": one} for one in (proceed, proceed, replay)]
    _, outside = agent("performs_again")

    assert outside.split() == ["late", "RangeError", "InDoubt", "AmendsError", "TypeError", "made"]
    assert desk.heard.count("action.succeeded") == 1
    assert said_of(desk, "action.failed")["outcome"] == "unknown"


def test_what_a_call_answers_bit_by_bit_is_told_by_whoever_goes_through_it(desk, agent):
    _, outside = agent("answers_bit_by_bit")

    assert outside.splitlines() == ["TypeError true"] * 3
    told = [event["data"] for event in desk.events if event["type"].startswith("action.")]
    assert [one.get("outcome", one.get("result")) for one in told] == [*["unknown"] * 3, "ab"]


def test_a_refusal_that_is_met_after_the_call_is_none_of_the_call(desk, agent):
    _, outside = agent("is_refused_after_the_call")

    assert outside.splitlines() == [
        "books", "AmendsError book_hotel was called, and then: busy",
        "calls a taxi", "NoEffect: busy",
    ]  # fmt: skip
    told = [event["type"] for event in desk.events if event["type"].startswith("action.")]
    assert told == ["action.succeeded", "action.failed"]
    assert said_of(desk, "action.failed")["outcome"] == "unknown"


def test_a_word_of_a_run_that_nobody_would_read_is_refused(desk, agent):
    _, outside = agent("misspells")

    assert [line.partition(":")[0] for line in outside.splitlines()] == ["AmendsError"] * 2
    assert "onBehalfOf has no “mail”: it is id, name, contact" in outside
    assert "has no “gaol”: it is goal, model, labels" in outside
    assert desk.heard == []


def test_a_word_of_a_call_that_nobody_would_read_is_refused_and_nothing_is_asked(desk, agent):
    """A class in the spelling of Python was left out, and the call passed as a milder one."""
    _, outside = agent("misspells_a_call")

    lines = outside.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["AmendsError"] * 7
    for line, words in zip(lines, (
        "onBehalfOf is an object", "the body is missing", "has no “effect_class”: it is target,",
        "undo is undo(", "args is no object", "the body is missing", "has no “undo_of_result”",
    ), strict=True):  # fmt: skip
        assert words in line
    assert not [one for one in desk.heard if one.startswith("action")]


def test_a_word_of_a_success_that_nobody_would_read_is_refused_after_it_is_kept(desk, agent):
    """It was passed over in silence, and the effect had no state to be restored."""
    _, outside = agent("misspells_a_success")

    assert outside.count("AmendsError: ") == outside.count("has no “aftr”: it is before, ") == 2
    assert desk.heard == ["run.started", *["begin update_flight", "action.succeeded"] * 2,
                          "run.completed"]  # fmt: skip


def test_an_undo_that_is_null_is_none_as_in_python(desk, agent):
    """It is what JavaScript says where nothing was found; types are known to TypeScript alone."""
    _, outside = agent("knows_of_no_undo")

    assert outside == "called\n"
    assert "compensation" not in said_of(desk, "action.succeeded")


def test_arguments_that_were_changed_are_not_used(desk, agent):
    _, outside = agent("changes_its_arguments")

    assert outside.startswith("ArgumentsChanged")
    assert said_of(desk, "action.failed")["outcome"] == "no_effect"


def test_arguments_of_an_approver_that_were_changed_are_neither_used_nor_told(desk, agent):
    """Told as a tool left them, it was a case: made with others than were approved."""
    yes = {"answer": "proceed", "fence": 1, "arguments": {"to": ["mia"]}}
    desk.script["begin"] = [{"answer": {**yes, "action": f"act_{n}"}} for n in (1, 2)]

    _, outside = agent("changes_what_an_approver_made_of_them")

    assert outside == "ArgumentsChanged\nmia alone\n"
    assert said_of(desk, "action.failed")["outcome"] == "no_effect"
    assert said_of(desk, "action.succeeded")["args"] == {"to": ["mia"]}


def test_a_number_of_an_approver_that_is_wider_than_any_double_is_told_as_it_is(desk, agent):
    """As a double it was refused once the call was made: neither success nor failure was told."""
    yes = {"answer": "proceed", "fence": 1, "action": "act_1", "arguments": {"wei": 10**21}}
    desk.script["begin"] = [{"answer": yes}]

    _, outside = agent("is_approved_with_a_wide_number")

    assert outside == f"{10**21}\n"
    assert said_of(desk, "action.succeeded")["args"] == {"wei": 10**21}


def test_of_a_call_that_was_made_with_too_much_to_be_told_it_is_not_said_that_it_was_not(
    desk, agent
):
    """The model would make it in another way, for a second time."""
    yes = {"answer": "proceed", "fence": 1, "action": "act_1", "arguments": {"text": "x" * 70_000}}
    desk.script["begin"] = [{"answer": yes}]

    _, outside = agent("is_approved_with_too_much_to_be_told")

    made, told = outside.splitlines()
    assert made == "70000"
    assert told.startswith("false write was called, and then: ")


def test_a_state_that_is_a_map_is_kept(desk, agent):
    agent("keeps_a_map")

    assert said_of(desk, "run.checkpoint") == {"name": "half", "state": {"next": "mail"}}


def test_a_tool_is_tried_again_its_undo_knows_the_result_and_a_rounded_result_is_not_kept(
    desk, agent
):
    _, outside = agent("has_tools")

    assert outside == "books H1\nbooks H1\n"
    assert desk.heard == ["run.started", "begin book_hotel", "action.failed", "begin book_hotel",
                          "action.succeeded", "action.verified", "run.completed"]  # fmt: skip
    assert [body.get("retry") for body in desk.begun] == [None, "tool"]
    told = said_of(desk, "action.succeeded")
    assert told["compensation"]["args"] == {"booking": "B-1"}
    assert "above 2^53" in told["result"]["not_recorded"]
    assert said_of(desk, "action.verified")["ok"]


def test_of_processes_that_share_a_spool_one_makes_each_call_while_the_desk_is_away(desk, tmp_path):
    """A queue hands each job to two workers: both look at once, and one may go on."""
    desk.down()
    command = [npm.NODE, AGENT, desk.url, "amends_x", tmp_path / "spool", tmp_path / "outside",
               "works_beside_another"]  # fmt: skip
    twins = [
        subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for one in twins:
        assert one.communicate(timeout=60) == (None, ""), one.returncode
    made = (tmp_path / "outside").read_text("utf-8").split()

    assert sorted(made) == sorted(f"k-{number}" for number in range(60))


def test_what_a_tool_in_a_tool_says_is_not_said_of_the_outer_one(desk, agent):
    """It has done something before, and what was read after a call is not the call."""
    desk.script["begin"] = [{}, {}, {}, {"answer": {"answer": "in_doubt", "action": "act_1"}}]

    _, outside = agent("calls_a_tool_in_a_tool")

    told = outside.splitlines()
    assert told[:2] == ["books", "NoEffect busy"]
    assert told[2].startswith("false book_taxi was called, and then: an earlier try of this call")
    assert told[3:5] == ["pays", "false pay was called, and then: the desk is away"]
    assert told[5] == "books a bus"
    assert told[6].startswith("false book_bus was called, and then: ")
    said = [one["data"]["outcome"] for one in desk.events if one["type"] == "action.failed"]
    assert said == ["no_effect", "unknown", "unknown", "unknown"]


def test_no_snapshot_leaves_the_agent_where_the_policy_keeps_none(desk, agent, monkeypatch):
    safety = contract_desk.POLICY["document"]["agentSafety"]
    monkeypatch.setitem(safety, "audit", {"captureSnapshot": False})

    code, words = agent("has_large_snapshots")

    assert code == 0, words
    told = said_of(desk, "action.succeeded")
    target = {"type": "reservation", "id": "XEHM4B"}
    # A masked state is not exact.
    assert told["effects"] == [{"target": target, "reversibility": "unknown"}]
