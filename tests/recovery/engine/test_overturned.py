"""A yes to a plan that was stopped, or whose work was undone, is counted as overturned."""

import pytest

from approvals import health, inbox
from ledger.models import Action
from recovery.engine import plan_lifecycle, steps
from tests.people import logged_in
from tests.recovery.engine import by_hand
from tests.recovery.engine.desk import advance, asked, plan_for
from tests.worlds import kept

pytestmark = pytest.mark.django_db


@pytest.fixture
@kept(in_turn=True)
def granted(case, world, ada, ben):
    """A plan of three steps that Ben approved."""
    plan = plan_for(case, world)
    approval = asked(plan, ada, rules=({"glob": "crm.*", "words": "CRM changes"},))
    inbox.grant(approval, by=ben, seen=approval.digest, reason="checked", shown_seconds=40)
    return plan


def listed(ben):
    """What stands behind the figure, in the list that it opens."""
    browser = logged_in(ben)
    shown = browser.get("/w/acme/approvals/history/?q=is:overturned").content.decode()
    return shown.count('class="row-link"')


def false_alarms(acme):
    """Of each rule: how often asking has changed nothing."""
    return [rule.false_alarms for rule in health.of(acme).rules]


def test_a_plan_that_did_what_was_approved_is_not_overturned(granted, acme, ben):
    advance(granted)

    assert (health.of(acme).overturned, listed(ben)) == (0, 0)
    assert false_alarms(acme) == [1]


def test_a_plan_that_somebody_stopped_is(granted, acme, ada, ben):
    by_hand.advance_once(granted.pk)
    plan_lifecycle.stop(granted, by=ada, reason="It was right after all")

    assert (health.of(acme).undone_later, listed(ben)) == (1, 1)
    assert false_alarms(acme) == [0], "it was well that somebody was asked"


def test_a_plan_whose_work_was_undone_is(granted, acme, ben):
    advance(granted)
    own = Action.objects.filter(run__run=steps.run_of(granted))
    own.filter(pk=own.first().pk).update(compensated="compensated")

    assert (health.of(acme).undone_later, listed(ben)) == (1, 1)
    assert false_alarms(acme) == [0], "it was well that somebody was asked"
