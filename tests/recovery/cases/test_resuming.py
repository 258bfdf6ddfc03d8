"""Going on from a checkpoint: what is skipped and repeated, the directive, and its answer."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from approvals import pauses
from approvals.models import Pause
from ledger.models import Blob, Effect, Event, Run
from recovery.cases.lifecycle import OutOfDate
from recovery.casework import cases, closing, resuming
from recovery.casework.resuming import CannotResume
from recovery.edge import waiters
from recovery.engine import plan_lifecycle
from recovery.models import CaseOutcome, CaseState, Directive, Step
from recovery.triage import triage
from tests.approvals import door
from tests.approvals.door import Agent, visit
from tests.people import person, team
from tests.recovery.cases.cast import directed, submitted
from tests.recovery.engine import by_hand
from workspaces import keys
from workspaces.clock import database_time

only_bells = door.only_bells


def test_the_preview_labels_each_remaining_step(stopped):
    checkpoint = stopped.row.checkpoints.get()

    seen = resuming.preview(stopped.case(), checkpoint=checkpoint)

    assert [(one.tool, one.label) for one in seen.steps] == [
        ("notes.add", "skip"),
        ("hotels.book", "repeat_same_key"),
        ("send_receipt", "new"),
    ]
    assert seen.why_not == ""
    start = resuming.preview(stopped.case())
    assert [one.tool for one in start.steps] == ["flights.book", "notes.add", "hotels.book"]
    assert start.digest != seen.digest


@pytest.mark.parametrize(
    "kept", [b'{"rows": 2.00}', b"\xff no JSON", b'{"half": "\\ud800"}', b'"\xff"', None]
)
@pytest.mark.django_db(transaction=True)
def test_a_state_that_is_kept_apart_is_told_or_named_where_it_is_no_json(
    stopped, ada, acme, agent, kept
):
    """An agent whose state was no JSON was answered 500, and never heard of its directive."""
    checkpoint, name = stopped.row.checkpoints.get(), "ab" * 32
    if kept is not None:
        Blob.objects.create(workspace=acme, sha256=name, content=kept, byte_count=len(kept))
    type(checkpoint).objects.update(state=None, state_ref=f"sha256:{name}")
    directed(stopped, ada, checkpoint=checkpoint)
    token = keys.create_key(agent, by=None, name="k")[1]

    async def story(client):
        path = f"/api/v1/runs/{stopped.run}/directive"
        return await client.get(path, headers={"authorization": f"Bearer {token}"})

    found = json.loads(visit(story).content, parse_float=str)["directive"]
    whole = kept is not None and kept.startswith(b'{"rows')
    assert (found["from"], found["state"]) == (
        "flight booked", {"rows": "2.00"} if whole else {"ref": f"sha256:{name}"},
    )  # fmt: skip


def test_the_agent_goes_on_and_the_case_closes_as_resumed(stopped, ada, client):
    directive = directed(stopped, ada, checkpoint=stopped.row.checkpoints.get())
    case = stopped.case()
    assert case.state == CaseState.RESUMING

    stopped.n += 1
    stopped.send("run.resumed", directive=str(directive.pk), **{"from": "flight booked"})
    triage.look()
    directive.refresh_from_db()
    assert directive.acknowledged_at is not None
    stopped.does("hotels.book", ("hotel", "H-1", None, {"nights": 2}))
    stopped.ends()

    case = stopped.case()
    assert (case.state, case.outcome) == (CaseState.CLOSED, "resumed")
    assert Event.objects.filter(type="resume.acknowledged").count() == 1
    case.failed_action = case.run.actions.get(tool="hotels.book", state="succeeded")
    case.save(update_fields=["failed_action"])  # tried again under the key that had failed
    client.force_login(ada)
    told = client.get(f"/w/acme/cases/{case.pk}/").context["story"]["items"]
    signs = [one["sign"] for one in told if one["tool"] == "hotels.book"]
    assert signs[-1] == "✓", "it is blamed for nothing any more"


def test_without_an_answer_in_time_the_case_comes_back(stopped, ada):
    directive = directed(stopped, ada)
    Directive.objects.update(acknowledge_by=timezone.now() - timedelta(seconds=1))

    triage.look(triage.overdue())
    triage.look()

    case = stopped.case()
    assert case.state == CaseState.OPEN
    assert "not_resumed" in case.reasons
    directive.refresh_from_db()
    assert directive.withdrawn_at is not None
    assert triage.overdue() == []


def test_a_run_that_fails_again_comes_back(stopped, ada):
    directive = directed(stopped, ada)
    stopped.n += 1
    stopped.send("run.resumed", directive=str(directive.pk))
    triage.look()
    stopped.fails("hotels.book")
    stopped.ends("failed")

    assert stopped.case().state == CaseState.OPEN


def test_a_run_that_fails_again_without_an_effect_has_not_come_to_a_good_end(begin_run, ada):
    from recovery.casework import settling

    run = begin_run()
    run.plans("hotels.book", ("hotel", "H-1"))
    run.ends("failed")
    case = run.case()
    (action,) = settling.facts_now(case).unknown()
    settling.settle_action(
        case, action, outcome="no_effect", evidence="None there", by=ada, seen=case.revision
    )
    directive = directed(run, ada)
    run.n += 1
    run.send("run.resumed", directive=str(directive.pk))
    triage.look()

    run.fails("hotels.book")
    run.ends("failed")

    case = run.case()
    assert (case.state, case.outcome, case.suggestion) == (CaseState.OPEN, "", "resume")


def test_a_run_that_answered_and_fell_silent_comes_back(begin_run, ada):
    run = begin_run()
    run.does("flights.book", ("booking", "B-1", None, {"flight": "SK1"}))
    run.ends("failed")
    directive = directed(run, ada)
    run.n += 1
    run.send("run.resumed", directive=str(directive.pk))
    triage.look()
    assert run.case().state == CaseState.RESUMING
    Effect.objects.update(compensated="compensated")
    Run.objects.update(lease_until=database_time() - timedelta(seconds=1))

    triage.look([run.row.pk])

    assert run.case().state == CaseState.OPEN


@pytest.mark.parametrize("minutes", [-5, 5])
def test_an_answer_is_heard_whatever_the_clock_of_the_web_process_says(
    stopped, ada, monkeypatch, minutes
):
    """F20: what was said is held against the database's clock alone."""
    right = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: right() + timedelta(minutes=minutes))
    directive = directed(stopped, ada)
    monkeypatch.undo()
    stopped.n += 1
    stopped.send("run.resumed", directive=str(directive.pk))

    triage.look()

    directive.refresh_from_db()
    assert directive.acknowledged_at is not None
    assert abs(directive.issued_at - database_time()) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("was", "state"),
    [("claimed", "intended"), ("intended", "unknown"), ("intended", "applied"),
     ("unknown", "needs_human")],
)  # fmt: skip
def test_a_run_does_not_go_on_while_an_undo_of_it_may_be_on_its_way(raised, ada, was, state):
    """The plan was stopped; what it had sent is not known yet."""
    case = raised.case()
    plan = submitted(case, ada, reason="x")
    Step.objects.update(was=was, state=state)
    plan_lifecycle.stop(plan, by=ada)

    seen = resuming.preview(case)

    settle = "Settle step 1 first: it was sent, and its outcome is unknown."
    wait = "Step 1 of plan 1 was sent: wait until it is known what became of it."
    assert seen.why_not == (settle if "unknown" in {was, state} else wait)
    with pytest.raises(CannotResume, match="was sent"):
        resuming.commit(case, digest=seen.digest, revision=seen.case.revision, by=ada)


def test_an_unknown_outcome_or_a_call_without_a_key_is_not_repeated(begin_run):
    run = begin_run()
    run.does("flights.book", ("booking", "B-1", None, {"a": 1}), planned={"key": ""})
    run.ends("failed")
    assert "might be done twice" in resuming.preview(run.case()).why_not

    other = begin_run("run_2")
    other.does("flights.book", ("booking", "B-2", None, {"a": 1}))
    other.fails("hotels.book", outcome="unknown")
    other.ends("failed")
    assert resuming.preview(other.case()).why_not.startswith("Settle hotels.book first")


def test_a_stale_checkpoint_is_noticed_and_what_was_undone_gets_a_new_key(
    begin_run, shop, ticket, ada
):
    run = begin_run()
    high = ticket | {"priority": "high"}
    shop.execute("UPDATE tickets SET priority = 'high', version = version + 1")
    run.does("tickets.update", ("ticket", "main/T-182", ticket, high))
    run.n += 1
    run.send("run.checkpoint", name="raised", completed=["act_1"])
    run.fails("mail.send")
    run.ends("failed")
    case = run.case()
    plan = submitted(case, ada, reason="x")
    by_hand.advance(plan.pk)

    seen = resuming.preview(run.case(), checkpoint=run.row.checkpoints.get())

    assert seen.stale == "It rests on tickets.update, which was undone since."
    assert [one.label for one in resuming.preview(run.case()).steps] == [
        "repeat_new_key",
        "repeat_same_key",
    ]


def test_no_run_goes_on_upon_what_people_have_put_right_by_hand(stopped, ada):
    """Cancelled outside the desk, the flight was *done, skipped*, and its booking answered."""

    def closed_and_reopened(outcome):
        case = stopped.case()
        known: dict[str, Any] = {"reason": "cancelled it with the airline", "by": ada}
        closing.close(case, outcome=outcome, seen=case.revision, **known)
        case.refresh_from_db()
        return cases.reopen(case, seen=case.revision, **known)

    closed_and_reopened(CaseOutcome.ALREADY_HANDLED)
    for checkpoint in (None, stopped.row.checkpoints.get()):
        seen = resuming.preview(stopped.case(), checkpoint=checkpoint)
        assert seen.why_not.startswith("notes.add and flights.book were put right by hand")
    again = closed_and_reopened(CaseOutcome.EXPECTED)
    assert resuming.preview(again).why_not == ""


def test_the_commit_needs_the_preview_it_saw(stopped, ada, finn):
    case = stopped.case()
    seen = resuming.preview(case)

    with pytest.raises(OutOfDate):
        resuming.commit(case, digest="0" * 64, revision=seen.case.revision, by=ada)
    with pytest.raises(OutOfDate):
        resuming.commit(case, digest=seen.digest, revision=99, by=ada)
    said: dict[str, Any] = {"digest": seen.digest, "revision": seen.case.revision, "reason": "ok"}
    issued = resuming.commit(case, **said, by=ada)
    case.refresh_from_db()
    with pytest.raises(CannotResume, match="told to resume already"):
        resuming.commit(case, digest=seen.digest, revision=case.revision, by=ada)
    assert resuming.commit(case, **said, by=ada) == issued, "once more, as no answer came"
    for other in ({"by": finn}, {"reason": "another"}, {"digest": "\0"}):
        with pytest.raises(OutOfDate):
            resuming.commit(case, **({"by": ada} | said | other))
    Directive.objects.update(withdrawn_at=timezone.now())
    with pytest.raises(OutOfDate):
        resuming.commit(case, **said, by=ada)


@pytest.mark.django_db(transaction=True)
def test_what_may_have_been_done_after_a_backup_stays_in_doubt_when_the_run_goes_on(
    stopped, agent, acme, ada
):
    """A run that had failed by then was resumed after it, and did the rest; told to resume once
    more, it did that a second time.
    """
    caller = Agent(keys.create_key(agent, by=None, name="k")[1])
    pauses.hold_after_restore(acme, "The desk was restored.", {}, taken_at=timezone.now())
    boss = person("boss", team(acme, "bosses", "view", "administer"))
    pauses.lift(Pause.objects.get(), by=boss)
    directive = directed(stopped, ada, checkpoint=stopped.row.checkpoints.get())
    stopped.n += 1
    stopped.send("run.resumed", directive=str(directive.pk), **{"from": "flight booked"})
    triage.look()

    asked = caller.begin(key="k9", action="act_9", tool="notes.add", attempt="a9")

    assert asked.json()["answer"] == "in_doubt"
    said = caller.request("GET", "/api/v1/runs/run_1/directive")
    assert said.json() == {"directive": None}, "nobody stops it"
    stopped.case()
    later = caller.begin(key="k8", action="act_8", tool="notes.add", run="run_2")
    assert later.json()["answer"] == "proceed", "it began when that was known"


@pytest.mark.django_db(transaction=True)
def test_the_agent_hears_of_it_at_the_hot_door(stopped, agent, ada, globex):
    from workspaces.models import Agent as AgentRow

    caller = Agent(keys.create_key(agent, by=None, name="k")[1])
    path = "/api/v1/runs/run_1/directive"
    assert caller.request("GET", path).json() == {"directive": None}
    directive = directed(stopped, ada, checkpoint=stopped.row.checkpoints.get())

    heard = caller.request("GET", f"{path}?wait=5").json()["directive"]

    assert (heard["id"], heard["kind"], heard["from"]) == (
        str(directive.pk),
        "resume",
        "flight booked",
    )
    assert heard["state"] == {"booking": "B-1"}
    assert heard["instructions"] == "Book the hotel next"
    assert [one["label"] for one in heard["steps"]] == ["skip", "repeat_same_key", "new"]
    assert heard["n"] == 4
    foreign = AgentRow.objects.create(workspace=globex, name="other")
    stranger = Agent(keys.create_key(foreign, by=None, name="k")[1])
    assert stranger.request("GET", path).json() == {"directive": None}
    Directive.objects.update(withdrawn_at=timezone.now())
    Run.objects.update(held_by="case 7")
    assert caller.request("GET", path).json()["directive"]["kind"] == "stop"
    assert caller.request("GET", f"{path}?wait=soon").status_code == 422
    assert Agent("amends_x_y").request("GET", path).status_code == 401


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["run", "agent", "workspace"])
def test_a_pause_rings_for_the_agents_that_wait(begin_run, agent, acme, ada, kind, only_bells):
    begin_run()
    token = keys.create_key(agent, by=None, name="k")[1]
    name = {"run": "run_1", "agent": agent.name, "workspace": ""}[kind]

    def pause():
        try:
            pauses.pause(acme, kind, name, by=ada, reason="two at once")
        finally:
            connection.close()

    async def story(client):
        path, headers = "/api/v1/runs/run_1/directive", {"authorization": f"Bearer {token}"}
        asked = client.get(f"{path}?wait=60", headers=headers)
        waiting = asyncio.create_task(asked)
        while not waiters.count:  # noqa: ASYNC110 - nobody rings when somebody begins to wait
            await asyncio.sleep(0.02)
        await asyncio.to_thread(pause)
        return (await asyncio.wait_for(waiting, 45)).json()["directive"]

    heard = visit(story)

    assert heard["kind"] == "stop"
    assert heard["reason"].endswith("two at once")
