"""The month that the demo begins with: alive on every page of figures, and honest in the ledger."""

from datetime import timedelta

import pytest
from django.core.management.base import CommandError

from approvals import glass_eligibility, health
from approvals.models import Approval, BrokenGlass
from demo import corpus
from demo.management.commands import replay
from demo.setting import history, skyline
from ledger import desk_events
from ledger.models import Action, Event, Run
from recovery import metrics
from recovery.models import Case, Cause, Residue
from recovery.triage import triage
from tests.approvals.cast import as_the_desk
from workspaces import access, teams
from workspaces.clock import database_time
from workspaces.models import Membership, User, Workspace


@pytest.fixture
def month(surroundings):
    skyline.make_tables()
    skyline.prepare()
    workspace = Workspace.objects.get(slug=skyline.SLUG)
    with as_the_desk():  # which is who does it in `make up`
        return workspace, history.seed(workspace)


def test_the_pages_of_figures_live_and_nothing_of_it_waits_for_anybody(month):
    workspace, runs = month

    failed, days, *_ = metrics.cases(workspace)
    done, _ = metrics.steps(workspace)
    asked = health.of(workspace)

    assert runs == history.DAYS * history.RUNS_A_DAY == Run.objects.count()
    assert sum(day.failed > 0 for day in days) > history.DAYS / 2, "on most days something failed"
    assert 0 < failed.recovered < failed.failed
    assert failed.standing == 0
    assert (done.plans > 0, done.success) == (True, 1.0)
    assert metrics.unwinds(workspace).calls == done.verified
    assert {"granted", "rejected", "expired"} <= set(asked.ends)
    asked_or_at_night = {"Jeanne Moreau", "Tor Lindqvist", "Ada Nilsson", "Noor Haddad"}
    assert {one.name for one in asked.people} == asked_or_at_night
    assert Cause.objects.filter(case_count__gt=1, last_closed_at__isnull=False).exists()
    assert Residue.objects.filter(done_at=None).exists()
    assert not Approval.objects.living().exists()


def test_one_question_was_escalated_and_for_one_two_people_broke_the_glass(month, client):
    workspace, _ = month
    [late] = Approval.objects.filter(escalated_at__isnull=False)
    [glass] = BrokenGlass.objects.filter(workspace=workspace)

    assert [str(one.person) for one in late.decisions.all()] == ["Tor Lindqvist"]
    assert late.decided_at > late.escalated_at
    assert [str(one.person) for one in glass_eligibility.broken_by(glass.approval)] == [
        "Ada Nilsson", "Noor Haddad",
    ]  # fmt: skip
    client.force_login(User.objects.get(email="ada@skyline.example"))
    assert "as nobody had decided in time, from leads" in (
        client.get(f"/w/skyline/approvals/{late.pk}/").text
    )
    assert "The glass was broken for this." in (
        client.get(f"/w/skyline/approvals/{glass.approval_id}/").text
    )
    health_page = client.get("/w/skyline/approvals/health/").text
    assert "Broken glass, reviewed" in health_page
    assert "The bill was due that night" in health_page
    assert "Somebody broke the glass" not in health_page, "it is reviewed: no banner"


def test_each_of_its_events_says_so_and_was_received_when_it_was(month):
    began = database_time() - timedelta(minutes=10)
    seeded = Event.objects.filter(run__startswith="run_seed")

    assert seeded.count() > Run.objects.count()
    assert not seeded.exclude(data__seeded=True).exists()
    assert not [one for one in Action.objects.all() if any("disagree" in f for f in one.flags)]
    assert not seeded.filter(received_at__lt=began).exists()
    told = seeded.filter(type="run.started").order_by("time").values_list("time", flat=True)
    assert told[0] < began - timedelta(days=history.DAYS - 2)
    assert Run.objects.order_by("started_at").first().started_at == told[0]


def test_it_is_written_once_and_nothing_wakes_up_in_it(month):
    workspace, _ = month
    before = Case.objects.count()

    assert history.seed(workspace) == 0
    assert triage.look() == 0
    triage.look(list(Run.objects.values_list("pk", flat=True)))  # and if somebody looked anew

    assert Case.objects.count() == before
    assert not Case.objects.exclude(state="closed").exists()


def test_the_stage_is_set_again_after_a_visitor_brought_somebody_in(month):
    workspace, _ = month
    ada = User.objects.get(email=skyline.ADA)
    nadia = skyline.person("nadia@skyline.example", "Nadia", "a long enough secret")
    with as_the_desk():
        teams.add(workspace.teams.get(name="administrators"), nadia, by=ada)
        desk_events.take_in()

        skyline.prepare()

    waiting = Membership.objects.filter(workspace=workspace, vouched_at=None)
    assert {row.person for row in waiting} == {ada, nadia}, "the founder needs nobody's word"


def test_who_replays_a_recording_finds_the_demos_people_in_its_workspace(surroundings):
    """It was opened for nobody, so that no page of it could be looked at."""
    with pytest.raises(CommandError, match=f"{skyline.ADA}: name somebody by --founder"):
        replay.prepare(corpus.AIRLINE, "airline")
    skyline.make_tables()
    skyline.prepare()
    skyline.person("left@skyline.example", "Lea", "a long enough secret")
    User.objects.filter(email="left@skyline.example").update(is_active=False)
    with pytest.raises(CommandError, match=r"left@skyline\.example: name somebody by --founder"):
        replay.prepare(corpus.AIRLINE, "airline", founder="left@skyline.example")

    replay.prepare(corpus.AIRLINE, "airline")

    airline = Workspace.objects.get(slug="airline")
    assert {one.email for one in access.people_with("view", airline)} == {
        address for address, *_ in skyline.PEOPLE
    }
    assert access.may(User.objects.get(email=skyline.RINA), "recover", airline)
    assert [one.name for one in access.people_with("approve", airline)] != []
