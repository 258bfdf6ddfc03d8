"""The loop in which each job goes round, and the jobs for the desk as a whole: the watch.

A loop or process that stopped is told to people, not only to who asks /statusz. Scheduler and
sweeper both keep the watch, for neither can say that it has stopped itself; and where the scheduler
no longer sends what is written, the sweeper does. When both are gone /statusz and the operators'
pages say so (config.context).
"""

import logging
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from queue import SimpleQueue

from django.conf import settings
from django.db import connection, connections, transaction
from django.db.models.functions import Now
from django.db.utils import Error as DatabaseError
from psycopg import OperationalError

from config import pooling, single_sign_on
from config.health import WORKER
from connectors import channels
from connectors.channels import Message
from connectors.models import Channel
from workspaces import periodic
from workspaces.clock import database_time
from workspaces.models import Heartbeat, Workspace
from workspaces.periodic import SWEEPER, every

logger = logging.getLogger(__name__)

LOOK_SECONDS = 15.0
STOPPED, GOES_AGAIN = "desk.stopped", "desk.goes_again"
"""The subjects to which a channel subscribes."""

SENDER = "connectors.send"
WORKSPACES_MAX = 1_000
FAILING_SECONDS_MIN = 30.0
"""An error that is over sooner (a database that restarts) wakes nobody."""

NEVER_RAN_SECONDS = 180.0

FORGET_SECONDS = 3600.0
"""So long one of several that was killed is missed; another has its place by then."""


@dataclass(frozen=True, slots=True)
class LoopFault:
    """What is wrong with one loop ("has stopped"), and more of it; no `row` where it never ran."""

    name: str
    what: str
    more: str = ""
    row: Heartbeat | None = None


class Watch:
    """One process's eye on all loops; it remembers only since when it has been looking.

    Silence counts from then on: while the database was away nobody could give a sign of life.
    """

    def __init__(self) -> None:
        self._last: float | None = None
        self._since: datetime | None = None

    def look(self) -> int:
        """Tell once of each loop that stopped or fails, and once when it goes again; how many."""
        now = database_time()
        since = self._looking_since(now)
        known, told = periodic.known(), 0
        for fault in faults(known, since, now):
            told += _tell(fault)
        for row in known.values():
            is_well = row.failing_since is None and _is_heard(row, row.beat_at, now)
            if row.told_at is not None and is_well:
                told += _tell_again(row)
        long_ago = Heartbeat.objects.filter(name__contains=periodic.OF)
        long_ago.filter(beat_at__lt=Now() - timedelta(seconds=FORGET_SECONDS)).delete()
        if periodic.silent([SENDER]):
            channels.send_due()
        return told

    def _looking_since(self, now: datetime) -> datetime:
        last, self._last = self._last, time.monotonic()
        if self._since is None or last is None or self._last - last > 2 * LOOK_SECONDS:
            self._since = now
        return self._since


def faults(known: dict[str, Heartbeat], since: datetime, now: datetime) -> list[LoopFault]:
    """What is wrong. Of a process that stopped only itself is named, not each of its jobs; and one
    of several only where others of its kind go on.
    """
    processes = [WORKER, periodic.SCHEDULER, periodic.SWEEPER]
    found = {name: _fault(name, known.get(name), since, now) for name in processes}
    for job in periodic.jobs():
        if found[job.process] is None:
            found[job.name] = _fault(job.name, known.get(job.name), since, now)
    if periodic.BACKUP in known:
        found[periodic.BACKUP] = _backup_fault(known[periodic.BACKUP], now)
    for name, row in known.items():
        kind, _, host = name.partition(periodic.OF)
        if host and found.get(kind) is None:
            found[name] = _fault(name, row, since, now)
    return [fault for fault in found.values() if fault is not None]


def _fault(name: str, row: Heartbeat | None, since: datetime, now: datetime) -> LoopFault | None:
    if row is None:
        is_late = now - since > timedelta(seconds=NEVER_RAN_SECONDS)
        return LoopFault(name, "never ran") if is_late else None
    if not _is_heard(row, since, now):
        return LoopFault(name, "has stopped", f"No sign of life since {_exact(row.beat_at)}.", row)
    failing = row.failing_since
    if failing is not None and now - failing >= timedelta(seconds=FAILING_SECONDS_MIN):
        return LoopFault(name, "fails", f"Since {_exact(failing)}: {row.last_error}.", row)
    return None


def _backup_fault(row: Heartbeat, now: datetime) -> LoopFault | None:
    """It is late however long nobody looked, for what it guards against is lost as well."""
    if _is_heard(row, row.beat_at, now):
        return None
    return LoopFault(row.name, "is late", f"The last good one is of {_exact(row.beat_at)}.", row)


def _is_heard(row: Heartbeat, since: datetime, now: datetime) -> bool:
    patience = timedelta(seconds=periodic.patience(row.every_seconds))
    return now - max(row.beat_at, since) <= patience


def _exact(moment: datetime) -> str:
    return f"{moment:%d %b %H:%M:%S} UTC"


@transaction.atomic
def _tell(fault: LoopFault) -> bool:
    """Of any number of watchers one tells."""
    since = "ever"
    if fault.row is not None:
        if not Heartbeat.objects.filter(pk=fault.name, told_at=None).update(told_at=Now()):
            return False
        since = fault.row.beat_at.isoformat()
    logger.error("%s %s. %s", fault.name, fault.what, fault.more)
    message = Message(
        title=f"Amends: {fault.name} {fault.what}",
        text=f"{fault.more}\n{_what_follows(fault.name)}".strip(),
        url=f"{settings.AMENDS_URL}/statusz",
        facts={"loop": fault.name},
    )
    _announce(STOPPED, message, key=f"{STOPPED}/{fault.name}/{since}")
    return True


def _what_follows(name: str) -> str:
    if name == periodic.BACKUP:
        return "A night went by without one: see why, and run `manage.py backup` by hand."
    if periodic.OF in name:
        return "It did not end in order. Others of its kind go on, and take up what it held."
    return "What it does waits until it goes again; what agents and people say is kept."


@transaction.atomic
def _tell_again(row: Heartbeat) -> bool:
    told_at = row.told_at
    if not Heartbeat.objects.filter(pk=row.name, told_at=told_at).update(told_at=None):
        return False
    message = Message(
        title=f"Amends: {row.name} goes again",
        text=f"{row.name} goes again, and takes up what has waited.",
        url=f"{settings.AMENDS_URL}/statusz",
        facts={"loop": row.name},
    )
    _announce(GOES_AGAIN, message, key=f"{GOES_AGAIN}/{row.name}/{told_at}")
    return True


def _announce(subject: str, message: Message, *, key: str) -> None:
    """To every workspace that has a channel: it concerns them all."""
    having = Channel.objects.filter(disabled_at=None).values("workspace")
    for workspace in Workspace.objects.filter(pk__in=having).order_by("pk")[:WORKSPACES_MAX]:
        channels.announce(workspace, subject, message, key=key)


every(LOOK_SECONDS, name="desk.watch")(Watch().look)
every(5, name="desk.who_left")(single_sign_on.look_again)
every(LOOK_SECONDS, name="desk.watch_too", process=SWEEPER)(Watch().look)


# The loop of the scheduler and of the sweeper: every job in a thread of its own.
#
# A thread each, because a slow job must not hold up the others; a job that raises is logged, shown
# by /statusz, and done again in its turn.


# So often a process says which of its jobs went round: all of them in one statement, for each
# commit of its own is a write to the disk.
BEAT_SECONDS_MIN = 5.0

# Where nothing was to be done for a while, a quick job looks less often: up to so many times its
# pace, and this often at least. The first thing to come waits for that long at most.
QUIET_SECONDS = 5.0
SLOWER_MAX = 4
IDLE_SECONDS_MAX = 2.0
# Between turns further apart than this, a job's connection is given back.
KEEP_CONNECTION_SECONDS_MAX = 10.0
STOP_SECONDS_MAX = 20.0


def run(process: str) -> None:
    """Do the jobs of this process until SIGTERM or SIGINT; a turn under way is finished."""
    with suppress(OperationalError):  # away: its jobs say so, and try again
        pooling.check(settings.DATABASE_URL)
    stopping = threading.Event()
    # An event that is set where its own waiter, or another signal, is interrupted waits for itself.
    signals: SimpleQueue[int] = SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: signals.put(number))
    jobs = [*periodic.jobs(process), periodic.Job(process, BEAT_SECONDS_MIN, int, process)]
    threads = [threading.Thread(target=repeat, args=(job, stopping), name=job.name) for job in jobs]
    for thread in threads:
        thread.daemon = True  # one that hangs does not keep the process alive
        thread.start()
    logger.info("%s: %s", process, ", ".join(job.name for job in jobs))
    signals.get()
    stopping.set()
    deadline = time.monotonic() + STOP_SECONDS_MAX
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    with suppress(DatabaseError):
        periodic.ended(process)


_went: dict[str, float] = {}
"""Jobs of this process that went round well since it last said so, and how often they do."""


def repeat(job: periodic.Job, stopping: threading.Event) -> None:
    found_at = time.monotonic()
    while not stopping.is_set():
        found, error = turn(job)
        say(job, error)
        if found or error:
            found_at = time.monotonic()
        if job.seconds > KEEP_CONNECTION_SECONDS_MAX:
            connections.close_all()
        stopping.wait(pause(job, time.monotonic() - found_at))
    connections.close_all()


def pause(job: periodic.Job, quiet_seconds: float) -> float:
    """Seconds until the next turn of a job that found nothing to do for so long."""
    if quiet_seconds < QUIET_SECONDS:
        return job.seconds
    return max(job.seconds, min(SLOWER_MAX * job.seconds, IDLE_SECONDS_MAX))


def turn(job: periodic.Job) -> tuple[bool, str]:
    """One turn: whether there was something to do (a job that does not say is asked again in its
    turn), and the error in words, or nothing. It is the first line of what was said, for strangers
    and every workspace hear of it, and in the others PostgreSQL says what stands in a row.
    """
    try:
        found = job.do()
    except Exception as error:
        logger.exception("%s failed; it is tried again in %s s", job.name, job.seconds)
        for one in connections.all(initialized_only=True):
            one.close_if_unusable_or_obsolete()
        first, *_ = str(error).strip().split("\n")
        return False, f"{type(error).__name__}: {first}"
    return found is None or bool(found), ""


def say(job: periodic.Job, error: str) -> None:
    """Note a turn that went well; what fails is said at once, and so is all that the process noted
    when its own job comes round.
    """
    pace = max(job.seconds, BEAT_SECONDS_MIN)
    try:
        if error:
            periodic.beat(job.name, every_seconds=pace, error=error)
            return
        _went[job.name] = pace
        if job.name == job.process:
            _went[periodic.own_name(job.process)] = BEAT_SECONDS_MIN
            went = dict(_went)
            _went.clear()
            periodic.beat_together(went)
    except DatabaseError:
        logger.warning("%s: no sign of life could be written", job.name)
        connection.close()
