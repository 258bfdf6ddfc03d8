"""The cast: Ada recovers, Ben and Cleo approve, Dev is from elsewhere, Eve is the end user.

Our models are imported inside the fixtures, for this file is read before Django is set up.
"""

import pytest

from tests import people
from tests.connectors import conftest as outside

acme, globex, operators, leads = people.acme, people.globex, people.operators, people.leads
ada, ben, cleo, dev, finn = people.ada, people.ben, people.cleo, people.dev, people.finn
outbound = outside.outbound
shop = outside.shop
shop_connection = outside.shop_connection
shop_url = outside.shop_url

POLICY = """
agentSafety:
  tools:
    "tickets.*":       {class: internal_update}
    "tickets.read":    {class: read_only}
    "users.*":         {class: internal_update}
    "mail.send":       {class: external_irreversible}
    "cards.charge":    {class: external_reversible}
  policies:
    "tickets.*":       {risk: LOW, approval: AUTO, compensation: SNAPSHOT}
    "users.*":         {risk: HIGH, approval: AUTO}
    "mail.send":       {risk: HIGH, approval: AUTO}
    "repos.delete":    {risk: CRITICAL, approval: MANUAL}
    "shop.restore_row":
      - {when: "target.type == 'customers'", risk: HIGH, approval: MANUAL,
         requires: [{group: leads}]}
      - {risk: LOW, approval: AUTO}
  twins:
    "tickets.*":       {connection: shop, operation: restore_row, args: {to: before}}
    "users.*":         {connection: shop, operation: restore_row, args: {to: before}}
  due: {low: 3d, high: 4h}
"""


@pytest.fixture
def agent(acme):
    from workspaces.models import Agent

    return Agent.objects.create(workspace=acme, name="ticket-desk")


@pytest.fixture
def policy(acme, ben, cleo):
    from approvals import versions

    return versions.activate(versions.save(acme, POLICY, by=None), by=None)


@pytest.fixture
def tell(agent, policy):
    """Begin a run of the agent: `tell("run_1")`."""
    from tests.recovery.cases.cast import Told

    return lambda run="run_1", **more: Told(agent, run, **more).begins()


@pytest.fixture
def ticket(shop, shop_connection):
    """Ticket T-182 as it stood before any agent came."""
    shop.execute(
        "INSERT INTO tickets (world, id, priority, assignee)"
        " VALUES ('main', 'T-182', 'normal', 'Nora')"
    )
    return {"world": "main", "id": "T-182", "priority": "normal", "assignee": "Nora"}


@pytest.fixture
def raised(tell, shop, ticket):
    """A run that set T-182 from normal to high, and whose verification failed."""
    run = tell()
    high = ticket | {"priority": "high"}
    shop.execute("UPDATE tickets SET priority = 'high', version = version + 1")
    action = run.does("tickets.update", ("ticket", "main/T-182", ticket, high))
    run.is_verified(action, ok=False)
    run.ends()
    return run
