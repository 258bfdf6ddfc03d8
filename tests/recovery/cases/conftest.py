"""The cast: Ada recovers, Ben and Cleo approve, Dev is from elsewhere, Eve is the end user.

Our models are imported inside the fixtures, for this file is read before Django is set up.
"""

import pytest

from tests import people, worlds
from tests.connectors import conftest as outside
from tests.worlds import kept, quiet

acme, globex, operators, leads = people.acme, people.globex, people.operators, people.leads
ada, ben, cleo, dev, finn = people.ada, people.ben, people.cleo, people.dev, people.finn
outbound = outside.outbound
shop = outside.shop
shop_connection, shop_allowed = outside.shop_connection, outside.shop_allowed
shop_url = outside.shop_url
kept_world = worlds.kept_world

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
@kept
def agent(acme):
    from workspaces.models import Agent

    return Agent.objects.create(workspace=acme, name="ticket-desk")


@pytest.fixture
@quiet
def desk(client, ada):
    """A browser without scripts in which Ada works."""
    client.force_login(ada)
    return client


@pytest.fixture
@kept
def nils(operators):
    return people.person("nils", operators)


@pytest.fixture
@kept
def alma(acme):
    return people.person("alma", people.team(acme, "keepers", "view", "administer"))


@pytest.fixture
@kept(in_turn=True)
def policy(acme, ben, cleo):
    from approvals import versions

    return versions.activate(versions.save(acme, POLICY, by=None), by=None)


@pytest.fixture
@quiet
def begin_run(agent, policy):
    """Begin a run of the agent: `begin_run("run_1")`."""
    from tests.recovery.cases.cast import AgentRun

    return lambda run="run_1", **more: AgentRun(agent, run, **more).begins()


@pytest.fixture
@kept(in_turn=True)
def ticket(shop, shop_connection):
    """Ticket T-182 as it stood before any agent came."""
    from tests.recovery.cases.cast import stands

    row = {"world": "main", "id": "T-182", "priority": "normal", "assignee": "Nora"}
    stands(shop, row)
    return row


@pytest.fixture
@kept(in_turn=True)
def raised(begin_run, shop, ticket):
    """A run that set T-182 from normal to high, and whose verification failed."""
    run = begin_run()
    high = ticket | {"priority": "high"}
    shop.execute("UPDATE tickets SET priority = 'high', version = version + 1")
    action = run.does("tickets.update", ("ticket", "main/T-182", ticket, high))
    run.is_verified(action, ok=False)
    run.ends()
    return run


@pytest.fixture
@kept(in_turn=True)
def case(raised):
    return raised.case()


@pytest.fixture
@quiet
def raises(begin_run, shop, ticket):
    """A run that raised a ticket of its own and goes on: `raises(2)` is run_2 with T-2."""
    from tests.recovery.cases.cast import stands

    def begin(number):
        row = ticket | {"id": f"T-{number}"}
        high = row | {"priority": "high"}
        stands(shop, high)
        run = begin_run(f"run_{number}")
        run.does("tickets.update", ("ticket", f"main/{row['id']}", row, high))
        return run

    return begin


@pytest.fixture
@kept(in_turn=True)
def three(raises):
    """Three runs that each raised a ticket and failed; the third's last call is unknown."""
    for number in (1, 2, 3):
        run = raises(number)
        if number == 3:
            run.plans("tickets.update", ("ticket", "main/T-9"))
        run.ends("failed")
    from recovery.models import Case
    from recovery.triage import triage

    triage.look()
    return list(Case.objects.order_by("run__run"))


@pytest.fixture
@kept(in_turn=True)
def lost(raised, shop, ada):
    """A step that was sent, and of which nobody knows what became."""
    from recovery.models import Step, StepState
    from recovery.triage import triage
    from tests.recovery.cases.cast import submitted
    from tests.recovery.engine import by_hand

    case = raised.case()
    plan = submitted(case, ada)
    shop.execute("UPDATE tickets SET assignee = 'Finn', version = version + 1")
    by_hand.advance(plan.pk)
    Step.objects.update(was=StepState.UNKNOWN, state=StepState.NEEDS_HUMAN, drift=None)
    shop.execute("UPDATE tickets SET assignee = 'Nora'")
    triage.look([case.run_id])
    case.refresh_from_db()
    return case


@pytest.fixture
@kept(in_turn=True)
def stopped(begin_run):
    """A trip whose hotel could not be booked: a flight before the checkpoint, a note after it."""
    run = begin_run()
    run.does("flights.book", ("booking", "B-1", None, {"flight": "SK1"}))
    run.n += 1
    run.send(
        "run.checkpoint",
        name="flight booked",
        state={"booking": "B-1"},
        completed=["act_1"],
        pending=["send_receipt"],
        instructions="Book the hotel next",
    )
    run.does("notes.add", ("note", "N-1", None, {"text": "SK1"}))
    run.fails("hotels.book")
    run.ends("failed")
    return run
