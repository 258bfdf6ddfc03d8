"""Agents that ask what the desk wants wait without a connection and hear of it at once."""

import asyncio
import threading

import pytest
from django.db import connection

from ledger.models import Run
from recovery import bells
from recovery.directives import waiters
from tests.approvals.door import visit
from tests.recovery.cases.test_resuming import directed, stopped  # noqa: F401 - the same story
from workspaces import keys

pytestmark = pytest.mark.django_db(transaction=True)

AGENTS = 300
SOONER_THAN_ASKED = 2.5  # seconds; the task that asks the database comes round every three


@pytest.fixture
def waiting(agent):
    """Many ask about a run, then it changes: what they heard, and after how long."""
    token = keys.create_key(agent, by=None, name="k")[1]

    def story(run, change, count):
        async def told(client):
            path = f"/api/v1/runs/{run}/directive?wait=30"
            headers = {"authorization": f"Bearer {token}"}
            loop = asyncio.get_running_loop()
            asked = [loop.create_task(client.get(path, headers=headers)) for _ in range(count)]
            while waiters.count < count:  # noqa: ASYNC110 - nobody rings when somebody begins to wait
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.3)
            began, act = loop.time(), in_another_process(change)
            said = await asyncio.gather(*asked)
            act.join()
            return [one.json()["directive"] for one in said], loop.time() - began

        return visit(told)

    return story


def in_another_process(change):
    def act():
        try:
            change()
        finally:
            connection.close()

    thread = threading.Thread(target=act)
    thread.start()
    return thread


def test_three_hundred_agents_wait_on_four_connections_and_hear_at_once(waiting, stopped, ada):  # noqa: F811
    checkpoint = stopped.row.checkpoints.get()
    stopped.case()

    said, seconds = waiting("run_1", lambda: directed(stopped, ada, checkpoint=checkpoint), AGENTS)

    assert [one["kind"] for one in said] == ["resume"] * AGENTS
    assert seconds < SOONER_THAN_ASKED
    assert waiters.count == 0


def test_a_lost_message_costs_seconds_and_no_more(waiting, tell, monkeypatch):
    tell()
    monkeypatch.setattr(bells, "DIRECTIVES", "somewhere else")

    said, _ = waiting("run_1", lambda: Run.objects.update(held_by="case 7"), 1)

    assert said[0]["kind"] == "stop"
