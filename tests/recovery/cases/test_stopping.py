"""Two people stop a plan, or it ends as somebody stops it: nobody is shown a failure."""

import pytest
from django.test import Client

from recovery.engine import plan_lifecycle
from recovery.models import Case, Plan
from recovery.triage import triage
from tests.locks import comes_before_the_commit
from tests.recovery.cases.cast import submitted

pytestmark = pytest.mark.django_db(transaction=True)


def test_who_stops_a_plan_that_ends_at_that_moment_is_told_so(raised, ada):
    triage.look()
    case = Case.objects.get()
    submitted(case, ada, reason="wrong ticket")
    client = Client()
    client.force_login(ada)

    # The later one sees a plan that lives, and waits for it.
    page = comes_before_the_commit(
        lambda: plan_lifecycle.stop(Plan.objects.get(), by=ada),
        lambda: client.post(f"/w/acme/cases/{case.pk}/stop/", follow=True),
    )

    assert page.status_code == 200
    assert "nothing was left to stop" in page.text
    assert Plan.objects.get().state == "stopped"
