"""Two people stop a plan, or it ends as somebody stops it: nobody is shown a failure."""

import pytest
from django.test import Client

from recovery.engine import plan_lifecycle
from recovery.models import Case, Plan
from recovery.triage import triage
from tests.locks import comes_before_the_commit
from tests.recovery.cases.cast import stands, submitted

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


def test_a_plan_that_was_stopped_before_anything_was_sent_is_folded(
    desk, begin_run, shop, shop_connection, ada
):
    """It stood above what compensating would do with the same steps, each of them *not done*."""
    run = begin_run()
    for name in ("T-1", "T-2"):
        was = {"world": "main", "id": name, "priority": "normal", "assignee": "Nora"}
        stands(shop, high := was | {"priority": "high"})
        run.does("tickets.update", ("ticket", f"main/{name}", was, high))
    run.ends("failed")
    case = run.case()
    submitted(case, ada)
    there = f"/w/acme/cases/{case.pk}/"
    assert "opens_fold" not in desk.get(there).context["plan"]["steps"][0]

    plan_lifecycle.stop(Plan.objects.get(), by=ada)

    first, last = desk.get(there).context["plan"]["steps"]
    assert (first["opens_fold"], last["closes_fold"]) == ("2 steps, none of them done", True)
