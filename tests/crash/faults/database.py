"""F14 to F18: a database that restarts, is in doubt, loses what it said, or holds on to rows."""

import psycopg
from django.db import connections

from ledger.models import LogKey, Unsealed
from ledger.sealer import seal_all
from tests.conftest import started
from tests.crash.catalogue import fault
from tests.crash.oracle import at_rest, rest, until
from tests.crash.standby import Standby
from tests.crash.storm import PLANS, Storm, make_read_only, restart_database
from tests.proxy import CommitInDoubt


@fault("F14 database restarts")
def restarts(storm: Storm) -> None:
    storm.begin()
    for _ in range(3):
        storm.some_time(1, 4)
        restart_database()


@fault("F15 commit of an intent in doubt")
def doubt(storm: Storm) -> None:
    """The line is cut exactly at the commit: it never arrived, or it was made and nobody knows."""
    fates = ["kept"] * 8 + ["never", "silent"] * 2
    storm.chance.shuffle(fates)
    socket = f"{started['postgres'].sockets}/.s.PGSQL.5432"
    with CommitInDoubt(socket, b"INSERT INTO recovery_stepattempt", fates) as proxy:
        url = f"postgresql://amends@127.0.0.1:{proxy.port}/{started['database']}"
        storm.begin(DATABASE_URL=url)
        rest(storm.plans)
        assert {"never", "silent"} <= set(proxy.met)


@fault("F15 lines cut before the commit")
def cut(storm: Storm) -> None:
    storm.begin(FAULT=f"intending:cut:{storm.chance.randrange(1, 9)},settling:cut:2")


@fault("F16 lossy failover")
def failover(storm: Storm) -> None:
    """What was done since the standby heard its last is forgotten; the outside world remembers."""
    storm.plans += [storm.plan(f"s{number}") for number in range(PLANS)]
    scheduler = storm.processes.scheduler(**storm.environment)
    seal_all()
    standby = Standby(started["postgres"], started["folder"] / f"standby-{storm.seed}")
    standby.stop_listening()
    storm.begin(count=0)
    until(lambda: len(storm.outside.journal()) > PLANS, 60, "some of it is done")
    until(lambda: not Unsealed.objects.exists() or at_rest(storm.plans), 60, "and sealed")
    origins = set(LogKey.objects.values_list("origin", flat=True))

    standby.primary_dies()
    storm.some_time(1.5, 2.5)  # what was intended there has been sent or never will be
    storm.lost_until = len(storm.outside.journal())
    started["postgres"] = standby.takes_over()
    connections.close_all()

    storm.hint()
    rest(storm.plans)
    new = LogKey.objects.exclude(origin__in=origins)
    until(new.exists, 60, "the log that went back goes on under a new origin")
    scheduler.stop()


@fault("F17 database read-only")
def read_only(storm: Storm) -> None:
    storm.begin()
    storm.some_time(0.2, 1)
    make_read_only(really=True)
    storm.some_time(1, 2)
    before = len(storm.outside.journal())
    storm.some_time(2, 3)
    assert len(storm.outside.journal()) == before
    make_read_only(really=False)


@fault("F18 a forgotten transaction")
def forgotten(storm: Storm) -> None:
    storm.begin()
    url = started["postgres"].url(started["database"])
    with psycopg.connect(url) as idle:
        step = storm.plans[0].steps.get(position=2)
        idle.execute("SELECT FROM recovery_step WHERE id = %s FOR UPDATE", [step.pk])
        rest(storm.plans[1:], 60)
