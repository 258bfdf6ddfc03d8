"""Ada lets a failed run go on from its checkpoint, or stops one; the agent hears of it."""

import signal
import subprocess
import sys
import threading
import time

import pytest

import amends
from tests.crash.oracle import until
from tests.sdk.conftest import ENVIRONMENT, NEW, move
from tests.sdk.test_docs import blocks

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ada(northwind, token):
    from workspaces import teams
    from workspaces.models import User

    found = User.objects.get(name="Ada")
    team = teams.create(northwind, "operators", by=None, may=["view", "recover"])
    teams.add(team, found, by=None)
    return found


def mail(run, call):
    with run.action("send_mail", target=("mail", "mia"), effect_class="internal_update") as act:
        act.succeeded(act.perform(call), after={"sent": True})


def refused():
    raise amends.NoEffect("the gateway is closed")


def fail_after_the_flight(desk, state=None):
    """The first process: the flight is moved, the mail is refused, the run fails."""
    with desk.run("Move my flight", run="order-4711") as run:
        with move(run) as act:
            act.succeeded(result="moved", after=NEW)
        run.checkpoint("flights_moved", state=state or {"next": "mail"}, pending=["send_mail"])
        with pytest.raises(amends.NoEffect) as closed:
            mail(run, refused)
        run.fail(closed.value)
    assert desk.flush(60)


def resume(ada):
    """What the case's page does when Ada chooses Resume."""
    from ledger.models import Checkpoint
    from recovery.casework import resuming
    from recovery.models import Case
    from recovery.triage import triage

    triage.look()
    case = Case.objects.get(run__run="order-4711")
    checkpoint = Checkpoint.objects.get(name="flights_moved")
    seen = resuming.preview(case, checkpoint=checkpoint)
    resuming.commit(case, digest=seen.digest, revision=case.revision, by=ada, checkpoint=checkpoint)


def test_a_restarted_agent_goes_on_from_its_checkpoint(real_desk, web, token, ada, tmp_path):
    from ledger.models import Run
    from recovery.models import Directive
    from recovery.triage import triage

    fail_after_the_flight(real_desk)
    with pytest.raises(amends.AmendsError, match="wants nothing"):
        real_desk.resume("no-such-run").start()
    resume(ada)

    # Another machine: it has never seen the run.
    elsewhere = amends.connect(web.url, token, spool=tmp_path / "elsewhere.sqlite")
    sent = []

    def same_calls(run):
        with move(run) as act:
            assert (act.replayed, act.result) == (True, "moved")
        mail(run, lambda: sent.append("mail"))

    [lines] = [one for one in blocks("agents.md") if "desk.resume(" in one]
    names = {"desk": elsewhere, "same_calls": same_calls}
    exec(lines.replace("    ...  ", "    same_calls(run)  "), names)  # noqa: S102 - our own guide
    assert names["plan"] == {"next": "mail"}
    assert elsewhere.flush(60)
    assert elsewhere.parked() == []
    elsewhere.close()

    triage.look()
    kept = Run.objects.get(run="order-4711")
    assert sent == ["mail"]
    assert (kept.state, kept.resumed_from, kept.action_count) == ("completed", "flights_moved", 2)
    assert Directive.objects.get().acknowledged_at is not None


# An agent as its engineer writes it: the same program begins, and goes on where it is told to.
RESTARTABLE = """
import os, signal, sys, amends
url, key, spool, outside, begins = sys.argv[1:]

def note(what):
    with open(outside, "a") as journal:
        journal.write(what + "\\n")

def send():
    if begins:
        os.kill(os.getpid(), signal.SIGKILL)
    note("mail")
    return {"sent": True}

desk = amends.connect(url, key, spool=spool)
if begins:
    run = desk.run("Move it", run="order-4711")
else:
    run = desk.resume("order-4711", wait_seconds=20)
with run:
    if run.state is None:
        with run.action("update_flight", target=("reservation", "XEHM4B"), args={},
                        effect_class="internal_update") as act:
            act.succeeded(act.perform(lambda: note("flight")), after={"flight": "HAT019"})
        run.checkpoint("flights_moved", state={"next": "mail"}, pending=["send_mail"])
    with run.action("send_mail", target=("mail", "mia"), args={},
                    effect_class="internal_update") as act:
        act.succeeded(act.perform(send), after={"sent": True})
desk.close(seconds=30)
"""


def test_an_agent_that_was_killed_is_started_again_and_goes_on(
    processes, web, token, northwind, ada, tmp_path
):
    """Two processes that share nothing but the desk: the second asks it where to go on."""
    from ledger.models import Run
    from recovery.casework import settling
    from recovery.models import Case

    northwind.stuck_after_seconds = 2
    northwind.save()
    processes.scheduler()
    outside = tmp_path / "outside"

    def started(name, begins):
        arguments = [web.url, token, tmp_path / name, outside, begins]
        command = [sys.executable, "-c", RESTARTABLE, *map(str, arguments)]
        return subprocess.run(command, env=ENVIRONMENT, timeout=60, check=False).returncode

    assert started("first", "begins") == -signal.SIGKILL
    until(Case.objects.filter(suggestion="settle").exists, 60, "the silence is noticed")
    case = Case.objects.get()
    (action,) = settling.facts_now(case).unknown()
    said = {"outcome": "no_effect", "evidence": "Nothing in the outbox"}
    settling.settle_action(case, action, by=ada, seen=case.revision, **said)
    resume(ada)

    assert started("second", "") == 0

    until(Case.objects.filter(state="closed").exists, 60, "the case is closed")
    case.refresh_from_db()
    run = Run.objects.get(run="order-4711")
    assert outside.read_text().split() == ["flight", "mail"]
    assert (run.state, run.resumed_from, run.action_count) == ("completed", "flights_moved", 2)
    assert case.outcome == "resumed"


def test_a_large_state_comes_back_whole(real_desk, ada):
    state = {"next": "mail", "letters": ["x" * 90] * 1000}
    fail_after_the_flight(real_desk, state)
    resume(ada)

    assert real_desk.resume("order-4711").start().state == state


def test_a_run_under_recovery_is_told_to_stop_while_it_waits(real_desk):
    from ledger.models import Run

    with real_desk.run("Go on", run="run_s") as run:
        assert real_desk.flush(60)
        assert real_desk.directive("run_s") is None
        heard = []
        thread = threading.Thread(
            target=lambda: heard.append(real_desk.directive("run_s", wait_seconds=60))
        )
        began = time.monotonic()
        thread.start()
        Run.objects.filter(run="run_s").update(held_by="case 7")
        thread.join()
        assert heard[0]["kind"] == "stop"
        assert time.monotonic() - began < 45  # it did not wait to the end
        with pytest.raises(amends.Stopped, match="case 7"):
            run.checkpoint("half")


@pytest.mark.parametrize("kind", ["run", "agent", "workspace"])
def test_a_paused_run_hears_at_once_that_it_is_to_stop_and_why(real_desk, northwind, ada, kind):
    from approvals import pauses
    from ledger.models import Run

    with real_desk.run("Go", run="run_p") as run:
        assert real_desk.flush(60)
        run.heed()
        heard = []
        thread = threading.Thread(
            target=lambda: heard.append(real_desk.directive("run_p", wait_seconds=30))
        )
        thread.start()
        name = {"run": "run_p", "agent": Run.objects.get().agent.name, "workspace": ""}[kind]
        pause = pauses.pause(northwind, kind, name, by=ada, reason="two at once")
        thread.join()
        what = f"{kind} {name}" if name else "everything here"
        reason = f"Ada has paused {what}: two at once"
        assert heard == [{"id": "", "kind": "stop", "reason": reason}]
        with pytest.raises(amends.Stopped, match="two at once"):
            run.checkpoint("half")
        pauses.lift(pause, by=ada)
        run.heed()


def test_what_does_not_stop_every_call_does_not_stop_the_run(real_desk, northwind, ada):
    from approvals import pauses

    with real_desk.run("Go on", run="run_q"):
        assert real_desk.flush(60)
        pauses.pause(northwind, "run", "run_z", by=ada, reason="another run")
        pauses.pause(northwind, "agent", "another-agent", by=ada, reason="another agent")
        pauses.pause(northwind, "tool", "*", by=ada, reason="its calls are denied one by one")

        assert real_desk.directive("run_q") is None


def test_another_agents_run_is_nobodys_to_ask_about(real_desk, northwind, web, tmp_path):
    from workspaces import keys
    from workspaces.models import Agent

    with real_desk.run("Mine", run="run_m"):
        pass
    assert real_desk.flush(60)
    other = Agent.objects.create(workspace=northwind, name="mail-desk")
    token = keys.create_key(other, by=None, name="test")[1]

    with amends.connect(web.url, token, spool=tmp_path / "other.sqlite") as stranger:
        assert stranger.directive("run_m") is None  # 404: it looks like no run at all
