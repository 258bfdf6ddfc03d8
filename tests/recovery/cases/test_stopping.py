"""Two people stop a plan, or it ends as somebody stops it: nobody is shown a failure."""

import threading

import pytest
from django.db import connections, transaction
from django.test import Client

from recovery.engine import plan_lifecycle
from recovery.models import Case, Plan
from recovery.triage import triage
from tests.locks import waits
from tests.recovery.cases.cast import submitted

pytestmark = pytest.mark.django_db(transaction=True)


def test_who_stops_a_plan_that_ends_at_that_moment_is_told_so(raised, ada):
    triage.look()
    case = Case.objects.get()
    submitted(case, ada, reason="wrong ticket")
    client, pages = Client(), []
    client.force_login(ada)

    def stop():
        try:
            pages.append(client.post(f"/w/acme/cases/{case.pk}/stop/", follow=True))
        finally:
            connections.close_all()

    late = threading.Thread(target=stop)
    with transaction.atomic():
        plan_lifecycle.stop(Plan.objects.get(), by=ada)
        late.start()  # sees a plan that lives, and waits for it
        waits(1)
    late.join()

    (page,) = pages
    assert page.status_code == 200
    assert "nothing was left to stop" in page.text
    assert Plan.objects.get().state == "stopped"
