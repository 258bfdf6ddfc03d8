"""An engineer tests her own twin: a run is made to fail after a step, its plan is asked for."""

from typing import Any

import pytest

import amends
from amends import testing
from tests.connectors import conftest as outside
from tests.sdk.test_docs import blocks

pytestmark = pytest.mark.django_db(transaction=True)
outsides = outside.outsides
licences = outside.licences
POLICY = """
agentSafety:
  policies:
    "greet":          {risk: LOW, approval: AUTO}
    "assign_licence": {risk: LOW, approval: AUTO, compensation: DELETE}
    "licences.*":     {risk: LOW, approval: AUTO}
    "hire":           {risk: LOW, approval: AUTO, compensation: DELETE}
    "order_licence":  {risk: LOW, approval: AUTO}
  twins:
    "assign_licence": {connection: licences, operation: release_licence, args: {}}
    "hire":           {connection: hr, operation: delete_row, args: {}}
"""


@pytest.fixture
def person_token(northwind, token, licences):
    """Ada's own token; her workspace has the licence service connected and its twin declared."""
    from approvals import versions
    from connectors import connections
    from workspaces import keys, teams
    from workspaces.models import User

    ada = User.objects.get(name="Ada")
    teams.add(teams.create(northwind, "operators", by=None, may=["view", "recover"]), ada, by=None)
    versions.activate(versions.save(northwind, POLICY, by=ada), by=ada)
    declared = {"title": "Release the licence", "args": {}, "leaves": "gone"}
    ordered = declared | {"args": {"licence": "text"}}
    settings = {
        "url": licences.at["url"],
        "operations": {"release_licence": declared, "cancel_order": ordered},
    }
    hr = settings | {"operations": {"delete_row": declared}}
    for name, has in (("licences", settings), ("hr", hr)):
        connection = connections.create(northwind, name, "webhook", has, by=ada)
        for purpose in ("observe", "compensate"):
            connections.set_secret(connection, purpose, {"secret": licences.at["secret"]}, by=ada)
    return keys.create_token(northwind, by=ada, name="tests")[1]


@pytest.fixture
def web(processes, person_token):
    return processes.kept_web(AMENDS_OUTBOUND_ALLOW="127.0.0.1")


@pytest.fixture
def operator(web, person_token):
    operator = testing.Operator(web.url, person_token)
    yield operator
    operator.close()


def assign(run, licence):
    with run.action("assign_licence", target=("licence", licence), before=None) as act:
        act.succeeded(after={"holder": "mia", "seat": 7})


def onboard(desk):
    with desk.run("Onboard Mia", run="run_on") as run:
        testing.fail_after(run, "assign_licence")
        assign(run, "L-7")
        assign(run, "L-8")


def test_the_plan_of_a_run_that_failed_after_a_step(real_desk, operator):
    from recovery.triage import triage

    with pytest.raises(testing.Injected, match="assign_licence"):
        onboard(real_desk)
    assert real_desk.flush(60)
    triage.look()  # what the worker does at once

    operator.assert_plan("run_on", [("licences.release_licence", "L-7")])
    with pytest.raises(AssertionError, match="L-7"):
        operator.assert_plan("run_on", [])


def test_the_test_of_the_guide_passes_against_a_real_desk(real_desk, operator):
    from recovery.triage import triage

    def onboard(run):
        with run.action("hire", target=("person", "4711"), before=None) as act:
            act.succeeded(after={"name": "Mia Li"})
        assign(run, "L-7")

    [lines] = [one for one in blocks("agents.md") if "operator.assert_plan" in one]
    names: dict[str, Any] = {"pytest": pytest, "onboard": onboard, "look": triage.look}
    exec(lines.replace("desk.flush()", "desk.flush(60); look()"), names)  # noqa: S102

    names["test_a_half_done_onboarding_is_undone"](real_desk, operator)


def test_an_undo_that_knows_what_its_call_answered(real_desk, operator):
    """The service names the licence, so only the result says how it is released."""
    from recovery.models import Case
    from recovery.planning import plans
    from recovery.triage import triage

    calls = list[int]()

    @real_desk.tool(
        "order_licence",
        target=("order", "{order}"),
        effect_class="internal_update",
        undo=lambda result, **_: amends.undo("licences.cancel_order", licence=result["id"]),
    )
    def order_licence(order):
        calls.append(order)
        return {"id": "L-9"}

    with real_desk.run("Order one", run="run_order") as run:
        for _ in range(2):
            assert order_licence(4711) == {"id": "L-9"}
        run.fail(RuntimeError("the mail cannot be sent"))
    assert real_desk.flush(60)
    triage.look()

    assert calls == [4711]
    [step] = plans.draft(Case.objects.get()).steps
    assert (step.step.operation, step.step.args) == ("cancel_order", {"licence": "L-9"})
    assert step.suggested_by_agent
    operator.assert_plan("run_order", [("licences.cancel_order", "4711")])


def test_the_plan_that_a_test_sees_without_a_desk_is_the_desks(real_desk, operator, tmp_path):
    """Two targets of one call, a twin, an undo of the agent's, one without any, one that failed."""
    from recovery.triage import triage

    def onboard_two(desk):
        with desk.run("Onboard two", run="run_two") as run:
            both = [("licence", "L-1"), ("licence", "L-2")]
            with run.action("assign_licence", target=both, before=[None, None]) as act:
                act.succeeded(after=[{"holder": "mia", "seat": 1}, {"holder": "tom", "seat": 2}])
            back = amends.undo("licences.cancel_order", licence="L-3")
            with run.action("order_licence", target=("order", "4711"), undo=back) as act:
                act.succeeded({"id": "L-3"}, after={})
            with run.action("greet", target=("person", "mia")) as act:
                act.succeeded("sent", after={})
            with run.action("assign_licence", target=("licence", "L-4"), before=None) as act:
                act.failed("sold out", outcome="no_effect")
            run.fail(RuntimeError("nothing more"))
        assert desk.flush(60)

    import yaml

    script = testing.ScriptedDesk(yaml.safe_load(POLICY))
    with amends.connect(script.url, script.key, spool=tmp_path / "two.sqlite") as desk:
        onboard_two(desk)
    onboard_two(real_desk)
    triage.look()

    plan = [
        ("licences.cancel_order", "4711"),
        ("licences.release_licence", "L-2"),
        ("licences.release_licence", "L-1"),
    ]
    operator.assert_plan("run_two", plan)
    script.assert_plan(plan)
    assert script.undos()[0] == testing.Undo(("person", "mia"))
    assert script.undos()[1].args == {"licence": "L-3"}
    with pytest.raises(AssertionError, match="nobody says how to undo"):
        script.assert_plan(plan[1:])
    script.close()


def test_the_agents_own_key_reads_no_cases(real_desk, web, token):
    operator = testing.Operator(web.url, token)
    with pytest.raises(amends.KeyRefused):
        operator.case_of("run_on", seconds=0)
    operator.close()
