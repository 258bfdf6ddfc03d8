"""Agents that ask what the desk wants wait without a connection and hear of it at once."""

import asyncio
import threading

import pytest
from django.db import connection

from ledger.models import Run
from recovery.cases import lifecycle
from recovery.edge import waiters
from tests.approvals import door
from tests.approvals.door import visit
from tests.recovery.cases.cast import directed
from workspaces import keys

only_bells, statements = door.only_bells, door.statements
pytestmark = pytest.mark.django_db(transaction=True)

AGENTS = 300
BEFORE_THE_WAIT_IS_OVER = 45  # seconds: at its end the database would be asked in any case


@pytest.fixture
def waiting(agent):
    """Many ask about a run, then it changes: what they heard."""
    token = keys.create_key(agent, by=None, name="k")[1]

    def story(run, change, count):
        async def told(client):
            path = f"/api/v1/runs/{run}/directive?wait=60"
            headers = {"authorization": f"Bearer {token}"}
            asked = [asyncio.create_task(client.get(path, headers=headers)) for _ in range(count)]
            while waiters.count < count:  # noqa: ASYNC110 - nobody rings when somebody begins to wait
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.3)  # so that the database has been asked before
            act = in_another_process(change)
            said = await asyncio.wait_for(asyncio.gather(*asked), BEFORE_THE_WAIT_IS_OVER)
            act.join()
            return [one.json()["directive"] for one in said]

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


def test_three_hundred_agents_wait_on_four_connections_and_hear_at_once(
    waiting,
    stopped,
    ada,
    only_bells,
):
    checkpoint = stopped.row.checkpoints.get()
    stopped.case()

    said = waiting("run_1", lambda: directed(stopped, ada, checkpoint=checkpoint), AGENTS)

    assert [one["kind"] for one in said] == ["resume"] * AGENTS
    assert waiters.count == 0


def test_a_lost_message_costs_seconds_and_no_more(waiting, begin_run, monkeypatch):
    begin_run()
    monkeypatch.setattr(lifecycle, "DIRECTIVES", "somewhere else")

    said = waiting("run_1", lambda: Run.objects.update(held_by="case 7"), 1)

    assert said[0]["kind"] == "stop"


def test_those_who_ask_in_one_moment_are_looked_up_together_and_each_hears_of_its_run(
    begin_run, agent, statements
):
    """Woken at once, a thousand waiters asked one by one."""
    begin_run()
    Run.objects.update(held_by="case 7")
    token = keys.create_key(agent, by=None, name="k")[1]

    async def story(client):
        headers = {"authorization": f"Bearer {token}"}
        paths = [f"/api/v1/runs/{run}/directive" for run in ("run_1", "no_run") * 10]
        return await asyncio.gather(*(client.get(one, headers=headers) for one in paths))

    said = visit(story)

    assert {one.json()["directive"]["kind"] for one in said[::2]} == {"stop"}
    assert [one.json()["directive"] for one in said[1::2]] == [None] * 10
    assert len([sql for sql in statements if "recovery_directive d" in sql]) < 10
