"""An agent tells the labels of its run in two ways: nothing goes by either of them."""

import pytest

from tests.approvals.door import Agent as Trip
from tests.approvals.test_fast_path import asking, hear, look_around, obey
from tests.worlds import kept

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
@kept
def trip(key, acme, ada, ben, leads):
    return Trip(key)


def test_labels_that_an_agent_told_in_two_ways_loosen_nothing(trip, acme, ada, agent):
    """Event ids are the agent's, and the smallest decides which labels its run has: so those of a
    run that was begun with two sets are none, for the usual way as for the general one.
    """
    loose = {
        "crm.update": {"when": "labels.tier == 'gold'", "approval": "AUTO"},
        "crm.*": {"approval": "MANUAL"},
    }
    obey(acme, {"policies": loose}, ada)
    look_around(agent)
    begun = {"type": "run.started", "run": "run_1"}
    trip.request(
        "POST", "/api/v1/events", [begun | {"id": "aaa", "data": {"labels": {"tier": "gold"}}}]
    )
    assert trip.begin(action="act_1", key="key-1").json()["answer"] == "proceed"
    again = asking(agent, explain=False, action="act_2", key="key-2")
    assert hear(again, fast=True).body["answer"] == "proceed"

    trip.request(
        "POST", "/api/v1/events", [begun | {"id": "zzz", "data": {"labels": {"tier": "tin"}}}]
    )

    late = asking(agent, explain=False, action="act_3", key="key-3")
    assert hear(late, fast=True) is None
    assert trip.begin(action="act_3", key="key-3").json()["answer"] == "wait"
    assert hear(asking(agent, explain=False, action="act_4", key="key-4"), fast=True) is None
