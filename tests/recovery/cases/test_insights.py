"""Insights: figures from the rows themselves, and plots that say what they show."""

from datetime import timedelta

import pytest
from django.utils import timezone

from recovery import metrics
from recovery.casework import closing
from recovery.models import Case, Plan
from recovery.planning import plans
from recovery.triage import triage
from recovery.views import insights
from tests.recovery.engine import by_hand


@pytest.fixture
def restored(raised, ada):
    """The case of T-182, compensated and verified."""
    triage.look()
    case = Case.objects.get()
    draft = plans.draft(case)
    plans.submit(case, digest=draft.digest, revision=draft.case.revision, by=ada, reason="wrong")
    by_hand.advance(Plan.objects.get().pk)
    case.refresh_from_db()
    assert case.outcome == "restored"
    return case


def test_a_desk_without_cases_has_figures_of_nothing(client, ada, acme):
    client.force_login(ada)

    page = client.get("/w/acme/insights/")

    values = [card["value"] for card in page.context["cards"]]
    assert values == ["0", "0", "0", "—", "—", "0", "—", "—"]
    assert "no step has ended yet" in page.text
    assert metrics.steps(acme)[0].success is None


def test_a_restored_case_counts_in_each_figure(restored, acme):
    Case.objects.update(failed_at=restored.closed_at - timedelta(minutes=18))

    whole, days = metrics.cases(acme)
    steps, _ = metrics.steps(acme)
    calls = metrics.unwinds(acme)

    out, days_out = metrics.closed(acme)

    assert (whole.failed, whole.standing, whole.recovered) == (1, 0, 1)
    assert (out.closed, out.recovered, days_out[-1].closed) == (1, 1, 1)
    assert round(whole.median) == 18 * 60
    assert (len(days), sum(day.failed for day in days)) == (30, 1)
    assert (steps.plans, steps.verified, steps.settled, steps.success) == (1, 1, 1, 1.0)
    assert calls.calls == 1
    assert list(calls.by_connection) == ["shop"]
    assert calls.p95 == calls.by_connection["shop"] > 0


def test_open_cases_stand_in_the_column_of_their_age(raises, acme):
    for number, hours in enumerate((0.5, 3, 3, 50, 24 * 40), 1):
        raises(number).ends("failed")
        triage.look()
        failed = timezone.now() - timedelta(hours=hours)
        Case.objects.filter(run__run=f"run_{number}").update(failed_at=failed)
    Case.objects.filter(run__run="run_3").update(state="closed")

    waiting = metrics.waiting(acme)

    assert waiting.by_age == [1, 1, 0, 1, 0, 0, 1]
    assert round(waiting.oldest / 86400) == 40
    assert metrics.waiting(acme, limit=2).by_age == [1, 1, 0, 0, 0, 0, 0]


def test_a_step_that_needs_a_person_is_no_success(restored, acme):
    from recovery.models import Step

    Step.objects.update(was="intended", state="needs_human")

    steps, _ = metrics.steps(acme)
    assert (steps.verified, steps.need_person, steps.success) == (0, 1, 0.0)


def test_what_is_older_than_the_window_or_elsewhere_is_not_counted(restored, acme, globex):
    assert metrics.cases(globex)[0].failed == 0
    assert metrics.steps(globex)[0].plans == 0

    later = timezone.now() + timedelta(days=metrics.WINDOW_DAYS + 1)

    assert metrics.cases(acme, later)[0].failed == 0
    assert metrics.steps(acme, later)[0].plans == 0
    assert metrics.unwinds(acme, later).calls == 0


def test_what_could_not_be_undone_stands_there_with_owner_and_date(client, raised, ada, acme):
    triage.look()
    case = Case.objects.get()
    left = closing.Remainder("The mail was read", ada, timezone.now() + timedelta(days=2), None)
    closing.close(case, outcome="partly", reason="x", by=ada, seen=case.revision, left=[left])
    client.force_login(ada)

    page = client.get("/w/acme/insights/")

    assert [one["text"] for one in page.context["residues"]] == ["The mail was read"]
    case.residues.update(done_at=timezone.now())
    assert client.get("/w/acme/insights/").context["residues"] == []


def test_nobody_else_sees_the_figures(client, dev, acme):
    client.force_login(dev)

    assert client.get("/w/acme/insights/").status_code == 404


def test_columns_are_stacked_within_the_picture():
    today = timezone.now().date()
    days = [today - timedelta(days=1), today]

    plot = insights.columns("two days", days, ("ok", [10_000, 0]), ("bad", [10_000, 1]))

    assert [part.tone for part in plot.columns] == ["ok", "bad", "bad"]
    assert all(part.y >= 0 and part.y + part.height <= insights.HEIGHT for part in plot.columns)
    below, above, small = plot.columns
    assert above.y + above.height == below.y
    assert small.height == insights.LEAST_HEIGHT, "one beside twenty thousand can be seen"


def test_a_line_breaks_where_nothing_was_measured():
    today = timezone.now().date()
    days = [today - timedelta(days=ago) for ago in range(5)]

    plot = insights.line("five days", days, [1.0, 2.0, None, 4.0, None])

    assert len(plot.lines) == 1
    assert len(plot.lines[0].split()) == 2
    assert len(plot.points) == 1
