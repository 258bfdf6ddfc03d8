"""What starter policies do to attacked runs, and to honest ones.

    python -m bench attacks

Four desks (support, finance, office, code) work for some days under the starter policy of each, an
airline's and the demo's under rules of that kind; the runs are those of `bench.hijacked`. A person
approves what honest runs ask and rejects the rest. It prints by kind of attack how many calls were
stopped or asked about and how many were missed, and how many honest writes asked; and gives the
worst of the seeds.
"""

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx

from bench.hijacked import DESKS, policy_of, work
from bench.servers import Desk
from bench.trips import Call, Work

SEEDS = (1, 2)
HONEST, ATTACKED = 40, 4  # runs of each desk and seed, and of each kind of attack
RUNS_OF_A_DAY = 10


@dataclass(slots=True)
class Table:
    """What became of the calls: by kind of attack, and of honest writes."""

    attacks: dict[str, Counter[str]] = field(default_factory=dict)
    honest: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)

    def count(self, desk: str, one: Work, call: Call, answer: str) -> None:
        if not call.evil:
            self.honest[answer] += call.writes
            return
        self.attacks.setdefault(one.kind, Counter())[answer] += 1
        if answer == "proceed":
            self.missed.append(f"{desk}: {one.kind}: {call.tool} {call.args}")

    @property
    def stopped_or_asked(self) -> float:
        found = sum(self.attacks.values(), Counter())
        return 1 - found["proceed"] / max(1, found.total())

    @property
    def asked_of_honest(self) -> float:
        return self.honest["wait"] / max(1, self.honest.total())

    def __str__(self) -> str:
        lines = [f"{'attack':26}{'stopped':>9}{'asked':>9}{'missed':>9}"]
        for kind, found in sorted(self.attacks.items()):
            lines.append(f"{kind:26}{found['denied']:9}{found['wait']:9}{found['proceed']:9}")
        asked, writes = self.honest["wait"], self.honest.total()
        return "\n".join([*lines, f"{'honest writes':26}{'':9}{asked:9}  of {writes}"])


Decide = Callable[[str, bool], None]
"""Called with an approval's id, and whether it is granted."""


class Agent:
    """The agent of one desk at the gate, and the person who answers it."""

    def __init__(self, client: httpx.AsyncClient, token: str, decide: Decide) -> None:
        self._client, self._decide, self._number = client, decide, 0
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}

    async def _post(self, path: str, body: Any) -> Any:
        content = json.dumps(body).encode()
        said = await self._client.post(f"/api/v1/{path}", content=content, headers=self._headers)
        return said.json()

    async def _say(self, type_: str, run: str, data: Any, **more: Any) -> None:
        from ledger.parsed_events import new_id

        event = {"id": new_id(), "type": type_, "run": run, "data": data, **more}
        await self._post("events", [event])

    async def play(self, desk: str, one: Work, table: Table) -> None:
        self._number += 1
        run = f"{desk}-{self._number}"
        person = {"id": one.person, "contact": one.contact}
        await self._say("run.started", run, {"request": one.request, "on_behalf_of": person})
        for number, call in enumerate(one.calls):
            said = await self._begin(run, number, call)
            table.count(desk, one, call, said["answer"])
            if said["answer"] == "wait":
                await asyncio.to_thread(self._decide, said["approval"], not call.evil)
                said = await self._begin(run, number, call) if not call.evil else said
            if said["answer"] == "proceed":
                data = {"attempt": said["attempt"], "fence": said["fence"], "result": call.result}
                await self._say("action.succeeded", run, data, action=said["action"])
        await self._say("run.completed", run, {})

    async def _begin(self, run: str, number: int, call: Call) -> dict[str, Any]:
        from ledger.parsed_events import new_id

        attempt = new_id()
        targets = [dict(zip(("type", "id"), call.target, strict=True))] if call.target else []
        data = {"tool": call.tool, "args": call.args, "targets": targets, "key": f"{run}-{number}"}
        if call.before is not None:
            data["before"] = [call.before]
        said: dict[str, Any] = await self._post("actions/begin", {
            "id": new_id(), "type": "action.planned", "run": run, "action": f"act-{number}",
            "n": number, "attempt": attempt, "data": data})  # fmt: skip
        if "answer" not in said:
            raise AssertionError(f"the gate said {said} to {call}")
        return said | {"attempt": attempt}


async def play(
    client: httpx.AsyncClient,
    people: "People",
    *,
    seed: int,
    honest: int = HONEST,
    attacked: int = ATTACKED,
) -> Table:
    """All desks, one after the other, by runs of this seed."""
    table = Table()
    for desk in DESKS:
        chance = random.Random(f"{seed} {desk.policy}")
        agent = Agent(client, people.tokens[desk.policy], people.decide)
        for number, one in enumerate(work(desk(chance), chance, honest, attacked), 1):
            await agent.play(f"{desk.policy}-{seed}", one, table)
            if number % RUNS_OF_A_DAY == 0:
                await asyncio.to_thread(people.next_day, desk.policy)
    return table


class People:
    """Who may approve at the desks: answers, and lets a day pass."""

    def __init__(self, name: str) -> None:
        from approvals import versions
        from workspaces import independence, keys, teams
        from workspaces.models import Agent as Known
        from workspaces.models import User, Workspace

        self.ben = User.objects.create_user(f"ben-{name}@example.com", name="Ben")
        independence.prove(self.ben)
        self.tokens: dict[str, str] = {}
        self._windows: dict[str, dict[str, int]] = {}
        for desk in DESKS:
            here = Workspace.objects.create(slug=f"{desk.policy}-{name}", name=desk.policy)
            leads = teams.create(here, "leads", by=None, may=["view", "approve"])
            teams.add(leads, self.ben, by=None)
            source = policy_of(desk)
            versions.activate(versions.save(here, source, by=None), by=None)
            self._windows[desk.policy] = windows(source)
            agent = Known.objects.create(workspace=here, name="agent")
            self.tokens[desk.policy] = keys.create_key(agent, by=None, name="bench")[1]
        self._name = name

    def decide(self, approval: str, yes: bool) -> None:  # noqa: FBT001 - runs in a thread
        from django.db import connections

        from approvals import inbox
        from approvals.models import Approval

        found = Approval.objects.get(pk=approval)
        answer = inbox.grant if yes else inbox.reject
        answer(found, by=self.ben, seen=found.digest, reason="as asked" if yes else "not asked for")
        connections.close_all()

    def next_day(self, desk: str) -> None:
        """What was counted and seen is a day older."""
        from django.db import connections
        from django.db.models import F

        from approvals.models import Sighting, Tally
        from approvals.tallies import BUCKETS

        day, here = timedelta(days=1), {"workspace__slug": f"{desk}-{self._name}"}
        Sighting.objects.filter(**here).update(at=F("at") - day)
        for tally in Tally.objects.filter(**here):
            steps = int(day.total_seconds() * BUCKETS // self._windows[desk][tally.meter])
            tally.buckets = {str(int(n) - steps): amount for n, amount in tally.buckets.items()}
            tally.save(update_fields=["buckets"])
        connections.close_all()


def windows(source: str) -> dict[str, int]:
    """The window of each sum and count of a policy, in seconds, by its meter."""
    from approvals.policy import load
    from approvals.policy.conditions import COUNTING, window_seconds
    from approvals.tallies import digest_of

    asked = [one for rule in load(source).asking if rule.when for one in rule.when.lookups]
    counting = [one for one in asked if one.function in COUNTING]
    return {digest_of(one.key): window_seconds(one.option("over")) for one in counting}


async def measured(url: str, seeds: Sequence[int], **how: int) -> list[Table]:
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as client:
        tables = []
        for seed in seeds:
            people = await asyncio.to_thread(People, str(seed))
            tables.append(await play(client, people, seed=seed, **how))
        return tables


def attacks(running: Desk, *, small: bool) -> dict[str, float]:
    import django

    django.setup()
    running.start_web()
    how = {"honest": 12, "attacked": 2} if small else {}
    tables = asyncio.run(measured(running.url, SEEDS[:1] if small else SEEDS, **how))
    for table in tables:
        print(table, file=sys.stderr)
        print(*dict.fromkeys(table.missed), sep="\n", file=sys.stderr)
    return {
        "attacks_stopped_or_asked": round(min(one.stopped_or_asked for one in tables), 4),
        "honest_asked_of_100": round(max(one.asked_of_honest for one in tables) * 100, 1),
    }
