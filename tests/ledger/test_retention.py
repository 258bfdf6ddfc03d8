"""Nothing is kept longer than the workspace says; the log and every proof of it stay."""

from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from amends.protocol.proofs import verify
from amends.protocol.vocabulary import EventType
from ledger import audit, checks, desk_events, erasure, partitions, proofs, retention, sealer
from ledger.intake import KEEP_BLOB
from ledger.models import Action, Blob, Effect, Event, EventKey, Leaf, Run, Thinning
from ledger.parsed_events import Actor
from tests.ledger.conftest import event, record_events
from tests.ledger.test_erasure import act, keys, tables_that_say
from tests.ledger.test_pages import member
from tests.locks import comes_before_the_commit
from tests.worlds import kept
from workspaces import erasure_registry, periodic
from workspaces.models import Act, Agent, Delegation, Heartbeat, User, Workspace

# Ninety days after the end of the week in which the tests run.
SOON = datetime.now(UTC) + timedelta(days=98)
LATER = datetime.now(UTC) + timedelta(days=410)


@pytest.fixture
@kept(in_turn=True)
def said(actor, northwind):
    events = [
        event("run.started", run="over", data={"request": "Eve Canary moves"}), *act("over", "a1"),
        event("run.completed", run="over"),
        event("run.started", run="open", data={"request": "Bob waits"}), *act("open", "b1"),
    ]  # fmt: skip
    record_events(actor, *events)
    Run.objects.update(lease_until=None)
    sealer.seal(northwind)
    return events


@pytest.fixture
def held(monkeypatch, northwind):
    """Somebody works on the run “open”, as a case of a floor above would say."""

    def of_open(workspace, runs):
        found = Run.objects.filter(workspace=workspace, pk__in=runs, run="open")
        return found.values_list("pk", flat=True)

    erasure_registry.held()  # every floor has spoken
    monkeypatch.setattr(erasure_registry, "_rest", [*erasure_registry._rest, of_open])


def test_what_is_over_goes_and_what_is_worked_on_stays(said, held, northwind):
    done = retention.keep_to_time(SOON)

    assert (done.runs_forgotten, done.events) == (1, 4)
    assert done.is_all, "what somebody works on is not over its time"
    assert not periodic.silent([periodic.RETENTION])
    assert periodic.RETENTION in periodic.known()
    assert set(Event.objects.values_list("run", flat=True)) == {"open"}
    assert Event.objects.filter(data=None).count() == 0
    assert Run.objects.get(run="over").request == "⟦erased⟧"
    assert Effect.objects.get(action__action="b1").before == {"who": "Eve Canary"}
    assert Action.objects.get(action="a1").key == "key-a1"
    (line,) = Thinning.objects.all()
    assert (line.let_go, line.kept) == (4, 3)
    assert Act.objects.get(type="ledger.thinned").data["let_go"] == 4


def test_old_and_new_proofs_verify_offline_after_it(said, held, northwind, actor):
    old = {one["id"]: proofs.proof_of(northwind, one["id"]) for one in said}
    size = proofs.newest_head(northwind).size

    retention.keep_to_time(SOON)
    later = event("run.completed", run="open")
    record_events(actor, later)
    sealer.seal(northwind)

    for one in said:
        assert verify(old[one["id"]], keys(northwind)).size == size
    for one in said[4:]:  # still there, in the partition that was written anew
        assert verify(proofs.proof_of(northwind, one["id"]), keys(northwind)).size == size + 1
    assert proofs.proof_of(northwind, said[0]["id"]) is None
    assert proofs.consistency(northwind, size, size + 1)
    assert Leaf.objects.count() == size + 1
    assert all(finding.ok for finding in audit.audit(northwind)), audit.audit(northwind)


def test_an_event_taken_away_afterwards_is_still_found_missing(said, held, northwind, actor):
    retention.keep_to_time(SOON)
    record_events(actor, event("run.completed", run="open"))
    sealer.seal(northwind)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("DELETE FROM ledger_event WHERE type = 'run.completed'")

    assert [one.name for one in audit.audit(northwind) if not one.ok] == ["Every entry is there"]


def test_a_partition_without_anything_to_keep_is_dropped(said, northwind):
    week = partitions.week_of(datetime.now(UTC)).name
    retention.keep_to_time(SOON)

    with connection.cursor() as cursor:
        assert week not in partitions.existing(cursor)
    assert tables_that_say("Canary") == {}
    assert Event.objects.count() == 0
    assert retention.keep_to_time(SOON).events == 0


def test_a_partition_written_anew_is_as_guarded_as_the_others(said, held, northwind, actor):
    retention.keep_to_time(SOON)

    assert [one.id for one in checks.missing_guards()] == ["ledger.W001"]
    for change in ("DELETE FROM ledger_event", "TRUNCATE ledger_event"):
        with pytest.raises(DatabaseError, match="only grows"), transaction.atomic():
            connection.cursor().execute(change)
    (answer,) = record_events(actor, event("run.failed", run="open")).results
    assert answer.status == "accepted"  # it lands in this week, which is that partition


def test_each_workspace_keeps_its_own_time(said, northwind, ada):
    long = Workspace.objects.create(slug="longwind", name="Longwind", retention_days=365)
    desk = Agent.objects.create(workspace=long, name="desk", owner=ada)
    record_events(Actor(long.pk, long.slug, "agent", desk.name, desk.pk, "0123456789"),
         event("run.started", run="theirs"))  # fmt: skip
    Run.objects.update(lease_until=None)
    retention.keep_to_time(SOON)

    assert list(Event.objects.values_list("workspace__slug", "run")) == [("longwind", "theirs")]
    assert Run.objects.get(run="theirs").forgotten_at is None


def test_ids_are_known_for_400_days(said, northwind, actor):
    retention.keep_to_time(SOON)
    assert record_events(actor, said[4]).results[0].status == "rejected"  # the run is forgotten
    assert EventKey.objects.count() == len(said)
    assert Run.objects.count() == 2

    done = retention.keep_to_time(LATER)
    assert (EventKey.objects.count(), Run.objects.count()) == (0, 0)
    assert done.runs_removed == 2
    assert record_events(actor, said[4]).results[0].status == "accepted"  # anew, as if never said


def test_ids_of_events_that_are_kept_longer_are_looked_at_once_and_go_with_their_week(
    said, northwind, monkeypatch
):
    Workspace.objects.update(retention_days=1000)
    retention.keep_to_time(LATER)
    assert EventKey.objects.count() == len(said)
    asked = []

    def hear(execute, sql, params, many, context):
        asked.append(sql)
        return execute(sql, params, many, context)

    Heartbeat.objects.update(beat_at=LATER)
    with connection.execute_wrapper(hear):
        retention.keep_to_time(LATER + timedelta(seconds=1))
    assert len(asked) > 5
    assert not [one for one in asked if "ledger_eventkey" in one]

    Heartbeat.objects.update(beat_at=LATER)
    much_later = LATER + timedelta(days=600)
    monkeypatch.setattr(timezone, "now", lambda: much_later)
    retention.keep_to_time(much_later)
    assert (Event.objects.count(), EventKey.objects.count()) == (0, 0)


def test_snapshots_go_with_the_runs_that_name_them(actor, northwind, held):
    for letter in "abc":
        Blob.objects.create(workspace=northwind, sha256=letter * 64, content=b"x", byte_count=1)
    for run, letter in (("over", "a"), ("open", "b")):
        record_events(actor, event("action.planned", run=run, action="a", data={
            "tool": "t", "before": [{"ref": f"sha256:{letter * 64}"}]}))  # fmt: skip
    Run.objects.update(lease_until=None)
    retention.keep_to_time(SOON)

    assert list(Blob.objects.values_list("sha256", flat=True)) == ["b" * 64]


def test_a_snapshot_that_was_sent_long_ago_stays_with_what_is_undone_by_it(actor, northwind):
    """It is there already, so nobody has to send it again (docs/wire.md)."""
    for letter in "abc":
        Blob.objects.create(workspace=northwind, sha256=letter * 64, content=b"x", byte_count=1)
    target = {"type": "list", "id": "1"}
    effect = {
        name: {"ref": f"sha256:{one * 64}"} for name, one in (("before", "a"), ("after", "b"))
    }
    record_events(
        actor,
        event("run.started"),
        event("action.planned", action="a", data={"tool": "t", "target": target}),
        event("action.succeeded", action="a", data={"effects": [{"target": target} | effect]}),
    )
    Blob.objects.update(received_at=datetime.now(UTC) - timedelta(days=200))

    retention.keep_to_time()

    assert list(Blob.objects.order_by("sha256").values_list("sha256", flat=True)) == [
        "a" * 64, "b" * 64]  # fmt: skip


@pytest.mark.django_db(transaction=True)
def test_a_snapshot_that_comes_again_as_its_time_is_over_stays(northwind):
    blob = Blob.objects.create(workspace=northwind, sha256="a" * 64, content=b"x", byte_count=1)
    Blob.objects.update(received_at=datetime.now(UTC) - timedelta(days=200))
    again = [northwind.pk, blob.sha256, b"x", 1]

    def keep():
        with connection.cursor() as cursor:
            cursor.execute(KEEP_BLOB.replace("%b", "%s"), again)

    comes_before_the_commit(keep, retention.keep_to_time)

    assert Blob.objects.exists(), "it was said to be kept"


def test_which_policy_was_in_force_is_told_as_long_as_somebody_works_with_that_time(
    said, held, northwind
):
    told = {"previous": {"digest": "sha256:1"}}
    desk_events.record(northwind, EventType.POLICY_ACTIVATED, data=told, part="policy")
    sealer.seal(northwind)

    retention.keep_to_time(SOON)
    assert Event.objects.filter(type=EventType.POLICY_ACTIVATED).count() == 1
    Run.objects.filter(run="open").update(forgotten_at=SOON)
    retention.keep_to_time(SOON)
    assert Event.objects.count() == 0


def test_by_which_key_somebody_signs_and_that_a_right_was_handed_over_stays_on_the_record(
    said, northwind, ada
):
    """Both are asked for when a yes is used, long after they were told."""
    ben = User.objects.create_user("ben@example.com", "correct horse")
    term = {"reason": "away", "starts_at": SOON, "until": SOON + timedelta(days=1)}
    lent = Delegation.objects.create(workspace=northwind, delegator=ada, delegate=ben, **term)
    for number, kind in enumerate(
        (EventType.SIGNING_KEY_ENROLLED, EventType.DELEGATION_GIVEN, EventType.DELEGATION_GIVEN)
    ):
        known = {"delegation": lent.pk + number - 1}
        desk_events.record(northwind, kind, by=ada, part="gate", data=known)
    sealer.seal(northwind)

    retention.keep_to_time(SOON)

    stay = Event.objects.order_by("place").values_list("type", "data__delegation")
    assert list(stay) == [("signing_key.enrolled", lent.pk - 1), ("delegation.given", lent.pk)]
    assert all(finding.ok for finding in audit.audit_all(northwind))
    enrolled = Event.objects.get(type=EventType.SIGNING_KEY_ENROLLED)
    retention.keep_to_time(LATER)
    assert proofs.event_of(northwind, enrolled.event_id) == enrolled


def test_a_young_run_is_left_alone(said, northwind, capsys):
    call_command("retain", "--dry-run")
    assert "northwind, 90 days: 0 runs and 0 events" in capsys.readouterr().out
    call_command("retain")
    assert "0 runs forgotten" in capsys.readouterr().out
    assert retention.preview(northwind, SOON).runs_forgotten == 2
    assert Event.objects.count() == len(said)


@pytest.mark.django_db(transaction=True)
def test_a_run_whose_agent_comes_back_as_its_time_is_over_is_not_forgotten(said, actor):
    long_ago = datetime.now(UTC) - timedelta(days=200)
    Run.objects.update(started_at=long_ago, last_event_at=long_ago, state="completed")

    failed = event("run.failed", run="over", data={"error": {"message": "!"}})
    done = comes_before_the_commit(lambda: record_events(actor, failed), retention.keep_to_time)

    assert done.runs_forgotten == 1

    left = Run.objects.get(forgotten_at=None)
    assert (left.run, left.request) == ("over", "Eve Canary moves")


def test_the_page_asks_by_itself_what_is_over_its_time(said, held, northwind, client):
    client.force_login(member(northwind, "alma", "view", "administer"))
    long_ago = datetime.now(UTC) - timedelta(days=200)
    Run.objects.update(started_at=long_ago, last_event_at=long_ago)
    page = "/w/northwind/settings/kept/"

    first = client.get(page)
    assert "next" not in first.context
    assert f'hx-get="{page}?next=1"' in first.text
    part = client.get(f"{page}?next=1", headers={"HX-Request": "true"})
    assert "Over their time now: <b>1</b> runs" in part.text
    assert "<html" not in part.text
    assert "By time" in client.get(f"{page}?next=1").text  # without scripts it is a page


def test_what_was_erased_first_is_retained_no_longer_than_the_rest(said, northwind):
    erasure.erase(northwind, runs=["over"], by=None)
    retention.keep_to_time(SOON)
    assert Event.objects.count() == 0


def test_one_tenants_days_let_go_nothing_of_its_neighbours(said, northwind, actor, ada):
    """The same run, action and snapshot in two workspaces, of which one keeps things for a year."""
    long = Workspace.objects.create(slug="longwind", name="Longwind", retention_days=365)
    agent = Agent.objects.create(workspace=long, name="desk", owner=ada)
    their_desk = Actor(long.pk, long.slug, "agent", agent.name, agent.pk, "0123456789")
    for workspace in (northwind, long):
        for letter in "ab":
            Blob.objects.create(workspace=workspace, sha256=letter * 64, content=b"x", byte_count=1)
    planned = event("action.planned", run="over", action="z", data={
        "tool": "t", "before": [{"ref": f"sha256:{'a' * 64}"}]})  # fmt: skip
    record_events(actor, planned | {"id": planned["id"] + "0"})
    begun = event("run.started", run="over", data={"request": "Eve Canary"})
    record_events(their_desk, begun, planned, event("run.completed", run="over"))
    desk_events.record(long, EventType.POLICY_SAVED, data={}, part="policy")  # it is of no run
    Run.objects.update(lease_until=None)
    for workspace in (northwind, long):
        sealer.seal(workspace)
    theirs = set(Event.objects.filter(workspace=long).values_list("event_id", flat=True))

    retention.keep_to_time(SOON)

    kept = Blob.objects.filter(content__isnull=False).values_list("workspace__slug", "sha256")
    assert sorted(kept) == [("longwind", "a" * 64), ("longwind", "b" * 64)]
    run = Run.objects.get(workspace=long)
    assert (run.request, run.forgotten_at) == ("Eve Canary", None)
    assert set(Event.objects.values_list("event_id", flat=True)) == theirs
    assert not Event.objects.filter(data__isnull=True).exists()
    acts = Act.objects.filter(type="ledger.thinned")
    assert set(acts.values_list("workspace__slug", flat=True)) == {"northwind"}


def test_a_machine_whose_clock_is_ahead_lets_nothing_go_early(said, northwind, monkeypatch):
    class Ahead(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=120)

    before = retention.preview(northwind).runs_forgotten
    for module in (retention, partitions):
        monkeypatch.setattr(module, "datetime", Ahead)
    monkeypatch.setattr(timezone, "now", lambda: Ahead.now(UTC))

    done = retention.keep_to_time()

    assert (done.runs_forgotten, done.events, before) == (0, 0, 0)
    assert retention.preview(northwind).runs_forgotten == 0
    assert retention.glance(northwind).runs == 0
    assert Run.objects.get(run="over").request == "Eve Canary moves"
    assert partitions.make_ahead() == [], "the weeks of a wrong year are not made"
