"""The client at the desk's own gate: Mia's agent acts, Ben decides, processes are killed."""

import asyncio
import json
import subprocess
import sys
import threading
import time

import pytest

import amends
from tests.sdk.conftest import ENVIRONMENT, NEW, OLD, act_and_die, move
from tests.sdk.test_docs import AIRLINE, blocks

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ben(northwind):
    from workspaces import independence, teams
    from workspaces.models import User

    team = teams.create(northwind, "finance", by=None, may=["view", "approve"])
    person = User.objects.create_user("ben@northwind.example", name="Ben")
    teams.add(team, person, by=None)
    independence.prove(person)
    return person


def charge(run, **more):
    usual = {"target": ("card", "tok_4421"), "args": {"amount": 100}}
    return run.action("charge_card", effect_class="external_irreversible", **(usual | more))


def when_asked(decide):
    """Decide in another thread on the one approval that comes up, as a person would."""
    from django.db import connection

    from approvals.models import Approval

    def look():
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                asked = Approval.objects.filter(state="waiting").first()
                if asked:
                    return decide(asked)
                time.sleep(0.05)
            return None
        finally:
            connection.close()

    thread = threading.Thread(target=look)
    thread.start()
    return thread


def action_of(run, tool):
    from ledger.models import Action

    return Action.objects.get(run__run=run, tool=tool)


def test_the_policy_names_the_workspace_of_the_key(real_desk):
    real_desk.fetch_policy()

    assert real_desk.workspace == "northwind"
    assert "agentSafety" in real_desk.policy


def test_an_allowed_call_proceeds_and_is_folded(real_desk):
    with real_desk.run("Move it", run="run_1") as run, move(run) as act:
        act.succeeded(result={"ok": True}, after=NEW)
        act.verified([("flight", "HAT019", "HAT019")])
    assert real_desk.flush(60)

    assert real_desk.parked() == []
    kept = action_of("run_1", "update_flight")
    assert (kept.state, kept.verified, kept.fence) == ("succeeded", "ok", act.row.fence)
    [effect] = kept.effects.all()
    assert (effect.before, effect.after) == (OLD, NEW)


def test_a_second_call_is_answered_from_the_ledger(real_desk, web, token, tmp_path):
    with real_desk.run("Move it", run="run_2") as run, move(run) as act:
        act.succeeded(result={"ok": True}, after=NEW)
    assert real_desk.flush(60)

    elsewhere = amends.connect(web.url, token, spool=tmp_path / "other.sqlite")
    run = elsewhere.run("Move it", run="run_3")
    with pytest.raises(amends.Stopped):  # the run has ended, and that comes first
        move(elsewhere.run("Move it", run="run_2")).begin()
    with run, move(run, key=act.row.key) as again:
        assert (again.replayed, again.result) == (True, {"ok": True})
    elsewhere.close()


def test_a_risky_call_waits_for_ben_and_runs_once_he_agrees(real_desk, ben):
    from approvals import inbox

    thread = when_asked(
        lambda asked: inbox.grant(asked, by=ben, seen=asked.digest, reason="checked with Mia")
    )
    usual = {"target": ("card", "tok_4421"), "args": {"amount": 100}}
    with real_desk.run("Charge it", run="run_4") as run:
        would = run.explain("charge_card", effect_class="external_irreversible", **usual)
        assert (would["answer"], would["explain"]["approval"]) == ("wait", "MANUAL")
        with charge(run) as act:
            act.succeeded(result="charged", after={"amount": 100})
    thread.join()
    assert real_desk.flush(60)

    kept = action_of("run_4", "charge_card")
    yes = kept.approvals.get()
    assert act.approval.id == str(yes.pk)
    assert act.approval.url.endswith(f"/w/northwind/approvals/{yes.pk}/")
    assert kept.state == "succeeded"
    assert [approval.state for approval in kept.approvals.all()] == ["used"]


def test_an_awaited_call_waits_for_ben_and_runs_once_he_agrees(real_desk, ben):
    from approvals import inbox

    thread = when_asked(
        lambda asked: inbox.grant(asked, by=ben, seen=asked.digest, reason="checked with Mia")
    )

    async def story():
        async with real_desk.run("Charge it", run="run_4a") as run, charge(run) as act:
            await act.asucceeded(await act.aperform(lambda: "charged"), after={"amount": 100})
        await real_desk.async_driver.close()

    asyncio.run(story())
    thread.join()
    assert real_desk.flush(60)

    kept = action_of("run_4a", "charge_card")
    assert (kept.state, kept.result) == ("succeeded", "charged")
    assert [approval.state for approval in kept.approvals.all()] == ["used"]


def test_bens_no_reaches_the_agent_with_his_reason(real_desk, ben):
    from approvals import inbox

    thread = when_asked(
        lambda asked: inbox.reject(asked, by=ben, seen=asked.digest, reason="wrong card")
    )
    with (
        pytest.raises(amends.Denied, match="wrong card"),
        real_desk.run("Charge it") as run,
        charge(run),
    ):
        raise AssertionError("the card was charged")
    thread.join()


def test_nobody_decides_in_time(real_desk, ben):
    with (
        pytest.raises(amends.ApprovalTimeout),
        real_desk.run("Charge it") as run,
        charge(run, wait_seconds=1),
    ):
        raise AssertionError("the card was charged")


def test_what_the_gate_refuses_is_told_apart(real_desk):
    with real_desk.run("Move it", run="run_5") as run:
        with move(run) as act:
            with pytest.raises(amends.InProgress), move(run):
                raise AssertionError("the body ran")
            act.succeeded(after=NEW)
        assert real_desk.flush(60)
        with pytest.raises(amends.KeyReused), move(run, args={"flight": "HAT777"}):
            raise AssertionError("the body ran")
        with pytest.raises(TimeoutError), move(run, op="second"):
            raise TimeoutError
        with pytest.raises(amends.InDoubt), move(run, op="second"):
            raise AssertionError("the body ran")
    assert real_desk.flush(60)
    assert real_desk.parked() == []


def test_a_refusal_without_effect_may_be_tried_anew_with_other_arguments(real_desk):
    with real_desk.run("Move it", run="run_6") as run:
        with pytest.raises(amends.NoEffect), move(run):
            raise amends.NoEffect("sold out")
        with move(run, args={"flight": "HAT020"}) as act:
            act.succeeded(after={"flight": "HAT020"})
    assert real_desk.flush(60)

    assert real_desk.parked() == []
    kept = action_of("run_6", "update_flight")
    assert (kept.state, kept.args) == ("succeeded", {"flight": "HAT020"})


def test_law_11_the_desk_is_killed_and_comes_back(processes, token, spool_file, northwind):
    web = processes.web()
    desk = amends.connect(web.url, token, spool=spool_file)
    desk.fetch_policy()
    web.kill()

    with desk.run("Move it", run="run_7") as run:
        with pytest.raises(amends.DeskUnreachable), charge(run):
            raise AssertionError("the card was charged")
        with move(run) as act:
            act.succeeded(result="moved", after=NEW)
    desk.close(seconds=0)

    again = amends.connect(processes.web().url, token, spool=spool_file)
    assert again.flush(60)
    assert again.parked() == []
    again.close()
    assert action_of("run_7", "update_flight").state == "succeeded"
    from ledger.models import Run

    kept = Run.objects.get(run="run_7")
    assert (kept.state, kept.actions.count()) == ("completed", 1)


def test_an_agent_killed_between_call_and_outcome_is_in_doubt(web, token, tmp_path):
    outside, spool = tmp_path / "outside", tmp_path / "spool.sqlite"
    assert act_and_die(web.url, token, spool, outside, "done") == "killed"

    from approvals.models import GateKey
    from workspaces.clock import Clock

    assert GateKey.objects.update(lease_until=Clock()) == 1, "the lease of the killed try ends"

    assert act_and_die(web.url, token, spool, outside) == "InDoubt"
    assert outside.read_text() == "moved\n"
    assert action_of("run_crash", "update_flight").state == "unknown"


def test_the_ten_lines_of_the_guide_are_a_run_with_an_effect(web, token, tmp_path):
    script = tmp_path / "agent.py"
    script.write_text(AIRLINE + blocks("agents.md")[0], encoding="utf-8")
    here = {"AMENDS_URL": web.url, "AMENDS_KEY": token, "AMENDS_SPOOL": str(tmp_path / "spool")}

    subprocess.run([sys.executable, script], env=ENVIRONMENT | here, check=True, timeout=60)

    from ledger.models import Run

    kept = Run.objects.get(request="Move my return flight")
    assert (kept.state, kept.customer_name, kept.checkpoints.count()) == ("completed", "Mia Li", 1)
    [effect] = action_of(kept.run, "update_flight").effects.all()
    assert (effect.before, effect.after) == (OLD, NEW)


def test_bens_question_reaches_the_agent_and_its_answer_reaches_ben(web, token, tmp_path, ben):
    from approvals import clarifications, inbox

    heard = []

    def reply(question):
        heard.append(question)
        return "Mia asked for it at 10:02."

    def ask_then_grant(asked):
        enquiry = clarifications.ask_back(asked, "Who asked for it?", by=ben)
        for _ in range(600):
            enquiry.refresh_from_db()
            if enquiry.answered_at:
                break
            time.sleep(0.05)
        inbox.grant(asked, by=ben, seen=asked.digest, reason=enquiry.answer)

    desk = amends.connect(web.url, token, spool=tmp_path / "q.sqlite", on_question=reply)
    thread = when_asked(ask_then_grant)
    with desk.run("Charge it", run="run_q") as run, charge(run) as act:
        act.succeeded(result="charged", after={"amount": 100})
    thread.join()
    desk.close()

    assert heard == ["Who asked for it?"]
    [approval] = action_of("run_q", "charge_card").approvals.all()
    assert approval.decisions.get().reason == "Mia asked for it at 10:02."


def test_no_call_is_made_by_a_policy_that_cannot_be_read(real_desk, northwind, ben):
    """The desk is there and says no; an older policy that the client remembers does not count."""
    from approvals import versions
    from approvals.models import PolicyVersion
    from ledger.canonical import digest

    with real_desk.run("Move it", run="run_1") as run, move(run) as act:
        act.succeeded(result={"ok": True}, after=NEW)
    real_desk.fetch_policy()
    fine = {"policies": {"a": {"approval": "MANUAL"}}}
    versions.activate(versions.save(northwind, json.dumps(fine), by=ben), by=ben)
    later = {"policies": {"a": {"approval": "PERHAPS"}}}  # of a version with other words
    stored = PolicyVersion.objects.filter(workspace=northwind, active=True)
    stored.update(document=later, digest=digest(later))
    called = []

    with (
        pytest.raises(amends.Refused, match="cannot be read"),
        real_desk.run("Move it") as run,
        move(run, target=("flight", "HAT020")) as act,
    ):
        called.append(act)
    with pytest.raises(amends.Refused, match="cannot be read"):
        real_desk.fetch_policy()

    assert called == []
