"""The watch: a loop that stopped or fails is told once, and once more when it goes again."""

from datetime import timedelta

import pytest
from django.core import mail
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from config.health import expected
from config.periodic import SENDER, Watch
from connectors import channels
from connectors.models import Delivery
from tests import people
from workspaces import periodic
from workspaces.models import Heartbeat, Workspace

acme, globex = people.acme, people.globex
PARTITIONS = "ledger.partitions"
MISSING = "PartitionMissing: events lie in ledger_event_default instead of ledger_event_2026w48"


@pytest.fixture
def desk(acme: Workspace, globex: Workspace) -> Watch:
    """Every loop goes; Acme has a channel, Globex has none, and somebody has looked before."""
    channels.create(acme, "ops", "mail", by=None, settings={"to": ["ops@example.com"]})
    for name in expected():
        periodic.beat(name, every_seconds=5.0)
    found = Watch()
    assert found.look() == 0
    assert found._since is not None
    found._since -= timedelta(hours=6)
    return found


def ago(name: str, **columns: timedelta) -> None:
    Heartbeat.objects.filter(pk=name).update(
        **{column: F(column) - back for column, back in columns.items()}
    )


def told() -> list[str]:
    rows = Delivery.objects.order_by("pk").values_list("workspace__slug", "message__title")
    return [f"{slug}: {title}" for slug, title in rows]


@pytest.mark.parametrize("name", ["recovery.sweep", "ledger.seal", PARTITIONS])
def test_a_loop_that_stopped_is_told_once_to_who_has_a_channel(desk: Watch, name: str) -> None:
    ago(name, beat_at=timedelta(minutes=5))

    assert [desk.look(), Watch().look(), desk.look()] == [1, 0, 0]

    assert told() == [f"acme: Amends: {name} has stopped"]
    assert Delivery.objects.get().message["facts"] == {"loop": name}


def test_of_a_scheduler_that_is_gone_its_jobs_are_not_told_one_by_one(desk: Watch) -> None:
    Heartbeat.objects.update(beat_at=Now() - timedelta(minutes=5))
    sweeping = [job.name for job in periodic.jobs() if job.process == periodic.SWEEPER]
    for name in ("worker", "sweeper", *sweeping):
        periodic.beat(name, every_seconds=5.0)

    desk.look()

    assert told() == ["acme: Amends: scheduler has stopped"]


def test_a_missing_partition_is_told_with_its_words(desk: Watch) -> None:
    periodic.beat(PARTITIONS, every_seconds=3600, error=MISSING)
    assert desk.look() == 0, "an error that may be over in a moment wakes nobody"
    ago(PARTITIONS, failing_since=timedelta(minutes=1))

    desk.look()

    assert told() == ["acme: Amends: ledger.partitions fails"]
    assert MISSING in Delivery.objects.get().message["text"]


def test_when_it_goes_again_that_is_told_and_the_next_failure_too(desk: Watch) -> None:
    for _ in range(2):
        periodic.beat(PARTITIONS, every_seconds=3600, error=MISSING)
        ago(PARTITIONS, failing_since=timedelta(minutes=1))
        periodic.beat(PARTITIONS, every_seconds=3600, error=MISSING)
        assert [desk.look(), desk.look()] == [1, 0]
        periodic.beat(PARTITIONS, every_seconds=3600)
        assert [desk.look(), desk.look()] == [1, 0]

    assert [one.rpartition(" ")[2] for one in told()][1::2] == ["again", "again"]
    assert len(told()) == 4


def test_while_the_database_was_away_nobody_could_give_a_sign_of_life(
    desk: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    Heartbeat.objects.update(beat_at=Now() - timedelta(hours=4))
    assert desk._last is not None
    monkeypatch.setattr(desk, "_last", desk._last - 600)

    assert desk.look() == 0
    for name in ("worker", "scheduler", "sweeper"):
        periodic.beat(name, every_seconds=5.0)
    assert desk._since is not None
    desk._since -= timedelta(minutes=1)
    assert desk.look() > 0, "but who is silent from then on is told"


def test_what_never_ran_is_told_after_a_while(desk: Watch) -> None:
    Heartbeat.objects.filter(pk="recovery.sweep").delete()

    assert Watch().look() == 0, "it may just be starting"
    desk.look()
    desk.look()

    assert told() == ["acme: Amends: recovery.sweep never ran"]


@pytest.mark.parametrize("behind", [timedelta(), timedelta(hours=1)])
def test_where_the_scheduler_sends_nothing_the_watch_does(
    desk: Watch, behind: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the watch's own clock is an hour behind."""
    right = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: right() - behind)
    ago(SENDER, beat_at=timedelta(minutes=5))

    desk.look()

    assert [letter.subject for letter in mail.outbox] == ["Amends: connectors.send has stopped"]


def test_a_night_without_a_backup_is_told_once_and_once_more_when_there_is_one(
    desk: Watch,
) -> None:
    assert Watch().look() == 0, "nobody makes backups here"
    periodic.done(periodic.BACKUP)
    ago(periodic.BACKUP, beat_at=timedelta(hours=26))
    assert desk.look() == 0, "it is being made"

    ago(periodic.BACKUP, beat_at=timedelta(hours=2))
    assert [Watch().look(), Watch().look()] == [1, 0], "however long nobody looked"
    periodic.done(periodic.BACKUP)
    desk.look()

    assert told() == ["acme: Amends: backup is late", "acme: Amends: backup goes again"]
    assert "run `manage.py backup` by hand" in Delivery.objects.earliest("pk").message["text"]


def test_one_of_two_workers_that_died_is_told_and_forgotten_after_an_hour(desk: Watch) -> None:
    for name in ("worker@one/7", "worker@two/9"):
        periodic.beat(name, every_seconds=5.0)
    ago("worker@two/9", beat_at=timedelta(minutes=5))

    assert [desk.look(), desk.look()] == [1, 0]
    assert told() == ["acme: Amends: worker@two/9 has stopped"]

    ago("worker@two/9", beat_at=timedelta(hours=1))
    desk.look()
    assert sorted(Heartbeat.objects.filter(name__contains="@").values_list("pk", flat=True)) == [
        "worker@one/7"
    ]


def test_of_a_kind_that_is_gone_its_processes_are_not_told_one_by_one(desk: Watch) -> None:
    periodic.beat("worker@one/7", every_seconds=5.0)
    for name in ("worker", "worker@one/7"):
        ago(name, beat_at=timedelta(minutes=5))

    desk.look()

    assert told() == ["acme: Amends: worker has stopped"]
