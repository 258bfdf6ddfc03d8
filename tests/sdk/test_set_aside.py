"""What something on the way to the desk refuses is set aside, told, and can be sent again."""

import subprocess
import sys

import pytest

import amends
from amends.values import as_targets
from tests.sdk.conftest import ENVIRONMENT, KEY


def aside(spool, *arguments, to=subprocess.PIPE):
    """The command, as an operator types it."""
    command = [sys.executable, "-m", "amends", "aside", "--spool", str(spool), *arguments]
    return subprocess.run(
        command, env=ENVIRONMENT, stdout=to, stderr=subprocess.PIPE, text=True, timeout=60,
        check=False,
    )  # fmt: skip


@pytest.fixture
def through_a_proxy(small_desk, spool_file):
    """What an agent has said behind a proxy that does not let one of its nine events through."""

    def said(status):
        small_desk.stop()
        with amends.connect(small_desk.url, KEY, spool=spool_file) as desk:
            with desk.run("Move it", run="run_p") as run:
                for number in range(7):
                    run.say(
                        "run.checkpoint", {"name": f"c{number}" + "; DROP TABLE" * (number == 3)}
                    )
            small_desk.start(minds="DROP TABLE", says=status)
            return desk.flush(60), desk.parked()

    return said


@pytest.mark.parametrize("status", [400, 403, 406, 422, 451])
def test_one_event_that_a_proxy_refuses_is_set_aside_and_the_others_go_on(
    through_a_proxy, small_desk, spool_file, status, caplog
):
    is_sent, parked = through_a_proxy(status)

    assert is_sent
    names = [event["data"].get("name") for event in small_desk.journal()]
    assert names == [None, "c0", "c1", "c2", "c4", "c5", "c6", None]
    [(event, problem)] = parked
    assert event["data"]["name"].startswith("c3;")
    assert "a page of somebody else's" in str(problem)
    assert "something on the way" in caplog.text
    assert f"1 events are set aside in {spool_file}" in caplog.text


def test_what_was_set_aside_is_shown_and_sent_again_in_its_place(
    through_a_proxy, small_desk, spool_file, caplog, read_by_nobody
):
    through_a_proxy(400)
    shown = aside(spool_file)
    assert (shown.returncode, "run.checkpoint  run_p" in shown.stdout) == (1, True)
    assert "1 events are set aside" in shown.stdout
    unread = aside(spool_file, to=read_by_nobody)  # as `| head` leaves it
    assert (unread.returncode, unread.stderr) == (1, "")
    small_desk.control(minds="")
    assert "0 events are in line" in aside(spool_file, "--retry", "of-another").stdout
    assert "1 events are in line again" in aside(spool_file, "--retry").stdout
    caplog.clear()

    with amends.connect(small_desk.url, KEY, spool=spool_file) as desk:
        assert desk.flush(60)
        assert (desk.parked(), desk.retry_parked()) == ([], 0)

    assert "set aside" not in caplog.text
    assert small_desk.journal()[-1]["data"]["name"].startswith("c3;")
    assert aside(spool_file).stdout.startswith("Nothing is set aside.")
    assert aside(spool_file.with_name("no.sqlite")).returncode == 2
    assert not spool_file.with_name("no.sqlite").exists()


def test_a_snapshot_that_a_proxy_refuses_waits_with_its_event(small_desk, spool_file):
    with amends.connect(small_desk.url, KEY, spool=spool_file) as desk:
        with desk.run("Move it") as run:
            small_desk.control(minds_blobs=True, says=400)
            with run.action("update", target=("page", "1"), args={}, effect_class="draft") as act:
                act.succeeded({"text": "x" * 80_000})
        assert desk.flush(60)
        assert [event["type"] for event, _ in desk.parked()] == ["action.succeeded"]
        assert small_desk.types()[-1] == "run.completed"
        small_desk.control(minds_blobs=False)
        assert desk.retry_parked() == 1
        assert desk.flush(60)
        assert len(small_desk.journal("blob")) == 1


@pytest.mark.parametrize("status", [400, 403, 406, 422, 451])
def test_what_refuses_everything_is_not_believed_of_any_event(small_desk, spool_file, status):
    with amends.connect(small_desk.url, KEY, spool=spool_file) as desk:
        small_desk.control(gone=status)
        desk.run("Move it", run="run_w").start()
        assert not desk.flush(0.2)
        assert desk.parked() == []


@pytest.mark.parametrize(
    "target", ["nope", 7, ("a", "b", "c"), ["nope"], {"type": "page"}, b"x", [("page", "1"), "2"]]
)
def test_what_is_no_target_is_said_so(target):
    with pytest.raises(ValueError, match="is no target: give a pair of type and id"):
        as_targets(target)


def test_a_call_without_a_proper_target_is_not_made(small_desk, spool_file):
    with (
        amends.connect(small_desk.url, KEY, spool=spool_file) as desk,
        desk.run("Move it") as run,
        pytest.raises(ValueError, match="'nope' is no target"),
    ):
        run.action("update_flight", target="nope", args={})  # type: ignore[arg-type]
    with (
        amends.connect(small_desk.url, KEY, spool=spool_file) as desk,
        desk.run("Move it") as run,
        pytest.raises(TypeError, match=r"undo is amends\.undo\("),
    ):
        run.action("update_flight", undo="airline.restore")  # type: ignore[arg-type]
