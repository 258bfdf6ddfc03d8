"""The desk may say no, wait, stop, or that it was done before; the agent heeds it."""

import asyncio

import pytest

import amends
from tests.sdk.conftest import NEW, move


def test_a_denied_call_is_not_made(desk, small_desk):
    small_desk.control(modes={"update_flight": "denied"})

    with (
        pytest.raises(amends.Denied, match="not on Fridays"),
        desk.run("Move it") as run,
        move(run),
    ):
        raise AssertionError("the body ran")


@pytest.mark.parametrize("answer", ["maybe", "garbled"])
def test_an_answer_that_is_no_yes_is_none(desk, small_desk, answer):
    """A later desk's word, or something else's page: what needs the desk is not done."""
    small_desk.control(modes={"charge_card": answer})

    with (
        pytest.raises(amends.DeskUnreachable),
        desk.run("Pay it") as run,
        run.action("charge_card", target=("card", "c1")),
    ):
        raise AssertionError("the body ran")


def test_what_the_desk_refuses_ends_the_run_as_failed(desk, small_desk):
    small_desk.control(modes={"update_flight": "refused"})

    with pytest.raises(amends.Refused, match="no policy"), desk.run("Move it") as run, move(run):
        raise AssertionError("the body ran")
    desk.flush()

    assert small_desk.types() == ["run.started", "run.failed"]


@pytest.mark.timeout(60)
def test_an_error_that_is_its_own_cause_ends_the_run_as_every_other(desk, small_desk):
    error = RuntimeError("circular")
    error.__cause__ = ValueError("of another")
    error.__cause__.__cause__ = error

    with pytest.raises(RuntimeError), desk.run("Move it"):
        raise error
    desk.flush()

    assert small_desk.types() == ["run.started", "run.failed"]


def test_a_stopped_run_ends_as_cancelled(desk, small_desk):
    small_desk.control(modes={"update_flight": "denied"}, code="recovery")

    with pytest.raises(amends.Stopped), desk.run("Move it") as run, move(run):
        raise AssertionError("the body ran")
    desk.flush()

    assert small_desk.types()[-1] == "run.cancelled"


@pytest.mark.parametrize("nested", [False, True])
def test_a_run_that_is_stopped_in_a_group_of_tasks_ends_as_cancelled(desk, small_desk, nested):
    """It was told as failed, which is a case of its own."""
    small_desk.control(modes={"update_flight": "denied"}, code="recovery")

    async def moves():
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(desk.tool("update_flight")(move_awaited)())

    async def story():
        try:
            async with desk.run("Move it"), asyncio.TaskGroup() as tasks:
                tasks.create_task(moves() if nested else desk.tool("update_flight")(move_awaited)())
        finally:
            await desk.async_driver.close()

    async def move_awaited():
        raise AssertionError("the body ran")

    with pytest.raises(ExceptionGroup):
        asyncio.run(story())
    desk.flush()

    [ended] = [one for one in small_desk.journal() if one["type"] == "run.cancelled"]
    assert ended["data"]["by"] == "the desk"


def test_a_stop_is_heeded_at_the_next_checkpoint(desk, small_desk):
    small_desk.control(directive={"id": "d1", "kind": "stop", "reason": "wrong booking"})

    with pytest.raises(amends.Stopped, match="wrong booking"), desk.run("Move it") as run:
        run.checkpoint("half")


def test_an_approval_is_waited_for_and_then_the_call_proceeds(desk, small_desk):
    small_desk.control(modes={"update_flight": "wait"})
    heard = []

    def decide(answer):
        heard.append(answer["url"])
        small_desk.control(decided=[small_desk.journal("begin")[0]["data"]["key"]])

    desk.gate._on_wait = decide
    with desk.run("Move it") as run, move(run) as act:
        act.succeeded(after=NEW)

    assert heard == ["http://desk/approvals/1"]
    first, second = small_desk.journal("begin")
    assert first["attempt"] == second["attempt"]


def test_a_program_that_stands_still_for_people_says_so_and_where_they_are_asked(
    desk, small_desk, caplog
):
    small_desk.control(modes={"update_flight": "wait"})

    with desk.run("Move it") as run:
        with pytest.raises(amends.ApprovalTimeout):
            move(run, wait_seconds=0.1).begin()
        desk.gate._on_wait = lambda _: None  # whoever hears of it says it in their own way
        with pytest.raises(amends.ApprovalTimeout):
            move(run, wait_seconds=0.1).begin()

    [warned] = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert warned == "update_flight waits until people have decided: http://desk/approvals/1"


def test_arguments_that_change_while_people_decide_are_not_used(desk, small_desk):
    small_desk.control(modes={"update_flight": "wait"})
    seats = ["1A"]
    args, called = {"flight": "HAT019", "seats": seats}, list[object]()

    def decide(answer):
        seats.append("1B")  # another thread of the agent goes on with its list
        small_desk.control(decided=[small_desk.journal("begin")[0]["data"]["key"]])

    desk.gate._on_wait = decide
    with (
        pytest.raises(amends.ArgumentsChanged),
        desk.run("Move it") as run,
        move(run, args=args) as act,
    ):
        called.append(act)
    desk.flush(60)

    assert called == []
    assert [body["data"]["args"]["seats"] for body in small_desk.journal("begin")] == [["1A"]] * 2
    [failed] = [event for event in small_desk.journal() if event["type"] == "action.failed"]
    assert failed["data"]["outcome"] == "no_effect"


def test_arguments_that_cannot_be_looked_at_any_more_count_as_changed(desk, small_desk):
    given: dict[str, object] = {"note": "hello"}

    def nest(_):
        given["self"] = given
        small_desk.control(decided=["k1"])

    small_desk.control(modes={"note.add": "wait"})
    desk.gate._on_wait = nest
    with (
        desk.run("Note it") as run,
        pytest.raises(amends.ArgumentsChanged),
        run.action("note.add", target=("note", "n1"), args=given, key="k1"),
    ):
        raise AssertionError("the note was added")
    assert desk.flush(60)

    [failed] = [one for one in small_desk.journal() if one["type"] == "action.failed"]
    assert failed["data"]["outcome"] == "no_effect"


def test_nor_are_those_that_change_between_the_answer_and_the_call(desk):
    args, called = {"flight": "HAT019", "seats": 1}, list[object]()

    with desk.run("Move it") as run:
        act = move(run, args=args).begin()
        args["seats"] = True
        with pytest.raises(amends.ArgumentsChanged):
            act.perform(called.append, args)

    assert called == []


def test_a_wait_ends_at_the_callers_deadline(desk, small_desk):
    small_desk.control(modes={"update_flight": "wait"})

    with (
        pytest.raises(amends.ApprovalTimeout),
        desk.run("Move it") as run,
        move(run, wait_seconds=0.2),
    ):
        raise AssertionError("the body ran")


def test_other_arguments_under_a_key_are_refused(desk):
    with desk.run("Move it") as run:
        with move(run) as act:
            act.succeeded(after=NEW)
        with pytest.raises(amends.KeyReused), move(run, args={"flight": "HAT777"}):
            raise AssertionError("the body ran")


def test_another_attempt_under_way_is_not_doubled(desk):
    with desk.run("Move it") as run, move(run) as act:
        with pytest.raises(amends.InProgress), move(run):
            raise AssertionError("the body ran")
        act.succeeded(after=NEW)


def test_a_resumed_run_skips_what_is_done_and_repeats_what_was_undone(desk, small_desk):
    with desk.run("Trip", run="run_9") as run:
        with move(run) as act:
            act.succeeded(result="moved", after=NEW)
        with run.action("book_car", target=("car", "7")) as car:
            car.succeeded(result="booked", after={})
    step = {"action": car.id, "tool": "book_car", "key": car.row.key, "label": "repeat_new_key"}
    done = {"tool": "update_flight", "label": "skip", "action": act.id, "key": act.row.key}
    small_desk.control(
        compensated={car.row.key: "key-2"},
        directive={"id": "d7", "kind": "resume", "from": "flights_moved", "state": {"at": 2},
                   "steps": [done, step], "n": 9},
    )  # fmt: skip

    with desk.resume("run_9") as again:
        assert again.state == {"at": 2}
        assert again.is_done("update_flight")
        with move(again) as act:
            assert act.replayed
            assert act.result == "moved"
        with again.action("book_car", target=("car", "7")) as car:
            assert not car.replayed
            car.succeeded(result="booked anew", after={})
    desk.flush()

    assert small_desk.types()[-3:] == ["run.resumed", "action.succeeded", "run.completed"]
    resumed = small_desk.journal()[-3]
    assert resumed["data"] == {"directive": "d7", "from": "flights_moved"}
    assert resumed["n"] == 10
    last = small_desk.journal("begin")[-1]
    assert (last["data"]["key"], last["retry"]) == ("key-2", "workflow")


def test_a_call_that_was_undone_is_not_made_again_by_itself(desk, small_desk):
    with desk.run("Move it", run="run_3") as run, move(run) as act:
        act.succeeded(after=NEW)
    small_desk.control(compensated={act.row.key: "key-2"})

    with (
        pytest.raises(amends.Compensated) as undone,
        desk.run("Again", run="run_3") as run,
        move(run),
    ):
        raise AssertionError("the body ran")
    assert undone.value.next_key == "key-2"


def test_a_revoked_key_is_said_openly(small_desk, spool_file):
    with (
        amends.connect(small_desk.url, "amends_revoked", spool=spool_file) as desk,
        pytest.raises(amends.KeyRefused),
        desk.run("Move it") as run,
        move(run),
    ):
        raise AssertionError("the body ran")


def test_a_yes_to_a_call_of_a_run_that_was_cancelled_meanwhile_begins_nothing(desk, small_desk):
    """The end of the run is not told yet, so the desk says yes."""
    small_desk.control(modes={"update_flight": "wait"})

    with desk.run("Move it", run="run_1") as run:
        desk.gate._on_wait = lambda _: cancels(run, small_desk)
        with pytest.raises(amends.NoEffect, match="ended"), move(run):
            pytest.fail("the body ran")
    assert desk.flush(60)

    [failed] = [one["data"] for one in small_desk.journal() if one["type"] == "action.failed"]
    assert failed["outcome"] == "no_effect"


def cancels(run, small_desk):
    run.cancel(by="mia", reason="no longer wanted")
    small_desk.control(modes={})
    small_desk.control(decided=[small_desk.journal("begin")[0]["data"]["key"]])
