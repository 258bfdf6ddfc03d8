"""A failing compensation raises an alert, and does not stop the others."""

import pytest

from connectors.models import Channel, Delivery
from tests.recovery.engine.desk import advance, plan_for, states

pytestmark = pytest.mark.django_db


def test_a_step_that_fails_alerts_the_channels_of_its_workspace(case, world, outside):
    channel = Channel.objects.create(
        workspace=case.workspace, name="pager", kind="mail", subjects=["compensation.*"]
    )
    outside.seed({"b": {"v": 99}})
    plan = plan_for(case, world)

    advance(plan)

    told = Delivery.objects.get(channel=channel)
    assert states(plan) == ["verified", "drifted", "verified"]
    assert f"Step 2 of case {case.pk} needs a person" in told.message["title"]
    assert f"/w/acme/cases/{case.pk}/" in told.message["url"]
    assert "99" not in str(told.message)
