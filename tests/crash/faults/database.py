"""F14 to F18: a database that restarts, is in doubt, loses what it said, or holds on to rows."""

import time

import psycopg
from django.db import connection, connections

from approvals import pauses
from approvals.models import Pause
from ledger.models import LogKey, TreeHead, Unsealed
from ledger.sealer import seal_all
from recovery.models import Step, StepAttempt
from tests.conftest import started
from tests.crash.catalogue import fault
from tests.crash.oracle import at_rest, rest, until
from tests.crash.person import Person
from tests.crash.standby import Standby
from tests.crash.storm import MENDING, PLANS, Storm, make_read_only, restart_database
from tests.people import person, team
from tests.proxy import CommitInDoubt
from workspaces.clock import database_time

READ_ONLY_SECONDS = 60
FULL_SECONDS = 15
"""Longer than a lease."""


@fault("F14 database restarts")
def restarts(storm: Storm) -> None:
    """Whenever something is at work; the same web process shows its pages after each of them."""
    storm.begin(count=0)
    web = storm.processes.web(**storm.environment)
    ada = Person(storm.people.ada, web.url, storm.connection.workspace)
    assert ada.opens("queue/") == 200
    for number in range(PLANS):
        storm.plans.append(storm.plan(f"s{number}"))
        storm.hint()
        storm.some_time(0.1, 1.5)
        restart_database()
        until(lambda: ada.opens("queue/") == 200, 30, "pages are shown again")
        storm.some_time(4, 10)
    assert web.alive()


@fault("F15 commit of an intent in doubt")
def doubt(storm: Storm) -> None:
    """The line is cut exactly at the commit: it never arrived, or it was made and nobody knows."""
    first, later = ["kept", "never", "silent"], ["kept"] * 7 + ["never", "silent"]
    storm.chance.shuffle(first)  # plans travel together: there may be three commits, and no more
    storm.chance.shuffle(later)
    fates = first + later
    socket = f"{started['postgres'].sockets}/.s.PGSQL.5432"
    with CommitInDoubt(socket, b"INSERT INTO recovery_stepattempt", fates) as proxy:
        url = f"postgresql://amends@127.0.0.1:{proxy.port}/{started['database']}"
        # A statement that is prepared goes over the line without its words.
        storm.begin(DATABASE_URL=url, AMENDS_PREPARE_AFTER="0")
        rest(storm.plans)
        assert {"never", "silent"} <= set(proxy.met)
    assert not storm.told("applied", was="unknown"), "sent without knowing of its intent"


@fault("F15 lines cut before the commit")
def cut(storm: Storm) -> None:
    storm.begin(FAULT=f"intending:cut:{storm.chance.randrange(1, 9)},settling:cut:2")


@fault("F16 lossy failover")
def failover(storm: Storm) -> None:
    """What was done since the standby heard its last is forgotten; the outside world remembers.

    Of one plan nothing can be read: only the key keeps its effects from being made again.
    """
    storm.operations = ("refund_unseen",)
    storm.plans.append(storm.plan("s0"))
    storm.operations = MENDING
    storm.plans += [storm.plan(f"s{number}") for number in range(1, PLANS)]
    scheduler = storm.processes.scheduler(**storm.environment)
    seal_all()
    standby = Standby(started["postgres"], started["folder"] / f"standby-{storm.seed}")
    standby.stop_listening()
    storm.begin(count=0)
    until(lambda: len(storm.outside.journal()) > PLANS, 60, "some of it is done")
    until(lambda: not Unsealed.objects.exists() or at_rest(storm.plans), 60, "and sealed")
    origins = set(LogKey.objects.values_list("origin", flat=True))

    died = database_time()
    standby.primary_dies()
    storm.some_time(1.5, 2.5)  # what was intended there has been sent or never will be
    storm.lost_until = len(storm.outside.journal())
    started["postgres"] = standby.takes_over()
    connections.close_all()

    lost = {line["key"] for line in storm.outside.journal()[: storm.lost_until]}
    assert not StepAttempt.objects.filter(key__in=lost, intended_at__lt=died).exists()
    storm.hint()
    held = Pause.objects.filter(paused_by=None, lifted_at=None)
    until(held.exists, 60, "the log went back, and everything is held")
    in_hand = Step.objects.filter(plan__in=storm.plans, state__in=["claimed", "intended"])
    until(lambda: not in_hand.exists(), 60, "what was in hand is settled")
    sent = len(storm.outside.journal())
    storm.some_time(1.5, 2.5)
    assert len(storm.outside.journal()) == sent, "nothing is done until a person has looked"
    looking = person("ann", team(storm.plans[0].workspace, "administrators", "view", "administer"))
    pauses.lift(held.get(), by=looking)
    rest(storm.plans)
    again = StepAttempt.objects.filter(key__in=lost).values_list("key", flat=True)
    unseen = {step.key for step in storm.plans[0].steps.all()}
    assert lost & unseen <= set(again), "asked again under the same key"
    new = LogKey.objects.exclude(origin__in=origins)
    until(new.exists, 60, "the log that went back goes on under a new origin")
    heads = TreeHead.objects.filter(origin=new.get().origin).order_by("size")
    until(heads.exists, 60, "its first head")
    assert any(f"\nafter {origin} " in heads[0].note for origin in origins)
    assert "went back" in scheduler.said()
    scheduler.stop()


@fault("F17 database read-only")
def read_only(storm: Storm) -> None:
    half_done(storm)
    make_read_only(really=True)
    nothing_is_sent(storm, READ_ONLY_SECONDS)
    make_read_only(really=False)


@fault("F17 database full")
def full(storm: Storm) -> None:
    """It is there and answers, but there is no room for anything new."""
    half_done(storm)
    with connection.cursor() as cursor:
        cursor.execute(FULL_SQL)
    nothing_is_sent(storm, FULL_SECONDS)
    with connection.cursor() as cursor:
        cursor.execute(ROOM_SQL)


FULL_SQL = """
CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
END $$;
CREATE TRIGGER full_step BEFORE INSERT OR UPDATE ON recovery_step EXECUTE FUNCTION no_room();
CREATE TRIGGER full_try BEFORE INSERT OR UPDATE ON recovery_stepattempt EXECUTE FUNCTION no_room();
CREATE TRIGGER full_event BEFORE INSERT ON ledger_event EXECUTE FUNCTION no_room()"""
ROOM_SQL = "DROP FUNCTION IF EXISTS no_room CASCADE"


def half_done(storm: Storm) -> None:
    for number in range(PLANS):
        storm.outside.mischief(f"s{number}1", sleep_before=0.6)
    storm.begin()
    storm.some_time(0.2, 0.8)


def nothing_is_sent(storm: Storm, seconds: float) -> None:
    """But for what was on the wire when it began."""
    storm.some_time(2, 3)
    before = len(storm.outside.journal())
    time.sleep(seconds)
    assert len(storm.outside.journal()) == before
    assert not at_rest(storm.plans)


@fault("F18 a forgotten transaction")
def forgotten(storm: Storm) -> None:
    storm.outside.mischief("s02", sleep_before=0.7)
    storm.begin()
    url = started["postgres"].url(started["database"])
    with psycopg.connect(url) as idle:
        step = storm.plans[0].steps.get(position=2)
        idle.execute("SELECT FROM recovery_step WHERE id = %s FOR UPDATE", [step.pk])
        rest(storm.plans[1:], 60)
        assert not at_rest(storm.plans[:1])
