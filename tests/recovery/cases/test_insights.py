"""Insights: figures from the rows themselves, and plots that say what they show."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from recovery import metrics
from recovery.casework import closing
from recovery.models import Case, Plan
from recovery.triage import triage
from recovery.views.insights import InsightsScope
from tests.people import person
from tests.recovery.cases.cast import submitted
from tests.recovery.engine import by_hand
from tests.worlds import kept
from workspaces import plots


@pytest.fixture
@kept(in_turn=True)
def restored(raised, ada):
    """The case of T-182, compensated and verified."""
    triage.look()
    case = Case.objects.get()
    submitted(case, ada, reason="wrong")
    by_hand.advance(Plan.objects.get().pk)
    case.refresh_from_db()
    assert case.outcome == "restored"
    return case


def test_a_desk_without_cases_has_figures_of_nothing(client, ada, acme):
    client.force_login(ada)

    page = client.get("/w/acme/insights/")

    values = [card["value"] for card in page.context["cards"]]
    assert values == ["0", "0", "0", "—", "—", "—", "0", "—", "—"]
    assert "no step has ended yet" in page.text
    assert metrics.steps(acme)[0].success is None


def test_a_restored_case_counts_in_each_figure(restored, acme):
    Case.objects.update(failed_at=restored.closed_at - timedelta(minutes=18))

    whole, days, *_ = metrics.cases(acme)
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


def test_open_cases_stand_in_the_column_of_their_age(raises, acme, monkeypatch):
    for number, hours in enumerate((0.5, 3, 3, 2, 50, 24 * 40), 1):
        raises(number).ends("failed")
        triage.look()
        failed = timezone.now() - timedelta(hours=hours)
        Case.objects.filter(run__run=f"run_{number}").update(failed_at=failed)
    Case.objects.filter(run__run="run_3").update(state="closed")

    waiting = metrics.waiting(acme)

    assert waiting.by_age == [1, 2, 0, 1, 0, 0, 1]
    assert round(waiting.oldest / 86400) == 40
    monkeypatch.setattr(metrics, "OPEN_MAX", 2)
    assert metrics.waiting(acme).by_age == [1, 1, 0, 0, 0, 0, 0]


def test_a_step_that_needs_a_person_is_no_success(restored, acme):
    from recovery.models import Step

    Step.objects.update(was="intended", state="needs_human")

    steps, _ = metrics.steps(acme)
    assert (steps.verified, steps.need_person, steps.success) == (0, 1, 0.0)


def test_what_is_older_than_the_window_or_elsewhere_is_not_counted(
    restored, acme, globex, monkeypatch
):
    assert metrics.cases(globex)[0].failed == 0
    assert metrics.steps(globex)[0].plans == 0

    later = timezone.now() + timedelta(days=metrics.WINDOW_DAYS + 1)

    monkeypatch.setattr(timezone, "now", lambda: later)
    assert metrics.cases(acme)[0].failed == 0
    assert metrics.steps(acme)[0].plans == 0
    assert metrics.unwinds(acme).calls == 0


def test_what_could_not_be_undone_stands_there_with_owner_and_date(client, raised, ada, acme):
    triage.look()
    case = Case.objects.get()
    left = closing.Remainder("The mail was read", ada, timezone.now() + timedelta(days=2), None)
    closing.close(case, outcome="partly", reason="x", by=ada, seen=case.revision, left=[left])
    client.force_login(ada)

    page = client.get("/w/acme/insights/")

    assert [one["text"] for one in page.context["residues"]] == ["The mail was read"]
    assert (metrics.cases(acme)[0].recovered, metrics.closed(acme)[0].recovered) == (0, 0)
    assert "Closed as not fully restored" in client.get(f"/w/acme/cases/{case.pk}/").text
    assert page.context["residues"][0]["owner"] == "Ada"
    case.residues.update(owner=person("gone"))
    text = client.get("/w/acme/insights/").text
    assert "nobody: Gone is no longer here" in text, "as the list of what is left over says"
    case.residues.update(done_at=timezone.now())
    assert client.get("/w/acme/insights/").context["residues"] == []


def test_each_figure_opens_the_cases_that_it_counts(client, restored, raises, ada):
    raises(7).ends("failed")
    triage.look()
    client.force_login(ada)

    page = client.get("/w/acme/insights/")

    cards = {card["title"]: card for card in page.context["cards"]}
    led = {
        f"{title}: {one['words']}": (one["number"], _found(client, one["url"]))
        for title, card in cards.items()
        for one in card["legend"]
        if "/queue/" in one["url"] and one["tone"]
    }
    assert {name: count for name, (count, _) in led.items()} == {
        name: str(found) for name, (_, found) in led.items()
    }
    assert (led["Cases by day of failure: closed"], led["Time to recover, median: in time"]) == (
        ("1", 1),
        ("1", 1),
    )
    for title in ("Cases by day of failure", "Open now, by age", "Compensations verified"):
        behind = [_found(client, url) for url, _ in cards[title]["plot"].places]
        assert sum(behind) == {"Cases by day of failure": 2}.get(title, 1), title
    assert '<td class="muted">1 open</td>' not in page.content.decode(), "unfolded, it is fetched"
    numbers_url = cards["Cases by day of failure"]["numbers_url"]
    for alone, more in ((False, {}), (True, {"HTTP_HX_REQUEST": "true"})):
        told = client.get(numbers_url, **more).content.decode()
        assert '<td class="muted">1 open</td>' in told
        assert ("<html" in told) is not alone
    rows = [row for group in page.context["groups"] for row in group["rows"]]
    assert rows
    for row in rows:
        assert _found(client, row["failed_url"]) == int(row["failed"]), row["name"]
        assert _found(client, row["standing_url"]) == int(row["standing"]), row["name"]


def _found(client, url):
    return len(client.get(url).context["cases"])


def test_figures_are_of_the_days_the_agent_and_the_tool_that_are_asked_for(
    client, restored, raises, ada
):
    Case.objects.update(failed_at=timezone.now() - timedelta(days=10))
    client.force_login(ada)

    def failed(query):
        page = client.get(f"/w/acme/insights/?{query}")
        assert page.status_code == 200, query
        return page.context["cards"][0]["value"]

    agent, tool = restored.agent.name, restored.failed_tool
    assert [failed("days=7"), failed("days=30"), failed("days=90")] == ["0", "1", "1"]
    assert [failed(f"agent={agent}"), failed(f"tool={tool}")] == ["1", "1"]
    assert [failed("tool=another"), failed("days=12"), failed("agent=nobody")] == ["0", "1", "1"]


def test_a_day_is_the_readers_own_in_figures_and_in_the_lists_behind_them(
    client, restored, ada, acme
):
    midnight = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    before = midnight - timedelta(minutes=30)
    Case.objects.update(failed_at=before, closed_at=before, opened_at=before)
    Plan.objects.update(started_at=before)
    client.force_login(ada)

    def failed_on(zone):
        client.cookies["zone"] = zone
        plot = client.get("/w/acme/insights/").context["cards"][0]["plot"]
        [address] = [url for url, words in plot.places if ": 1 failed" in words]
        return address.partition("failed%3A")[2][:10], _found(client, address)

    today, yesterday = str(midnight.date()), str(before.date())
    assert failed_on("Pacific/Auckland") == (today, 1)
    assert failed_on("UTC") == failed_on("America/Los_Angeles") == (yesterday, 1)
    client.cookies["zone"] = "Pacific/Auckland"
    for key in ("failed", "closed", "opened", "started"):
        assert _found(client, f"/w/acme/queue/?q={key}:{today}+is:closed") == 1, key
        assert _found(client, f"/w/acme/queue/?q={key}:{yesterday}+is:closed") == 0, key
    with timezone.override("Pacific/Auckland"):
        closed = [str(one.day) for one in metrics.closed(acme)[1] if one.closed]
        steps = [str(one.day) for one in metrics.steps(acme)[1] if one.steps]
        calls = [str(day) for day in metrics.unwinds(acme).by_day]
    assert closed == steps == calls == [today]


def test_the_goal_is_what_the_policy_allows_and_is_drawn_where_it_can_be_seen(restored, acme):
    due = restored.failed_at + timedelta(hours=4)
    Case.objects.update(due_at=due, closed_at=due + timedelta(minutes=5))

    whole = metrics.cases(acme).whole

    assert (round(whole.allowed), whole.in_time) == (4 * 3600, 0)
    today = [timezone.now().date()]
    assert plots.line("x", today, [3600.0], goal=7200).goal is not None
    assert plots.line("x", today, [60.0], goal=7200).goal is None, "it would flatten the line"


def test_the_cases_of_the_window_are_read_once_for_all_that_is_told_of_them(restored, ada, client):
    client.force_login(ada)
    with CaptureQueriesContext(connection) as asked:
        shown = client.get("/w/acme/insights/").content.decode()

    newest = "ORDER BY failed_at DESC, id DESC"
    assert sum(newest in one["sql"] for one in asked) == 1
    assert "By tool" in shown
    agents, tools = metrics.cases(restored.workspace)[2:]
    assert [one.failed for one in (*agents, *tools)] == [1, 1]


def test_a_day_opens_its_own_list_where_the_workspace_is_called_after_a_day(restored, acme):
    window = metrics.Window()
    first, last = window.dates()[0], window.dates()[-1]
    acme.slug = f"acme-{first}"

    addresses = [url for url, _ in InsightsScope(acme, window, None).days("failed", "is:open", str)]

    assert addresses[-1] == f"/w/acme-{first}/queue/?q=failed%3A{last}+is%3Aopen"


def test_nobody_else_sees_the_figures(client, dev, acme):
    client.force_login(dev)

    assert client.get("/w/acme/insights/").status_code == 404


def test_columns_are_stacked_within_the_picture():
    today = timezone.now().date()
    days = [today - timedelta(days=1), today]

    plot = plots.columns("two days", days, ("ok", [10_000, 0]), ("bad", [10_000, 1]))

    assert [part.tone for part in plot.columns] == ["ok", "bad", "bad"]
    assert all(part.y >= 0 and part.y + part.height <= plots.HEIGHT for part in plot.columns)
    below, above, small = plot.columns
    assert above.y + above.height == below.y
    assert small.height == plots.LEAST_HEIGHT, "one beside twenty thousand can be seen"


def test_a_day_that_dwarfs_all_others_is_cut_and_its_number_told():
    days = [timezone.now().date() - timedelta(days=ago) for ago in range(6)]

    plot = plots.columns(
        "six days", days, ("ok", [200, 3, 4, 0, 2, 3]), ("bad", [100, 1, 0, 0, 1, 0])
    )

    assert plot.heights == ("4", "2", "0")
    assert plot.beyond == (f"{plots.named(days[0])}: 300",)
    assert all(part.y >= 0 and part.y + part.height <= plots.HEIGHT for part in plot.columns)
    assert [part.tone for part in plot.columns].count("break") == 1
    assert plots.columns("x", days, ("ok", [9, 3, 4, 0, 2, 3])).beyond == ()


def test_a_line_breaks_where_nothing_was_measured():
    today = timezone.now().date()
    days = [today - timedelta(days=ago) for ago in range(5)]

    plot = plots.line("five days", days, [1.0, 2.0, None, 4.0, None])

    assert len(plot.lines) == 1
    assert len(plot.lines[0].split()) == 2
    assert len(plot.points) == 1
