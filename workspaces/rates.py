"""How fast agents may ask: per key, per agent and per workspace, so that one that asks without end
leaves the others their answers.

Each is a leaky bucket that is used as a meter (ITU-T I.371, A.2): it holds BURST_SECONDS of its
rate, and what does not fit is refused with the time after which it would. A request is answered
from this process's own memory and waits for nobody. What was let in is told to Valkey every
TELL_SECONDS, which adds it up for all processes and says how full each bucket is; so several
processes let in a little more together, for so long. While Valkey is away each counts by itself:
then as many rates pass as there are processes, and the page of the keys, the log and `/metrics` say
so.
"""

import asyncio
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import redis
from django.conf import settings
from prometheus_client import Counter as Counted
from prometheus_client import Gauge

from edge import sockets
from workspaces.models import Workspace

logger = logging.getLogger(__name__)

BURST_SECONDS = 10.0
"""So much of a rate may come at once, after a while of silence."""

TELL_SECONDS = 0.2
"""Between two tellings; a process lets in at most so much of a rate that others used up."""

ANSWER_SECONDS_MAX = 1.0
"""How long Valkey is waited for; nobody else waits meanwhile."""

FORGET_SECONDS = 120
"""An empty bucket is not kept longer, here or in Valkey."""

BODY_BYTES_OF_ONE = 64 * 1024
"""A request counts once, and once more for each so many bytes that it says its body has."""

BODY_BYTES_MAX = 8 * 1024 * 1024
"""More than any address takes: who says more is refused, and fills no bucket for hours by it."""

REFUSED_AFTER_SECONDS = 0.25
"""Who heeds no `Retry-After` asks again as soon as it is refused. Eight such agents took both
cores, and others' answers five times as long; so each waits a moment for it."""

HELD_BACK_MAX = 1_000
"""So many refusals wait at once in a process; more are given at once."""

HOUR_SECONDS = 3600
NAMES = ("key", "agent", "workspace")

refusals = Counted("amends_rate_refusals", "Requests refused for coming too fast.", ["limit"])
is_alone = Gauge(
    "amends_rates_alone",
    "Web processes that count rates by themselves, for Valkey is away.",
    multiprocess_mode="livesum",
)

# Each bucket is a hash: its level, when it had it (seconds, by Valkey's clock, which may be set
# back), and at which rate. Under another rate it stays as full as it was: who is told to be slower
# than before is not held for hours by what was let in.
TELL = """
local now = redis.call('TIME'); now = tonumber(now[1]) + tonumber(now[2]) / 1e6
local levels = {}
for i, key in ipairs(KEYS) do
    local spent, rate = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
    local seen = redis.call('HMGET', key, 'level', 'at', 'rate')
    local level = 0
    if seen[1] then
        level = tonumber(seen[1]) * rate / (tonumber(seen[3]) or rate)
        level = math.max(0, level - math.max(0, now - tonumber(seen[2])) * rate)
    end
    level = level + spent
    redis.call('HSET', key, 'level', tostring(level), 'at', string.format('%.6f', now))
    redis.call('HSET', key, 'rate', tostring(rate))
    redis.call('EXPIRE', key, {forget})
    levels[i] = tostring(level)
end
return levels
""".replace("{forget}", str(FORGET_SECONDS))


class TooFast(Exception):
    """We stopped because the requests of a key, an agent or a workspace come faster than they may.
    Come back after `seconds`."""

    def __init__(self, limit: str, per_minute: int, seconds: int) -> None:
        super().__init__(f"At most {per_minute} requests a minute for each {limit}.")
        self.limit, self.seconds = limit, seconds


class Bucket(NamedTuple):
    """One limit of one caller: whose it is, unmistakably, and requests a minute."""

    limit: str
    whose: str
    per_minute: int


class RateLimits(NamedTuple):
    """What an operator set for a workspace; None is what the environment says, 0 no limit."""

    key: int | None
    agent: int | None
    workspace: int | None

    def in_force(self) -> tuple[int, int, int]:
        """Requests a minute of each key, each agent, and the workspace."""
        key, agent, workspace = (
            settings.RATES[name] if own is None else own
            for name, own in zip(NAMES, self, strict=True)
        )
        return key, agent, workspace


def limits_of(workspace: Workspace) -> RateLimits:
    return RateLimits(workspace.rate_key, workspace.rate_agent, workspace.rate_workspace)


def buckets(limits: RateLimits, workspace: int, agent: str, key: str) -> list[Bucket]:
    """Those that a request fills; none where nothing is limited. A person's token has no agent."""
    named = zip(NAMES, (key, agent, ""), limits.in_force(), strict=True)
    return [
        Bucket(limit, f"{workspace}:{limit}:{whose}", rate)
        for limit, whose, rate in named
        if rate and (whose or limit == "workspace")
    ]


class BucketLevel:
    """How full one bucket is, as this process knows it."""

    __slots__ = ("at", "level", "rate", "untold")

    def __init__(self) -> None:
        self.level, self.untold, self.rate, self.at = 0.0, 0.0, 0.0, time.monotonic()

    def due(self) -> float:
        """What Valkey is to be told: of what it was not, all that has not run out meanwhile. After
        an hour without it, nobody is held for what came in that hour.
        """
        self.drain(self.rate)
        self.untold = min(self.untold, self.level)
        return self.untold

    def drain(self, rate: float) -> None:
        now = time.monotonic()
        if self.rate and rate != self.rate:
            self.level, self.untold = (one * rate / self.rate for one in (self.level, self.untold))
        self.level = max(0.0, self.level - (now - self.at) * rate)
        self.rate, self.at = rate, now


class Rates:
    """The buckets of this process, and its thread that tells Valkey of them."""

    def __init__(self) -> None:
        self._meters: dict[str, BucketLevel] = {}
        self._refused: Counter[tuple[int, str]] = Counter()
        self._lock = threading.Lock()
        self._spent = threading.Event()
        self._teller: threading.Thread | None = None
        self._is_alone = False
        self._held_back = 0

    def take(self, workspace: int, asked: Sequence[Bucket], body_bytes: int = 0) -> None:
        """Let a request in, or raise TooFast; what is refused fills no bucket."""
        if not asked:
            return
        cost = 1.0 + min(body_bytes, BODY_BYTES_MAX) // BODY_BYTES_OF_ONE
        with self._lock:
            for one in asked:
                meter = self._meters.setdefault(one.whose, BucketLevel())
                meter.drain(one.per_minute / 60)
                room = max(1.0, one.per_minute / 60 * BURST_SECONDS)
                over = meter.level + min(cost, room) - room
                if over > 0:
                    self._refused[workspace, one.whose] += 1
                    self._tell_soon()
                    refusals.labels(one.limit).inc()
                    seconds = max(1, math.ceil(over / meter.rate))
                    raise TooFast(one.limit, one.per_minute, seconds)
            for one in asked:
                meter = self._meters[one.whose]
                meter.level += cost
                meter.untold += cost
        self._tell_soon()

    async def hold_back(self) -> None:
        """Wait for the moment after which a refusal is given, unless very many do."""
        if self._held_back >= HELD_BACK_MAX:
            return
        self._held_back += 1
        try:
            await asyncio.sleep(REFUSED_AFTER_SECONDS)
        finally:
            self._held_back -= 1

    def _tell_soon(self) -> None:
        if self._teller is None or not self._teller.is_alive():
            self._teller = threading.Thread(target=self._work, name="rates", daemon=True)
            self._teller.start()
        self._spent.set()

    def _work(self) -> None:
        valkey = _valkey()
        while True:
            self._spent.wait()
            self._spent.clear()
            self._tell(valkey)
            time.sleep(TELL_SECONDS)

    def _tell(self, valkey: Any) -> None:
        with self._lock:
            told = {whose: meter.due() for whose, meter in self._meters.items() if meter.untold}
            refused, self._refused = self._refused, Counter()
            rates = {whose: self._meters[whose].rate for whose in told}
        try:
            levels = _told(valkey, told, rates, refused)
        except redis.RedisError as away:
            with self._lock:
                self._refused.update(refused)
            if not self._is_alone:
                logger.warning("Rates are counted by each process, for Valkey is away: %s", away)
            self._became_alone(really=True)
            return
        self._became_alone(really=False)
        with self._lock:
            for whose, level in levels.items():
                meter = self._meters[whose]
                meter.untold -= told[whose]
                meter.level, meter.at = level + meter.untold, time.monotonic()
            self._forget()

    def _became_alone(self, *, really: bool) -> None:
        self._is_alone = really
        is_alone.set(int(really))

    def _forget(self) -> None:
        over = time.monotonic() - FORGET_SECONDS
        for whose in [one for one, meter in self._meters.items() if meter.at < over]:
            del self._meters[whose]


def _told(
    valkey: Any,
    told: dict[str, float],
    rates: dict[str, float],
    refused: Counter[tuple[int, str]],
) -> dict[str, float]:
    """How full these buckets are for all processes together; raises RedisError."""
    hour = int(time.time()) // HOUR_SECONDS
    with valkey.pipeline(transaction=False) as line:
        for (workspace, whose), times in refused.items():
            line.hincrby(_refused_in(workspace, hour), whose, times)
            line.expire(_refused_in(workspace, hour), 2 * HOUR_SECONDS)
        values = [value for whose in told for value in (told[whose], rates[whose])]
        line.eval(TELL, len(told), *(f"amends:rate:{whose}" for whose in told), *values)
        levels = line.execute()[-1]
    return dict(zip(told, map(float, levels), strict=True))


def refused_lately(workspace: int) -> dict[tuple[str, str], int] | None:
    """How often each (limit, whose) of a workspace was refused in this hour and the one before;
    None where Valkey is away, and each process counts by itself.
    """
    hour = int(time.time()) // HOUR_SECONDS
    found: Counter[tuple[str, str]] = Counter()
    try:
        for one in (hour - 1, hour):
            for whose, times in _valkey().hgetall(_refused_in(workspace, one)).items():
                _, limit, name = whose.decode().split(":", 2)
                found[limit, name] += int(times)
    except redis.RedisError:
        return None
    return dict(found)


def _refused_in(workspace: int, hour: int) -> str:
    return f"amends:refused:{workspace}:{hour}"


def _valkey() -> Any:
    url = settings.REDIS_URL
    return redis.Redis.from_url(url, **sockets.redis(url, ANSWER_SECONDS_MAX))


rates = Rates()


def take(workspace: Workspace, agent: str, key: str) -> None:
    """Let a request of this key in, or raise TooFast; the key by its prefix."""
    asked = buckets(limits_of(workspace), workspace.pk, agent, key)
    rates.take(workspace.pk, asked)


class LimitUsage(NamedTuple):
    """One limit of a workspace, for its page: requests a minute (0: no limit), and who was refused
    by it lately, how often."""

    limit: str
    per_minute: int
    is_own: bool
    refused: list[tuple[str, int]]


class RateUsage(NamedTuple):
    """The limits of a workspace, and whether Valkey adds up what its processes let in."""

    limits: list[LimitUsage]
    is_shared: bool


def usage(workspace: Workspace) -> RateUsage:
    """What the page of the keys tells of them."""
    limits = limits_of(workspace)
    found = refused_lately(workspace.pk) if any(limits.in_force()) else {}
    named = zip(NAMES, limits, limits.in_force(), strict=True)
    told = [
        LimitUsage(name, rate, own is not None, _refused_by(name, found))
        for name, own, rate in named
    ]
    return RateUsage(told, found is not None)


def _refused_by(name: str, found: dict[tuple[str, str], int] | None) -> list[tuple[str, int]]:
    mine = [(whose, times) for (limit, whose), times in (found or {}).items() if limit == name]
    return sorted(mine, key=lambda one: -one[1])
