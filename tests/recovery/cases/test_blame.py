"""Nothing that succeeded is blamed for what went wrong around it."""

from datetime import timedelta

import pytest
from django.utils import timezone

from ledger.models import Run
from recovery.casework import cases
from tests.people import logged_in


def shown(case, person):
    page = logged_in(person).get(f"/w/acme/cases/{case.pk}/")
    signs = [one["sign"] for one in page.context["story"]["items"] if one["kind"] == "action"]
    return page.text, signs


def test_a_failure_that_names_no_action_blames_none_that_succeeded(begin_run, ticket, ada):
    run = begin_run()
    run.does("tickets.update", ("ticket", "main/T-182", ticket, ticket | {"priority": "high"}))
    run.ends("failed", error={"type": "Stopped", "message": "model gave up"})

    case = run.case()

    assert (case.failed_action, case.failed_tool, case.failed_target) == (None, "", "")
    assert case.cause.tool == ""
    _, signs = shown(case, ada)
    assert signs == ["✓"]
    assert logged_in(ada).get(f"/w/acme/queue/?peek={case.pk}").status_code == 200


def test_of_a_run_that_completed_a_report_blames_no_call_and_says_who_it_is_from(
    begin_run, ticket, ada
):
    run = begin_run()
    done = run.does(
        "tickets.update", ("ticket", "main/T-182", ticket, ticket | {"priority": "high"})
    )
    run.send("action.verified", done, ok=True, checks=[])
    run.ends()

    case = cases.report(run.row, text="I tagged the wrong ticket", source="agent")

    assert case.failed_action is None
    assert case.headline.endswith(", and the agent itself reported it")
    page, signs = shown(case, ada)
    assert signs == ["✓"]
    assert ">completed <time" in page
    assert ">failed <time" not in page
    told = cases.report(run.row, text="It is wrong", source="end_user")
    assert told.headline.endswith(", and the affected person reported it")


@pytest.mark.parametrize("code", ["cancelled_with_effects", "stalled"])
def test_what_was_done_well_before_a_run_was_cancelled_or_fell_silent_is_no_failed_action(
    begin_run, ticket, ada, code
):
    run = begin_run()
    run.does("tickets.update", ("ticket", "main/T-182", ticket, ticket | {"priority": "high"}))
    if code == "stalled":
        Run.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    else:
        run.ends("cancelled")

    case = run.case()

    assert case.reasons == [code]
    assert (case.failed_action, case.failed_tool) == (None, "")
    assert shown(case, ada)[1] == ["✓"]
