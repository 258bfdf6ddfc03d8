"""Whoever resumes sees what stood at the checkpoint: mode, approvals in force, the last check."""

from datetime import timedelta

import pytest
from django.utils import timezone

from approvals.models import Approval
from recovery import serializers
from recovery.casework import resuming
from tests.people import person, team
from tests.worlds import kept


@pytest.fixture
@kept(in_turn=True)
def paused(begin_run, ticket):
    run = begin_run()
    done = run.does("tickets.update", ("ticket", "main/T-182", ticket, ticket | {"a": 1}))
    run.is_verified(done, ok=True)
    run.n += 1
    run.send("run.checkpoint", name="raised", state={}, recovery_mode="ask_first", pending=["x"])
    run.is_verified(run.does("tickets.update", ("ticket", "main/T-9", {"a": 1}, {"a": 2})), ok=True)
    run.fails("hotels.book")
    run.ends("failed")
    return run


def granted(run, headline, **more):
    now = timezone.now()
    point = run.row.checkpoints.get()
    return Approval.objects.create(
        workspace=run.agent.workspace, subject_kind="action", subject_key=headline, run_ref="run_1",
        action=run.row.actions.order_by("pk")[0],
        digest="d", calls=[], rules=[], headline=headline, risk="high",
        asked_at=now, expires_at=now + timedelta(hours=1),
        **({"was": "waiting", "state": "granted", "decided_at": point.at} | more),
    )  # fmt: skip


def test_the_preview_shows_what_stood_at_the_checkpoint(paused, ada, client):
    case = paused.case()
    point = paused.row.checkpoints.get()
    granted(paused, "Book the hotel")
    granted(paused, "Used before", state="used", was="granted", used_at=point.at)
    granted(paused, "Granted after", decided_at=point.at + timedelta(seconds=1))

    client.force_login(ada)
    page = client.get(f"/w/acme/cases/{case.pk}/resume/?checkpoint={point.pk}")

    known = {one["name"]: one for one in page.context["known"]}
    assert known["Recovery mode"]["value"] == "ask first"
    assert known["Approvals in force"]["value"] == "Book the hotel"
    assert "<time" in known["Last verified"]["time"]
    told = serializers.resume(resuming.preview(case, checkpoint=point))["at_checkpoint"]
    assert (told["recovery_mode"], told["approvals"]) == ("ask_first", ["Book the hotel"])
    assert told["verified_at"] < point.at + timedelta(seconds=1)
    assert "What stood at the checkpoint" in page.content.decode()


def test_what_the_agent_wrote_for_itself_is_read_by_whoever_may_see_payloads(stopped, acme, client):
    case, read = stopped.case(), {}
    people = {
        "rob": team(acme, "rob", "view", "recover"),
        "sue": team(acme, "sue", "view", "recover", "view_sensitive"),
    }
    for name, their_team in people.items():
        client.force_login(person(name, their_team))
        page = client.get(f"/w/acme/cases/{case.pk}/resume/").content.decode()
        read[name] = ("Book the hotel next" in page, "hidden: needs view_sensitive" in page)

    assert read == {"rob": (False, True), "sue": (True, False)}
