"""What is over is decided by the database's clock; a machine's own may be wrong."""

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from workspaces import clock, entrance, keys
from workspaces.models import Agent

pytestmark = pytest.mark.django_db


@pytest.fixture(params=[timedelta(hours=1), -timedelta(hours=1)], ids=["ahead", "behind"])
def wrong_clock(request, monkeypatch):
    """The machine's clock is off; gives the right time."""
    right = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: right() + request.param)
    return right


def test_keys_and_tokens_end_by_the_databases_clock(airline, ada, wrong_clock):
    agent = Agent.objects.create(workspace=airline, name="desk", owner=ada)
    soon, just_now = wrong_clock() + timedelta(minutes=5), wrong_clock() - timedelta(minutes=5)

    for moment, opens in ((soon, True), (just_now, False), (None, True)):
        _, agents = keys.create_key(agent, by=ada, name="k", expires_at=moment)
        _, persons = keys.create_token(airline, by=ada, name="t", expires_at=moment)
        assert (keys.agent_of(agents) is not None) == opens
        assert (keys.person_of(persons) is not None) == opens


def test_an_invitation_made_under_a_wrong_clock_lasts_its_week(airline, ada, wrong_clock):
    token = entrance.invite(airline, "ben@example.com", [], by=ada)

    left = entrance.standing_invitation(token).expires_at - wrong_clock()

    assert abs(left - timedelta(days=7)) < timedelta(minutes=1)


def test_the_time_is_told_without_asking_each_time(wrong_clock, monkeypatch):
    asked: list[int] = []
    ask = clock._ask

    def counted():
        asked.append(1)
        return ask()

    monkeypatch.setattr(clock, "_asked", {})
    monkeypatch.setattr(clock, "_ask", counted)

    times = [clock.now() for _ in range(100)]

    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        assert abs(cursor.fetchone()[0] - times[-1]) < timedelta(seconds=5)
    assert times == sorted(times)
    assert len(asked) == 1
