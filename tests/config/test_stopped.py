"""A process that stopped is told on the pages, for when the watch has stopped with it."""

from datetime import timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext

from config.health import expected
from tests import people
from workspaces import periodic
from workspaces.models import Heartbeat, User, Workspace

pytestmark = pytest.mark.django_db
acme, operators, leads, ada, cleo = (
    people.acme,
    people.operators,
    people.leads,
    people.ada,
    people.cleo,
)


@pytest.fixture
def going(acme: Workspace) -> None:
    for name in expected():
        periodic.beat(name, every_seconds=5.0)


def stop(*names: str) -> None:
    Heartbeat.objects.filter(pk__in=names).update(beat_at=Now() - timedelta(minutes=5))


def queue(client: Client, person: User) -> str:
    client.force_login(person)
    return client.get("/w/acme/queue/").content.decode()


def test_while_all_go_nothing_is_said_and_it_costs_one_statement(
    client: Client, going: None, ada: User
) -> None:
    with CaptureQueriesContext(connection) as asked:
        page = queue(client, ada)

    assert "has stopped since" not in page
    assert "cannot be reached" not in page
    assert len([one for one in asked if "workspaces_heartbeat" in one["sql"]]) == 1


@pytest.mark.parametrize("name", ["scheduler", "worker"])
def test_one_that_stopped_is_told_to_who_recovers(
    client: Client, going: None, ada: User, cleo: User, name: str
) -> None:
    stop(name)

    page = queue(client, ada)

    assert f"The {name} has stopped since" in page
    assert "nobody is told of it by message" not in page
    assert "has stopped since" not in queue(client, cleo)  # who only decides


def test_when_scheduler_and_sweeper_are_both_gone_the_page_says_that_nobody_is_told(
    client: Client, going: None, ada: User, cleo: User
) -> None:
    stop("scheduler", "sweeper")

    page = queue(client, ada)

    assert "The scheduler has stopped since" in page
    assert "nobody is told of it by message" in page
    assert "The engine cannot be reached since" in page
    assert "The engine cannot be reached since" in queue(client, cleo)
