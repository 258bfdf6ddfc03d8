"""Causes: like failures together, and whether they are new, back again, or growing."""

from datetime import timedelta

import pytest
from django.utils import timezone

from recovery.casework import closing
from recovery.models import Case, Cause
from recovery.triage import triage
from recovery.views import causes
from tests.people import person
from workspaces.erasure_registry import ERASED

TICKET = ("ticket", "main/T-182", {"priority": "normal"}, {"priority": "high"})


@pytest.fixture
def fails(begin_run):
    """A run that fails at the mail gateway: `fails("run_1")`."""

    def fail(name, message="504 from mx1 after 31.7 s"):
        run = begin_run(name)
        run.does("tickets.update", TICKET)
        run.ends("failed", failed_action=run.fails("mail.send", message=message))
        triage.look()
        return Case.objects.get(run__run=name)

    return fail


def age(cause, **since):
    """As if it had first been seen a while ago."""
    Cause.objects.filter(pk=cause.pk).update(first_seen_at=timezone.now() - timedelta(**since))
    cause.refresh_from_db()


def test_a_kind_of_failure_never_seen_before_is_new(fails):
    cause = fails("run_1").cause

    assert causes.trend(cause).words == "new"
    age(cause, hours=25)
    assert causes.trend(cause).words == ""


def test_what_comes_back_after_it_was_closed_has_regressed(fails, acme, ada):
    case = fails("run_1")
    age(case.cause, days=3)
    closing.close(case, outcome="expected", reason="a test", by=ada, seen=case.revision)
    case.cause.refresh_from_db()
    assert causes.trend(case.cause).words == ""
    assert not causes.listed(acme, "regressed").exists()

    fails("run_2")

    case.cause.refresh_from_db()
    assert causes.trend(case.cause).words == "regressed"
    assert [one.pk for one in causes.listed(acme, "regressed")] == [case.cause_id]


def test_more_cases_than_the_day_before_are_growing(fails, acme):
    found = [fails(f"run_{number}") for number in range(4)]
    cause = found[0].cause
    age(cause, days=3)
    yesterday = timezone.now() - timedelta(hours=30)
    Case.objects.filter(pk=found[0].pk).update(opened_at=yesterday)

    assert (causes.trend(cause).lately, causes.trend(cause).before) == (3, 1)
    assert [one.pk for one in causes.listed(acme, "growing")] == [cause.pk]
    Case.objects.update(opened_at=yesterday)
    assert not causes.listed(acme, "growing").exists()


def test_the_list_goes_on_page_by_page_and_names_no_cause_twice(desk, acme):
    Cause.objects.bulk_create(
        Cause(workspace=acme, fingerprint=f"{n:064x}", tool="t", message=f"m {n}", case_count=1)
        for n in range(53)
    )

    first = desk.get("/w/acme/causes/")
    older = desk.get(first.context["pager"]["next"])

    seen = [one["fingerprint"] for page in (first, older) for one in page.context["rows"]]
    assert (len(first.context["rows"]), len(seen), len(set(seen))) == (50, 53, 53)


def test_a_title_has_gaps_where_the_failures_differ(desk, fails):
    fails("run_1", message="504 4.4.1 from mx1 after 31.7 s for url: https://mail.example/x1")

    page = desk.get("/w/acme/causes/")

    (cause,) = page.context["rows"]
    assert (cause["title"], cause["kind"]) == (
        "“from mx… after … s”", "GatewayTimeout: … from mx… after … s",
    )  # fmt: skip
    assert "&lt;n&gt;" not in page.text


@pytest.mark.parametrize(
    ("message", "title"),
    [
        ("Server error '504 Gateway Timeout' for url 'https://pay.example/x'\nFor more",
         "The service answered with an error of its own"),
        ("Client error '404 Not Found' for url 'https://pay.example/x'",
         "The service refused the request"),
    ],
)  # fmt: skip
def test_a_title_is_in_words_and_what_was_raised_stands_below(desk, fails, message, title):
    fails("run_1", message=message)

    (cause,) = desk.get("/w/acme/causes/").context["rows"]

    assert cause["title"] == title
    assert cause["kind"].startswith(f"GatewayTimeout: {message[:12]}")


def test_a_check_that_failed_is_not_titled_by_what_it_was_to_find(desk, begin_run):
    run = begin_run("run_1")
    run.is_verified(run.does("tickets.update", TICKET), ok=False)
    run.ends("completed")
    triage.look()

    (cause,) = desk.get("/w/acme/causes/").context["rows"]

    assert (cause["title"], cause["kind"]) == ("A check failed: “flights”", "")


def test_the_words_of_an_agent_are_quoted_and_what_the_title_says_stands_once(desk, fails):
    """“No” read as the desk's own word for what goes wrong."""
    fails("run_1", message="no")

    (cause,) = desk.get("/w/acme/causes/").context["rows"]

    assert (cause["title"], cause["kind"]) == ("“no”", "GatewayTimeout")


def test_what_was_erased_is_nobodys_words(desk, fails):
    fails("run_1", message="Mia Li is not known")
    Cause.objects.update(message=ERASED)

    (cause,) = desk.get("/w/acme/causes/").context["rows"]

    assert (cause["title"], cause["kind"]) == (f"GatewayTimeout: {ERASED}", "GatewayTimeout")


def test_a_cause_shows_its_open_cases_and_acts_on_all_of_them(desk, fails):
    cases = [fails(f"run_{number}") for number in range(2)]
    fails("run_9", message="another thing")
    cause = cases[0].cause
    long_ago = timezone.now() - timedelta(days=100)
    Case.objects.filter(pk=cases[0].pk).update(failed_at=long_ago, opened_at=long_ago)

    page = desk.get(f"/w/acme/causes/{cause.fingerprint}/")

    assert [one["id"] for one in page.context["cases"]] == [cases[1].pk, cases[0].pk]
    dry_run = desk.get(page.context["acts"][0]["url"])
    assert len(dry_run.context["eligible"]) + len(dry_run.context["not_eligible"]) == 2


def test_a_viewer_reads_and_is_offered_no_act(client, fails, acme):
    from tests.people import team

    client.force_login(person("vik", team(acme, "viewers", "view")))
    cause = fails("run_1").cause

    page = client.get(f"/w/acme/causes/{cause.fingerprint}/")

    assert (page.status_code, page.context["acts"]) == (200, [])
    assert client.get("/w/acme/bulk/new/?act=compensate&q=").status_code == 403


def test_nobody_else_sees_a_cause(client, fails, dev, globex):
    cause = fails("run_1").cause
    client.force_login(dev)

    assert client.get(f"/w/acme/causes/{cause.fingerprint}/").status_code == 404
    assert client.get(f"/w/globex/causes/{cause.fingerprint}/").status_code == 404
    assert "No causes here" in client.get("/w/globex/causes/").text
