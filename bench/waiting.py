"""A thousand agents that wait for people, and two hundred open consoles, on one web process.

    python -m bench waiting

gives `waiters_p95_ms`: everything settled, a person decides, until the agent has its answer; and
`storm_s`: all agents come back at once, until the process says that all of them wait again; and
`waiters_beside_p95_ms`: the first once more, while 5,000 events a second come in as batches. Each
console asks for news every two seconds and says what it has heard, as its page does; half stand on
the queue, half on the inbox. Decisions are made in a process of their own, as if on another
machine.
"""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

from bench.ingest import BATCHES_PER_S
from bench.servers import Desk, p95

AGENTS, CONSOLES, DECISIONS = 1_000, 200, 100
SMALL = 10  # one in ten of each
OPEN_PER_AGENT = 20  # the gate's own limit
STORMS = 3
DECIDE_EVERY_SECONDS = 0.1
POLL_SECONDS = 2.0
SETTLE_SECONDS = 5.0
WAIT_SECONDS_MAX = 120.0
# Of the batches that are meant to come in beside, so many must.
RATE_SHARE_MIN = 0.95
POLICY = "policies: {pay.*: {approval: MANUAL, expires: 8h}}"


@dataclass
class Waiting:
    """Who waits for what: the key that asked and the approval; and two people's cookies."""

    asked: list[tuple[str, int]]
    cookies: list[str]
    ben: Any
    batches_token: str


def prepare(count: int) -> Waiting:
    """As many open questions, each asked at the gate by an agent of at most twenty."""
    import django

    django.setup()
    from approvals import versions
    from bench.generate import cast, cookie_of
    from workspaces import keys
    from workspaces.models import Agent

    made = cast()
    versions.activate(versions.save(made.workspace, POLICY, by=made.ada), by=made.ada)
    asked: list[tuple[str, int]] = []
    while len(asked) < count:
        agent = Agent.objects.create(workspace=made.workspace, name=f"payer-{len(asked)}")
        token = keys.create_key(agent, by=None, name="bench")[1]
        asked += [(token, ask(agent, number)) for number in range(OPEN_PER_AGENT)]
    sender = Agent.objects.create(workspace=made.workspace, name="sender")
    batches_token = keys.create_key(sender, by=None, name="bench")[1]
    cookies = [cookie_of(made.ada), cookie_of(made.ben)]
    return Waiting(asked[:count], cookies, made.ben, batches_token)


def ask(agent: Any, number: int) -> int:
    """Put one payment to people, as the gate does it; the approval's id."""
    from approvals.gate import slow_path
    from approvals.gate.begin_request import parse
    from ledger.parsed_events import Actor, new_id

    here = agent.workspace
    actor = Actor(here.pk, here.slug, "agent", agent.name, agent.pk, "bench")
    data = {"tool": "pay.card", "args": {"amount": number}, "class": "external_irreversible",
            "targets": [{"type": "card", "id": f"{agent.pk}-{number}"}]}  # fmt: skip
    event = {"id": new_id(), "type": "action.planned", "run": f"run-{agent.pk}",
             "action": f"act-{number}", "attempt": "a1", "data": data}  # fmt: skip
    reply = slow_path.begin(parse(json.dumps(event).encode(), actor, explain=False))
    assert isinstance(reply.body, dict), reply
    return int(reply.body["approval"])


class Crowd:
    """Connections that each ask one thing at a time and read the whole answer."""

    def __init__(self, url: str, figures: Path) -> None:
        parts = urlsplit(url)
        self.figures = figures
        self.host, self.port = str(parts.hostname), int(parts.port or 80)
        self.heard: dict[int, float] = {}
        self.polls: list[float] = []

    async def get(self, reader: Any, writer: Any, path: str, headers: str) -> tuple[int, bytes]:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)^content-length: (\d+)", head, re.MULTILINE)
        body = await reader.readexactly(int(length[1])) if length else b""
        return int(head.split(b" ", 2)[1]), body

    async def agent(self, token: str, approval: int) -> None:
        """Wait until the decision is known, asking again as often as the time is over."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            state = "waiting"
            while state == "waiting":
                path = f"/api/v1/approvals/{approval}?wait=60"
                bearer = f"Authorization: Bearer {token}\r\n"
                status, body = await self.get(reader, writer, path, bearer)
                assert status == 200, body
                state = json.loads(body)["state"]
            self.heard[approval] = time.perf_counter()
        finally:
            writer.transport.abort()

    async def console(self, number: int, count: int, cookie: str) -> None:
        """A page left open: every two seconds it asks what is new."""
        await asyncio.sleep(POLL_SECONDS * number / count)
        since = quote(time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()))
        page = "queue" if number % 2 else "approvals"
        path = drawn = f"/w/bench/{page}/fresh/?since={since}"
        reader, writer = await asyncio.open_connection(self.host, self.port)
        while True:
            begun = time.perf_counter()
            status, body = await self.get(reader, writer, path, f"Cookie: {cookie}\r\n")
            assert status in {200, 204}, status
            if status == 200:
                path = f"{drawn}&heard={quote(json.loads(body)['heard'])}"
            self.polls.append(time.perf_counter() - begun)
            await asyncio.sleep(POLL_SECONDS)

    def waiting(self) -> int:
        """How many agents wait, as the web's processes say. What they share is read, and not asked
        for as a page: to write that takes them as long as a tenth of a storm.
        """
        registry = CollectorRegistry()
        MultiProcessCollector(registry, str(self.figures))  # type: ignore[no-untyped-call]
        return int(registry.get_sample_value("amends_waiting_agents") or 0)

    async def until_waiting(self, count: int) -> None:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while self.waiting() != count:
            assert time.monotonic() < deadline, "they do not all wait"
            await asyncio.sleep(0.02)


async def storm(crowd: Crowd, agents: dict[int, Any], tokens: dict[int, str]) -> float:
    """All connections break; when the process knows, all come back. Seconds until all wait."""
    for task in agents.values():
        task.cancel()
    await asyncio.gather(*agents.values(), return_exceptions=True)
    await crowd.until_waiting(0)
    begun = time.perf_counter()
    agents.update({one: asyncio.create_task(crowd.agent(tokens[one], one)) for one in agents})
    await crowd.until_waiting(len(agents))
    return time.perf_counter() - begun


async def decisions(crowd: Crowd, ben: Any, approvals: list[int]) -> list[float]:
    """Ben decides them one after the other; seconds from his word to each agent's answer."""
    took = []
    for approval in approvals:
        begun = time.perf_counter()
        await asyncio.to_thread(decide, approval, ben)
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while approval not in crowd.heard:
            assert time.monotonic() < deadline, "an agent was not told"
            await asyncio.sleep(0.005)
        took.append(crowd.heard[approval] - begun)
        await asyncio.sleep(DECIDE_EVERY_SECONDS)
    return took


def decide(pk: int, ben: Any) -> None:
    from approvals import inbox
    from approvals.models import Approval

    approval = Approval.objects.get(pk=pk)
    inbox.grant(approval, by=ben, seen=approval.digest)


@asynccontextmanager
async def batches_beside(url: str, token: str) -> AsyncIterator[list[float]]:
    """While it is open, events come in as batches (bench/ingest.py); once it is over, the list has
    how many a second. Consoles and agents go on meanwhile, so nothing here blocks.
    """
    rates: list[float] = []
    sender = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore", "-m", "bench.ingest", url, token,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert sender.stdin is not None
    assert sender.stdout is not None
    try:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            assert await sender.stdout.readline() == b"ready\n", "no batches come in"
        sender.stdin.write(b"go\n")
        await asyncio.sleep(SETTLE_SECONDS)
        yield rates
        sender.stdin.close()
        rates.append(float(await sender.stdout.read()))
        assert await sender.wait() == 0
    finally:
        if sender.returncode is None:
            sender.kill()
            await sender.wait()


async def measured(
    url: str, figures: Path, desk: Waiting, consoles: int, decided: int
) -> dict[str, float]:
    crowd = Crowd(url, figures)
    tokens = {approval: token for token, approval in desk.asked}
    open_pages = [
        asyncio.create_task(crowd.console(number, consoles, desk.cookies[number // 2 % 2]))
        for number in range(consoles)
    ]
    agents = {one: asyncio.create_task(crowd.agent(tokens[one], one)) for one in tokens}
    await crowd.until_waiting(len(agents))
    storms = [await storm(crowd, agents, tokens) for _ in range(STORMS)]
    await asyncio.sleep(SETTLE_SECONDS)
    crowd.polls.clear()
    took = await decisions(crowd, desk.ben, list(tokens)[:decided])
    polls = list(crowd.polls)
    async with batches_beside(url, desk.batches_token) as rates:
        beside = await decisions(crowd, desk.ben, list(tokens)[decided : 2 * decided])
    for task in [*open_pages, *agents.values()]:
        if task.done() and not task.cancelled() and (failed := task.exception()):
            raise failed
        task.cancel()
    await asyncio.gather(*open_pages, *agents.values(), return_exceptions=True)
    found = {"waiters_beside_batches_per_s": rates[0]}
    if rates[0] >= RATE_SHARE_MIN * BATCHES_PER_S:  # fewer would be something easier
        found["waiters_beside_p95_ms"] = round(1_000 * p95(beside), 1)
    return found | {
        "waiters_p95_ms": round(1_000 * p95(took), 1),
        "waiters_p50_ms": round(1_000 * sorted(took)[len(took) // 2], 1),
        "storm_s": round(sorted(storms)[STORMS // 2], 2),
        "console_poll_p95_ms": round(1_000 * p95(polls), 1),
    }


def waiting(running: Desk, *, small: bool) -> dict[str, float]:
    share = SMALL if small else 1
    desk = prepare(AGENTS // share)
    running.start_web()
    [figures] = running.folder.glob("amends-figures-*")
    return asyncio.run(measured(running.url, figures, desk, CONSOLES // share, DECISIONS // share))
