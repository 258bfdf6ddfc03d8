"""A probe ends a doubt by itself, and only if it proves something."""

import pytest
from django.utils import timezone

from connectors import calls
from connectors.contract import Target
from ledger.models import Action, Event
from recovery.models import Suggestion
from recovery.triage import outcome_probes
from tests.recovery.cases.conftest import POLICY

PROBED = POLICY.replace(
    '"tickets.*":       {connection: shop, operation: restore_row, args: {to: before}}',
    '"tickets.*": {connection: shop, operation: restore_row, args: {to: before},'
    " probe: {connection: shop, operation: restore_row, args: {to: args.to}}}",
)


@pytest.fixture
def probed(acme, policy):
    from approvals import versions

    return versions.activate(versions.save(acme, PROBED, by=None), by=None)


@pytest.fixture
def doubtful(probed, begin_run, ticket):
    run = begin_run()
    args = {"to": ticket | {"priority": "high"}}
    run.plans("tickets.update", ("ticket", "main/T-182"), args=args, before=[ticket])
    run.ends("failed")
    return run


def test_a_call_that_a_probe_finds_did_happen(doubtful, shop_connection):
    action = Action.objects.get()
    calls.apply(
        shop_connection,
        "restore_row",
        action.args,
        Target("ticket", "main/T-182"),
        key=action.key,
        sent_at=timezone.now(),
    )
    assert doubtful.case().suggestion == Suggestion.SETTLE

    assert outcome_probes.sweep() == 1

    case = doubtful.case()
    assert (case.suggestion, case.unknown_count) == (Suggestion.COMPENSATE, 0)
    told = Event.objects.get(type="action.settled")
    assert (told.actor_kind, told.actor, told.data["outcome"]) == ("desk", "probe", "applied")


def test_absence_proves_nothing_while_the_call_may_be_on_its_way(doubtful):
    doubtful.case()

    assert outcome_probes.sweep() == 0
    assert doubtful.case().probes == 1
    assert outcome_probes.sweep() == 0, "not before its time"
    assert doubtful.case().probes == 1


def test_absence_after_the_horizon_is_a_proof(doubtful):
    from datetime import timedelta

    doubtful.case()
    Action.objects.update(started_at=timezone.now() - timedelta(hours=1))

    assert outcome_probes.sweep() == 1

    assert doubtful.case().suggestion == Suggestion.RESUME
