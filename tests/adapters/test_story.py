"""An agent acts three times and the third call fails: a person agrees, and the outside is restored.

The whole way with every framework: its own agent, the desk, a worker, and a licence service.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.adapters.conftest import FRAMEWORKS, each
from tests.connectors import conftest as outside
from tests.crash.oracle import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]
outsides = outside.outsides
licences = outside.licences
POLICY = """
agentSafety:
  tools:
    "look_up": {class: read_only}
  policies:
    "assign_licence": {risk: LOW, approval: AUTO, compensation: DELETE}
    "send_welcome":   {risk: LOW, approval: AUTO}
    "licences.*":     {risk: HIGH, approval: MANUAL}
  twins:
    "assign_licence": {connection: licences, operation: release_licence, args: {}}
"""
ENVIRONMENT = {"AMENDS_OUTBOUND_ALLOW": "127.0.0.1"}


@pytest.fixture
def people(northwind, token, licences):
    """Ada recovers, Ben approves; the licence service is connected and its twin declared."""
    from approvals import versions
    from connectors import connections
    from workspaces import independence, teams
    from workspaces.models import User

    ada = User.objects.get(name="Ada")
    ben = User.objects.create_user("ben@northwind.example", name="Ben")
    teams.add(teams.create(northwind, "recovery", by=None, may=["view", "recover"]), ada, by=None)
    teams.add(teams.create(northwind, "finance", by=None, may=["view", "approve"]), ben, by=None)
    independence.prove(ben)
    versions.activate(versions.save(northwind, POLICY, by=ada), by=ada)
    declared = {"title": "Release the licence", "args": {}, "leaves": "gone"}
    settings = {"url": licences.at["url"], "operations": {"release_licence": declared}}
    connection = connections.create(northwind, "licences", "webhook", settings, by=ada)
    for purpose in ("observe", "compensate"):
        connections.set_secret(connection, purpose, {"secret": licences.at["secret"]}, by=ada)
    return ada, ben


@pytest.mark.parametrize("agents", each(FRAMEWORKS), indirect=True)
def test_three_calls_the_third_fails_and_what_was_done_is_undone(
    agents, people, processes, token, licences
):
    from approvals import inbox
    from approvals.models import Approval
    from recovery.corrections import drafting
    from recovery.planning import plans

    ada, ben = people
    service = licences.at["url"].removesuffix("/amends")
    with processes.side_by_side():
        web = processes.kept_web(**ENVIRONMENT)
        processes.worker(**ENVIRONMENT)
        processes.sweeper(**ENVIRONMENT)

    said = agents.plays(
        web.url, token, service=service,
        calls=[
            ["assign_licence", {"licence": "L-21", "holder": "mia"}],
            ["assign_licence", {"licence": "L-22", "holder": "tom"}],
            ["send_welcome", {"to": "mia"}],
        ],
    )  # fmt: skip
    assert [tool for tool, _ in said["ran"]] == ["assign_licence", "assign_licence", "send_welcome"]

    case = case_of("run_1")
    draft = plans.draft(case)
    assert [(one.step.operation, one.step.target_id, one.preview.title) for one in draft.steps] == [
        ("release_licence", "L-22", "Release the licence: licence L-22"),
        ("release_licence", "L-21", "Release the licence: licence L-21"),
    ]
    plans.submit(case, digest=draft.digest, revision=draft.case.revision, by=ada, reason="Undo it")
    approval = Approval.objects.get()
    before = released(licences)
    inbox.grant(approval, by=ben, seen=approval.digest, reason="Mia has not started yet")

    until(lambda: closed(case), 240, "the case is closed")
    assert released(licences) == [*before, "L-22", "L-21"], "the newest first, each once"
    assert case.outcome == "restored"
    [correction] = drafting.draft(case)  # what the scheduler does
    assert (correction.person_name, correction.title) == (
        "Mia Li",
        "We made a mistake with 2 of your licences, and undid it",
    )


@pytest.mark.parametrize("agents", each(), indirect=True)
def test_what_an_approver_made_of_the_arguments_is_what_runs_and_what_is_kept(
    agents, people, northwind, processes, token, licences
):
    """Ben corrects who gets the licence while the agent waits, and Cleo agrees to that."""
    from approvals import inbox, versions
    from approvals.gate import changed_arguments
    from ledger.models import Action
    from workspaces import independence, teams
    from workspaces.models import Team, User

    ada, ben = people
    cleo = User.objects.create_user("cleo@northwind.example", name="Cleo")
    teams.add(Team.objects.get(name="finance"), cleo, by=None)
    independence.prove(cleo)
    asks = POLICY.replace(
        "LOW, approval: AUTO, compensation", "HIGH, approval: MANUAL, compensation"
    )
    versions.activate(versions.save(northwind, asks, by=ada), by=ada)
    web = processes.kept_web(**ENVIRONMENT)

    with ThreadPoolExecutor(1) as thread:
        playing = thread.submit(
            agents.plays, web.url, token, [["assign_licence", {"licence": "L-21", "holder": "mia"}]]
        )
        asked = waiting()
        [holder] = [one for one in changed_arguments.fields_of(asked) if one.name == "holder"]
        changed = changed_arguments.change(
            asked, by=ben, seen=asked.digest, typed={holder.number: "tom"}, reason="Mia has one"
        )
        inbox.grant(changed, by=cleo, seen=changed.digest, reason="Tom is next")
        said = playing.result()

    assert said["ran"] == [("assign_licence", "L-21")]
    assert "tom" in said["told"][0]
    until(lambda: Action.objects.filter(state="succeeded").exists(), 60, "its outcome is known")
    action = Action.objects.get()
    assert (action.args, action.flags) == ({"licence": "L-21", "holder": "tom"}, [])
    assert action.effects.get().after == {"holder": "tom", "seat": 1}
    changed.refresh_from_db()
    assert (changed.state, changed.calls[0]["args"]) == ("used", action.args)
    asked.refresh_from_db()
    assert asked.state == "withdrawn"


def waiting():
    from approvals.models import Approval

    until(lambda: Approval.objects.filter(state="waiting").exists(), 120, "somebody is asked")
    return Approval.objects.get(state="waiting")


def case_of(run):
    from recovery.models import Case
    from recovery.triage import triage

    triage.look()
    return Case.objects.get(run__run=run)


def closed(case):
    case.refresh_from_db()
    return case.state == "closed"


def released(licences):
    """Which of the two the service says it has released, in its order."""
    told = [one.get("released") for one in licences.journal.entries()]
    return [one for one in told if one in ("L-21", "L-22")]
