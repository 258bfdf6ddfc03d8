"""The desk is away, answers are lost, agents are killed: nothing is done twice or forgotten.

Law 11 of docs/faults.md: a gated call is blocked; an ungated one is spooled and arrives later,
once.
"""

import contextlib
import signal
import subprocess
import sys
import threading

import pytest

import amends
from amends.spool import Spool
from tests.ports import free_port
from tests.sdk.conftest import ENVIRONMENT, KEY, NEW, act_and_die, move


@pytest.fixture
def agent(small_desk, spool_file, tmp_path):
    """Start the agent; gives what it printed, or that it was killed."""

    def start(die="nowhere"):
        return act_and_die(small_desk.url, KEY, spool_file, tmp_path / "outside", die)

    return start


@pytest.fixture
def outside(tmp_path):
    def journal():
        file = tmp_path / "outside"
        return file.read_text().splitlines() if file.exists() else []

    return journal


def charge(run):
    return run.action("charge_card", target=("card", "4421"), args={"amount": 100})


def test_law_11_a_gated_call_is_blocked_while_the_desk_is_away(desk, small_desk):
    desk.fetch_policy()
    small_desk.stop()

    with (
        pytest.raises(amends.DeskUnreachable, match="may not be made without it"),
        desk.run("Pay") as run,
        charge(run),
    ):
        raise AssertionError("the card was charged")


def test_law_11_an_ungated_call_is_spooled_and_arrives_later_once(desk, small_desk):
    desk.fetch_policy()
    small_desk.stop()
    with desk.run("Move it") as run, move(run) as act:
        act.succeeded(result="moved", after=NEW)
    assert not desk.flush(0.3)

    small_desk.start()
    assert desk.flush(60)

    assert small_desk.types() == ["run.started", "action.planned", "action.started",
                                  "action.succeeded", "run.completed"]  # fmt: skip
    planned, started, succeeded = small_desk.journal()[1:4]
    assert planned["action"] == started["action"] == succeeded["action"]
    assert started["data"]["attempt"] == succeeded["data"]["attempt"]
    assert "fence" not in succeeded["data"]


def test_without_a_policy_every_external_call_waits_for_the_desk(small_desk, spool_file):
    small_desk.stop()
    with amends.connect(
        small_desk.url, KEY, spool=spool_file, workspace="northwind"
    ) as desk, desk.run("Move it") as run:  # fmt: skip
        with pytest.raises(amends.DeskUnreachable), move(run):
            raise AssertionError("the body ran")
        with move(run, op="draft", effect_class="internal_update") as act:
            act.succeeded(after=NEW)


def test_without_having_met_the_desk_a_workspace_must_be_named(small_desk, spool_file):
    small_desk.stop()
    with (
        amends.connect(small_desk.url, KEY, spool=spool_file) as desk,
        pytest.raises(amends.DeskUnreachable),
        desk.run("Move it") as run,
        move(run),
    ):
        raise AssertionError("the body ran")


def test_own_keys_are_answered_from_the_spool(desk, small_desk):
    desk.fetch_policy()
    small_desk.stop()
    with desk.run("Move it") as run:
        with move(run) as act:
            act.succeeded(result="moved", after=NEW)
        with move(run) as again:
            assert (again.replayed, again.result) == (True, "moved")
        with pytest.raises(amends.KeyReused), move(run, args={"flight": "HAT777"}):
            raise AssertionError("the body ran")
        with move(run, op="second") as open_call:
            with pytest.raises(amends.InDoubt), move(run, op="second"):
                raise AssertionError("the body ran")
            open_call.failed(amends.NoEffect("sold out"), outcome="no_effect")
        with move(run, op="second", args={"flight": "HAT778"}) as free:
            free.succeeded(after=NEW)


def test_a_lost_answer_is_asked_for_again_with_the_same_attempt(desk, small_desk):
    small_desk.control(lose=1)
    with desk.run("Move it") as run, move(run) as act:
        act.succeeded(after=NEW)

    first, second = small_desk.journal("begin")
    assert first == second


def test_an_answer_lost_for_good_leaves_one_action(desk, small_desk):
    desk.fetch_policy()
    small_desk.control(lose=3)
    with desk.run("Move it", run="run_l") as run, move(run) as act:
        act.succeeded(result="moved", after=NEW)
    desk.flush()

    with desk.run("Move it again", run="run_l") as run, move(run) as again:
        assert again.replayed
    assert {body["action"] for body in small_desk.journal("begin")} == {again.id}


def test_an_event_that_the_desk_will_not_take_holds_up_nothing(desk, small_desk, caplog):
    with desk.run("Move it") as run:
        for number in range(6):
            run.say(
                "run.checkpoint", {"name": f"c{number}", **({"poison": 1} if number == 2 else {})}
            )
    assert desk.flush()

    names = [event["data"].get("name") for event in small_desk.journal()]
    assert names == [None, "c0", "c1", "c3", "c4", "c5", None]
    [(event, problem)] = desk.parked()
    assert (event["data"]["name"], problem["title"]) == ("c2", "poison")
    assert "poison" in caplog.text


def test_a_batch_refused_whole_is_taken_apart(small_desk, spool_file):
    small_desk.stop()
    with amends.connect(small_desk.url, KEY, spool=spool_file) as desk, desk.run("Move it") as run:
        for number in range(9):
            run.say(
                "run.checkpoint", {"name": f"c{number}", **({"whole": 1} if number == 4 else {})}
            )
        small_desk.start()
        assert desk.flush(60)

    names = [event["data"].get("name") for event in small_desk.journal()]
    assert names == [None, *(f"c{number}" for number in range(9)), None]


def test_killed_before_the_call_it_is_in_doubt_and_not_done(agent, small_desk, outside):
    small_desk.control(lease=0)
    assert agent(die="begun") == "killed"

    assert agent() == "InDoubt"
    assert outside() == []


def test_killed_between_call_and_outcome_it_is_never_repeated(agent, small_desk, outside):
    assert agent(die="done") == "killed"
    assert agent() == "InProgress"  # while the lease lives, the first try may still be at it

    small_desk.control(lease=0)
    row = next(iter(small_desk.control()["keys"].values()))
    assert row["state"] == "running"
    small_desk.stop()

    assert agent() == "InDoubt"  # said from the spool: the desk is away
    assert outside() == ["moved"]


def test_killed_after_the_outcome_was_said_the_spool_delivers_it(agent, small_desk, outside):
    small_desk.stop()
    assert agent(die="said") == "killed"

    small_desk.start()
    assert agent() == "replayed"

    assert outside() == ["moved"]
    assert small_desk.types().count("action.succeeded") == 1
    assert small_desk.types()[:4] == ["run.started", "action.planned", "action.started",
                                      "action.succeeded"]  # fmt: skip


def test_of_two_that_share_a_spool_one_makes_the_call_while_the_desk_is_away(
    small_desk, spool_file, monkeypatch
):
    """A queue hands one job to two workers: both look, both find nothing, and one may go on."""
    small_desk.stop()
    looked, found, began = threading.Barrier(2), Spool.find, list[str]()

    def find_together(spool, key):
        row = found(spool, key)
        with contextlib.suppress(threading.BrokenBarrierError):
            looked.wait(20 if row is None else 0)
        return row

    def work():
        how = {"spool": spool_file, "workspace": "northwind"}
        with amends.connect(small_desk.url, KEY, **how) as desk, desk.run("Note it") as run:
            try:
                with run.action("note", key="k-1", effect_class="internal_update") as act:
                    act.perform(began.append, "began")
            except amends.InDoubt:
                pass

    monkeypatch.setattr(Spool, "find", find_together)
    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert began == ["began"]


def test_a_call_that_another_has_made_alone_while_this_one_was_asked_for_is_not_made_again(
    desk, small_desk, spool_file
):
    made = list[str]()

    def while_it_waits(_):
        nobody = f"http://127.0.0.1:{free_port()}"
        with (
            amends.connect(nobody, KEY, spool=spool_file) as other,
            other.run("Move it") as run,
            move(run, key="k-1") as alone,
        ):
            alone.perform(made.append, "alone")
        small_desk.control(decided=["k-1"])

    small_desk.control(modes={"update_flight": "wait"})
    with desk.run("Move it") as run:
        asked = move(run, key="k-1")
        asked.on_wait = while_it_waits
        with pytest.raises(amends.InDoubt), asked:
            raise AssertionError("the body ran")
    assert desk.flush(60)

    assert made == ["alone"]
    assert desk.spool.find("k-1").state == "succeeded"
    [failed] = [one for one in small_desk.journal() if one["type"] == "action.failed"]
    assert (failed["data"]["outcome"], failed["run"]) == ("no_effect", run.id)


def test_a_full_spool_stops_new_calls_and_still_takes_outcomes(desk):
    with desk.run("Move it") as run:
        with move(run) as act:
            desk.spool.bytes_max = 0
            act.succeeded(after=NEW)
        with pytest.raises(amends.SpoolFull), move(run, op="second"):
            raise AssertionError("the body ran")
        desk.spool.bytes_max = 2**30


def test_an_outcome_for_which_the_disk_has_no_room_is_told_to_the_desk_at_once(desk, small_desk):
    with desk.run("Move it") as run, move(run) as act:
        assert desk.flush(60)
        leave_no_room(desk.spool)
        act.succeeded({"text": "x" * 500_000}, after=NEW)

        [done] = [one for one in small_desk.journal() if one["type"] == "action.succeeded"]
        assert done["action"] == act.id
        small_desk.stop()
        with pytest.raises(
            amends.AmendsError, match=r"full\), and the desk could not be told: no ans"
        ):
            run.say("run.checkpoint", {"name": "x" * 50_000})
        small_desk.start()
        leave_no_room(desk.spool, pages=2**30)


def test_an_outcome_that_a_damaged_file_does_not_take_is_told_to_the_desk_at_once(desk, small_desk):
    with desk.run("Move it") as run:
        with move(run) as act:
            assert desk.flush(60)
            whole = damage(desk.spool)
            act.succeeded(after=NEW)

        [done] = [one for one in small_desk.journal() if one["type"] == "action.succeeded"]
        assert done["action"] == act.id
        with pytest.raises(amends.SpoolFull, match=r"malformed.*so the call was not made"):
            move(run, op="second").begin()
        assert not desk.flush(0), "told in the log"
        mend(desk.spool, whole)


def damage(spool):
    """As a disk does that fails: what was written there reads otherwise."""
    with spool._lock:
        spool._living().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        spool._let_go()
        whole = spool.path.read_bytes()
        page = int.from_bytes(whole[16:18], "big")
        spool.path.write_bytes(whole[:page] + b"?" * (len(whole) - page))
    return whole


def mend(spool, whole):
    with spool._lock:
        spool._let_go()
        spool.path.write_bytes(whole)


def leave_no_room(spool, pages=1):
    """As on a full disk, SQLite gets no page more than it has."""
    with spool._lock:
        spool._living().execute(f"PRAGMA max_page_count = {pages}")
        spool._living().execute("VACUUM")


def test_a_new_key_goes_on_with_the_spool_and_another_agents_is_refused(small_desk, spool_file):
    with amends.connect(small_desk.url, KEY, spool=spool_file) as desk:
        desk.fetch_policy()
        small_desk.stop()
        desk.run("Move it", run="run_left").start()
    small_desk.start()

    small_desk.control(agent="somebody-else")
    with amends.connect(small_desk.url, "amends_other", spool=spool_file) as theirs:
        with pytest.raises(amends.WrongSpool, match="trip-desk"):
            theirs.run("Move mine").start()
        assert not theirs.flush(0.2)
    assert small_desk.types() == []

    small_desk.control(agent="trip-desk")
    with amends.connect(small_desk.url, "amends_new", spool=spool_file) as desk:
        assert desk.flush(60)
    assert [event["run"] for event in small_desk.journal()] == ["run_left"]


def test_a_new_key_judges_by_the_last_policy_while_the_desk_is_away(small_desk, spool_file):
    with amends.connect(small_desk.url, KEY, spool=spool_file) as desk:
        desk.fetch_policy()
        assert desk.flush(60)
    small_desk.stop()

    with amends.connect(small_desk.url, "amends_new", spool=spool_file) as desk:
        with desk.run("Move it") as run, move(run) as act:
            act.succeeded(result="moved", after=NEW)
        small_desk.start()
        assert desk.flush(60)

    assert "action.succeeded" in small_desk.types()


@pytest.mark.parametrize("is_away", [False, True])
def test_a_key_that_reads_like_a_card_names_no_call(desk, small_desk, is_away):
    desk.fetch_policy()
    if is_away:
        small_desk.stop()

    with (
        desk.run("Move it") as run,
        pytest.raises(amends.Refused, match="reads like a secret or a card number"),
        move(run, key="refund-4111111111111111"),
    ):
        raise AssertionError("it was moved")


@pytest.mark.parametrize("status", [400, 404, 422])
def test_an_address_that_is_not_the_desk_costs_no_event(small_desk, spool_file, status):
    with amends.connect(f"{small_desk.url}/wrong", KEY, spool=spool_file) as desk:
        small_desk.control(gone=status)
        desk.run("Move it", run="run_w").start()
        assert not desk.flush(0.2)
        assert desk.parked() == []
        small_desk.control(gone=False)
        assert desk.flush(60)


def test_masked_values_that_cannot_be_compared_are_not_taken_for_the_same(desk, small_desk):
    """This desk gives no masking key: two cards look alike, and a second payment is another one."""
    with desk.run("Note it") as run:
        for card in ("4111 1111 1111 1111", "5500 0000 0000 0004"):
            if card.startswith("5"):
                small_desk.stop()
                with (
                    pytest.raises(amends.KeyReused, match="cannot be compared"),
                    run.action("note.add", target=("note", "n1"), args={"to": card}),
                ):
                    raise AssertionError("the body ran")
            else:
                with run.action("note.add", target=("note", "n1"), args={"to": card}) as act:
                    act.succeeded()


@pytest.mark.parametrize(("order", "is_made"), [("WARN", True), ("DENY", False)])
def test_the_order_of_a_saga_holds_while_the_desk_is_away(desk, small_desk, order, is_made):
    small_desk.control(safety={"order": order})
    made = list[str]()
    desk.fetch_policy()
    with desk.run("Note it") as run:
        for name, saga in (("n1", "pivot"), ("n2", "retriable"), ("n3", None)):
            with (
                contextlib.suppress(amends.DeskUnreachable),
                run.action("note.add", target=("note", name), saga=saga) as act,
            ):
                made.append(name)
                act.succeeded()
            small_desk.stop()

    assert made == (["n1", "n2", "n3"] if is_made else ["n1", "n2"])


TERMINATED = """
import sys, time, amends
desk = amends.connect(sys.argv[1], sys.argv[2], spool=sys.argv[3])
with desk.run("Move it") as run, run.action("update_flight", target=("reservation", "X")) as act:
    print("acting", flush=True)
    act.perform(time.sleep, 60)
"""


def test_a_process_that_is_asked_to_end_says_so(small_desk, spool_file):
    agent = subprocess.Popen(
        [sys.executable, "-c", TERMINATED, small_desk.url, KEY, str(spool_file)],
        env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert agent.stdout is not None
    assert agent.stdout.readline() == "acting\n"
    agent.terminate()

    assert agent.wait(30) == 128 + signal.SIGTERM
    agent.stdout.close()
    failed, ended = small_desk.journal()[-2:]
    assert (failed["type"], failed["data"]["outcome"]) == ("action.failed", "unknown")
    assert ended["data"] == {"by": "the process", "reason": "Terminated"}
