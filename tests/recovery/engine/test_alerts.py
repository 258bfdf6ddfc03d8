"""A failing compensation raises an alert, and does not stop the others."""

import pytest

from connectors.models import Channel, Delivery
from recovery.casework import settling
from tests.recovery.engine.desk import advance, plan_for, states

pytestmark = pytest.mark.django_db


@pytest.fixture
def pager(case):
    return Channel.objects.create(
        workspace=case.workspace, name="pager", kind="mail", subjects=["compensation.*"]
    )


def test_a_compensation_that_is_refused_for_good_alerts_once_and_the_others_go_on(
    case, world, outside, pager
):
    for _ in range(3):
        outside.mischief("b", refuse="not today")
    plan = plan_for(case, world)

    advance(plan)

    told = Delivery.objects.get(channel=pager)
    assert states(plan) == ["verified", "needs_human", "verified"]
    assert "422" in told.message["text"]


def test_an_outcome_that_nobody_can_find_out_alerts(case, world, outside, pager):
    outside.mischief("b", fail_after=1)
    plan = plan_for(case, world, {"a": "restore", "b": "mail", "c": "restore"})

    advance(plan)

    assert states(plan) == ["verified", "needs_human", "verified"]
    assert "look, and say what you found" in Delivery.objects.get(channel=pager).message["text"]


def test_a_step_that_fails_alerts_the_channels_of_its_workspace(case, world, outside, pager):
    outside.seed({"b": {"v": 99}})
    plan = plan_for(case, world)

    advance(plan)

    told = Delivery.objects.get(channel=pager)
    assert states(plan) == ["verified", "drifted", "verified"]
    assert f"Step 2 of case {case.pk} needs a person" in told.message["title"]
    assert f"/w/acme/cases/{case.pk}/" in told.message["url"]
    assert "'99'" not in str(told.message)


def test_a_step_that_comes_back_to_people_after_their_word_alerts_anew(
    case, world, outside, pager, ada
):
    """It was sent once, so neither its fence nor its tries tell the second time from the first."""
    outside.mischief("b", fail_after=1)
    plan = plan_for(case, world, {"a": "restore", "b": "mail", "c": "restore"})
    advance(plan)
    plan.steps.filter(position=2).update(
        operation="charge_blindly", post_condition={"exists": True, "fields": {"v": 1}}
    )
    outside.seed({"b": {"v": 99}})
    case.refresh_from_db()

    step = plan.steps.get(position=2)
    settling.decide_step(step, way="applied", words="I saw it", by=ada, seen=case.revision)
    advance(plan)

    assert states(plan) == ["verified", "needs_human", "verified"]
    texts = [one.message["text"] for one in Delivery.objects.filter(channel=pager).order_by("pk")]
    assert len(texts) == 2
    assert "read back" in texts[1]
