"""A plan says what it leaves: a later change that is kept, and what no step undoes; and starts only
where what it undoes stands as it did.
"""

from uuid import uuid4

import httpx
import pytest

from approvals import versions
from approvals.models import Approval
from connectors import calls
from connectors.contract import Money, Target
from ledger.models import Effect
from recovery.engine import approved_calls, plan_lifecycle
from recovery.engine.steps import let_triage_look
from recovery.planning import plans
from tests.connectors import conftest as outside
from tests.recovery.cases import cast
from tests.recovery.cases.cast import submitted
from tests.recovery.engine import by_hand

outsides, licences, connect = outside.outsides, outside.licences, outside.connect

SEATS = """
agentSafety:
  tools: {"seats.*": {class: internal_update}}
  policies:
    "seats.*": {risk: LOW, approval: AUTO, compensation: SNAPSHOT}
    "licences.*": {risk: LOW, approval: AUTO}
  twins:
    "seats.*": {connection: licences, operation: restore_licence}
    "bills.*": {connection: licences, operation: refund}
"""
MIA, TOM = {"holder": "mia", "seat": 7}, {"holder": "tom", "seat": 7}


@pytest.mark.parametrize(
    ("changed", "title", "reversibility"),
    [
        (
            "assignee = 'Finn'",
            "Put back of ticket main/T-182 only what nobody has changed since",
            "exact",
        ),
        (
            "priority = 'urgent'",
            "Leave ticket main/T-182 as it stands: somebody has changed all of it since",
            "compensable",
        ),
    ],
)
def test_a_later_change_that_is_kept_is_not_titled_as_put_back_as_it_was(
    raised, shop, changed, title, reversibility
):
    case = raised.case()
    shop.execute(f"UPDATE tickets SET {changed}, version = version + 1")
    effect = Effect.objects.get()

    (step,) = plans.draft(case, choices={effect.pk: "rebase"}).steps

    assert (step.preview.title, step.step.preview["title"]) == (title, title)
    assert step.step.reversibility == reversibility


def test_who_is_asked_about_a_plan_reads_what_it_cannot_undo(begin_run, shop, ticket, ada):
    run = begin_run()
    run.does("tickets.update", ("customers", "main/T-182", ticket, ticket | {"priority": "high"}))
    run.does("mail.send", ("mail", "m-1", None, {"subject": "Invoice"}))
    run.ends("failed")

    submitted(run.case(), ada)

    assert Approval.objects.get().headline.endswith(" (1 effect cannot be undone)")


@pytest.fixture
def service(acme, policy, licences, connect, outbound):
    """The connection to a service that puts back what it is handed."""
    versions.activate(versions.save(acme, SEATS, by=None), by=None)
    outbound.append("127.0.0.1")
    restores = {"title": "Restore the licence", "leaves": "before"}
    sums = {"kind": "money", "amount": "amount", "currency": "currency", "observes": False}
    operations = {"restore_licence": restores, "refund": {"title": "Refund {money}", **sums}}
    settings = {"url": licences.at["url"], "operations": operations}
    return connect("licences", "webhook", settings, {"secret": licences.at["secret"]})


def give(service, **fields):
    """Somebody gives licence L-9 away."""
    hold = service.settings["url"].replace("/amends", "/hold")
    httpx.post(hold, json={"id": "L-9", **fields}).raise_for_status()


def stands(service):
    """Who has it now."""
    return calls.observe(service, "restore_licence", {}, Target("licence", "L-9")).state


@pytest.fixture
def moved(service, begin_run):
    """A run that gave Mia's licence to Tom; the service remembers keys, so of a name of its own."""
    run = begin_run(f"run_{uuid4().hex}")
    give(service, **TOM)
    run.does("seats.move", ("licence", "L-9", MIA, TOM))
    return run.ends("failed")


def test_a_service_is_handed_what_the_plan_shows_with_the_later_change_that_is_kept(
    moved, service, ada
):
    case = moved.case()
    give(service, holder="tom", seat=9)

    plan = submitted(case, ada, choices={Effect.objects.get().pk: "rebase"})
    by_hand.advance(plan.pk)

    step = plan.steps.get()
    assert step.preview["will_send"]["before"] == {"holder": "mia", "seat": 9}
    assert stands(service) == {"holder": "mia", "seat": 9}
    assert step.state == "verified"


def test_what_an_agent_tells_after_the_plan_was_made_is_not_what_is_put_back(moved, service, ada):
    plan = submitted(moved.case(), ada)
    target = {"type": "licence", "id": "L-9"}
    eve = {"holder": "eve", "seat": 7}

    moved.send("action.planned", "act_1", tool="seats.move", targets=[target], before=[eve])
    by_hand.advance(plan.pk)

    assert Effect.objects.get(action__action="act_1").before == eve
    assert stands(service) == MIA


def test_a_step_of_an_older_version_restores_what_its_effect_tells(moved, service, ada):
    plan = submitted(moved.case(), ada)
    plan.steps.update(before=None)

    by_hand.advance(plan.pk)

    assert stands(service) == MIA


@pytest.mark.parametrize(
    ("second", "money"),
    [({"amount": 300, "currency": "EUR"}, Money(800, "EUR")), ({"state": "paid"}, None)],
)
def test_a_plan_of_which_one_sum_is_not_known_names_no_sum(service, begin_run, second, money):
    """Who approves it would take the others for all that moves."""
    run = begin_run()
    run.does("bills.pay", ("bill", "B-1", None, {"amount": 500, "currency": "EUR"}))
    run.does("bills.pay", ("bill", "B-2", None, second))

    draft = plans.draft(run.ends("failed").case())

    assert (len(draft.steps), draft.money) == (2, money)


def test_a_plan_of_what_stands_behind_the_newest_is_outdated_by_a_change_of_it(
    begin_run, shop, ticket, ada, monkeypatch
):
    """What has a way back is planned first, however many newer effects have none."""
    monkeypatch.setattr(approved_calls, "EFFECTS_MAX", 2)
    run, high = begin_run(), ticket | {"priority": "high"}
    cast.stands(shop, high | {"id": "T-1"})
    run.does("tickets.update", ("ticket", "main/T-1", ticket | {"id": "T-1"}, high | {"id": "T-1"}))
    for number in range(2, 6):
        run.does("desk.close", ("ticket", f"main/T-{number}", ticket, high))
    run.ends("failed")
    case = run.case()
    plan = submitted(case, ada)
    let_triage_look(case.run)
    case.run.refresh_from_db()
    assert plan_lifecycle.why_outdated(plan, case.run) == ""

    Effect.objects.filter(pk=plan.steps.get().effect_id).update(compensated="compensated")

    assert "has changed" in plan_lifecycle.why_outdated(plan, case.run)
