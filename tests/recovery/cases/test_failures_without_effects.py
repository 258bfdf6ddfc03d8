"""A run that failed and did nothing: a low case in a view of its own, with Resume or Close."""

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from config.context import FRAME
from connectors.models import Delivery
from ledger.models import Event, Run
from recovery import metrics, search
from recovery.casework import bulk, cases, closing, resuming, settling
from recovery.models import Case, CaseState, Cause, Suggestion
from recovery.personal_data import had_a_case, worked_on
from recovery.triage import triage
from recovery.views import causes
from workspaces.models import Workspace

VIEW = "is:without-effects"
TICKET = ("ticket", "main/T-182", {"priority": "normal"}, {"priority": "high"})

pytestmark = pytest.mark.django_db


@pytest.fixture
def failed(begin_run):
    """A run whose only calls read, and failed with a certain answer."""
    run = begin_run()
    run.does("tickets.read", planned={"class": "read_only"})
    run.fails("mail.send", message="504 Gateway Timeout")
    run.ends("failed")
    return run


def listed(acme: Workspace, ada, q: str) -> list[str]:
    return [case.run.run for case in search.find(acme, q, by=ada).cases]


def everywhere_else(acme, ada):
    """What the desk counts and lists of cases outside that view; each of it as it is shown."""
    with connection.cursor() as cursor:
        cursor.execute(FRAME, {"here": acme.pk, "mine": [], "limit": 10})
        badge = cursor.fetchone()[0]
    texts = ["", "is:open", "is:unclaimed", "is:closed", "risk:low", "tool:mail.send", "504"]
    return {
        "badge": badge,
        "lists": {text: listed(acme, ada, text) for text in texts},
        "counts": search.counts(acme, texts, by=ada, limit=10),
        "waiting": metrics.waiting(acme).count,
        "days": metrics.cases(acme)[0].failed,
        "closed": metrics.closed(acme)[0].closed,
        "causes": causes.listed(acme).count(),
        "offered": [one.text for one in search.suggest(acme, "tool:", by=ada)],
    }


def test_it_is_low_has_no_due_time_and_is_in_its_own_view_alone(failed, acme, ada):
    before = everywhere_else(acme, ada)

    case = failed.case()

    assert case.reasons == ["failed_without_effects"]
    assert (case.risk, case.risk_rank, case.due_at, case.cause) == ("low", 0, None, None)
    assert case.suggestion == Suggestion.RESUME
    assert case.headline == (
        "Agent “ticket-desk” failed at mail.send (no answer in time: “504 Gateway Timeout”)"
        " and nothing took effect"
    )
    assert case.brief == "Failed: no answer in time (“504 Gateway Timeout”)"
    assert everywhere_else(acme, ada) == before
    assert listed(acme, ada, VIEW) == listed(acme, ada, f"{VIEW} 504") == ["run_1"]
    assert search.counts(acme, [VIEW, "-" + VIEW], by=ada, limit=10) == [1, 0]
    assert not Delivery.objects.exists()
    triage.look([case.run_id])
    case.refresh_from_db()
    assert case.revision == 1

    closing.close(case, outcome="expected", reason="Sent by hand.", by=ada, seen=case.revision)

    assert everywhere_else(acme, ada) == before
    assert listed(acme, ada, VIEW) == []
    assert listed(acme, ada, f"{VIEW} is:closed") == ["run_1"]
    triage.look([case.run_id])
    case.refresh_from_db()
    assert case.state == CaseState.CLOSED


def test_the_page_of_its_view_offers_resume_or_close(failed, acme, ada, client):
    case = failed.case()
    client.force_login(ada)

    queue = client.get("/w/acme/queue/")
    page = client.get("/w/acme/queue/", {"q": VIEW})

    assert queue.context["cases"] == []
    assert queue.context["empty"]["title"] == "Nothing to recover"
    [view] = [one for one in page.context["views"] if one["current"]]
    assert (view["name"], view["count"]) == ("Failed without effects", "1")
    [line] = [one["line"] for one in page.context["cases"]]
    for verb in ("resume", "close"):
        assert f'href="/w/acme/cases/{case.pk}/{verb}/"' in line
        assert client.get(f"/w/acme/cases/{case.pk}/{verb}/").status_code == 200
    seen = bulk.dry_run(acme, "close", by=ada, query=VIEW)
    assert [one.case for one in seen.eligible] == [case]
    closing.close(case, outcome="expected", reason="Meant so.", by=ada, seen=case.revision)
    empty = client.get("/w/acme/queue/", {"q": VIEW}).context["empty"]
    assert empty["title"] == "Nothing failed without effects"
    assert "was closed" not in client.get("/w/acme/queue/").context["empty"]["text"]


def test_nothing_is_claimed_where_something_may_have_happened(begin_run):
    for doubt in ("change", "effect", "unknown", "running", "desk"):
        run = begin_run(doubt)
        if doubt == "change":  # it succeeded, and nobody told what it did
            run.does("tickets.update", planned={"targets": [{"type": "ticket", "id": "T-1"}]})
        if doubt == "effect":
            run.does("tickets.update", TICKET)
        if doubt == "unknown":
            run.plans("tickets.update", TICKET[:2])
        run.fails("mail.send")
        if doubt != "running":
            run.ends("failed")
        if doubt == "desk":
            Run.objects.filter(pk=run.row.pk).update(agent=None)

        case = run.case()

        assert case is None or "failed_without_effects" not in case.reasons, doubt
        assert (case is not None) == (doubt in {"change", "effect", "unknown"}), doubt


@pytest.mark.parametrize("how", ["effect", "report"])
def test_once_there_is_more_to_tell_it_comes_to_the_queue_as_news(failed, acme, ada, how):
    case = failed.case()
    Case.objects.update(opened_at=timezone.now() - timedelta(hours=1))

    if how == "effect":
        failed.does("tickets.update", TICKET)
    else:
        cases.report(failed.row, text="Eve got two mails.", by=ada)
    case = failed.case()

    assert case.reasons == ["failed_with_effects" if how == "effect" else "reported"]
    assert not case.without_effects
    assert case.due_at is not None
    assert case.cause.case_count == 1
    assert timezone.now() - case.opened_at < timedelta(minutes=30)
    assert listed(acme, ada, "") == ["run_1"]
    assert listed(acme, ada, VIEW) == []


def test_what_was_in_the_queue_is_neither_taken_out_of_it_nor_opened_again(begin_run, acme, ada):
    """Somebody found out that the call of unknown outcome did nothing."""
    run = begin_run()
    run.plans("tickets.update", TICKET[:2])
    run.ends("failed")
    case = run.case()
    [action] = settling.facts_now(case).unknown()

    settling.settle_action(
        case, action, outcome="no_effect", evidence="normal", by=ada, seen=case.revision
    )
    case = run.case()

    assert not case.without_effects
    assert case.headline.endswith("never said how tickets.update ended: it did not happen")
    assert listed(acme, ada, "") == ["run_1"]
    closing.close(case, outcome="expected", reason="Fine.", by=ada, seen=case.revision)
    triage.look([case.run_id])
    assert run.case().state == CaseState.CLOSED


def test_a_run_that_is_taken_up_again_and_fails_anew_comes_back(failed, acme, ada):
    case = failed.case()
    closing.close(case, outcome="expected", reason="Later.", by=ada, seen=case.revision)

    failed.send("run.resumed")
    failed.fails("mail.send")
    failed.ends("failed")

    case = failed.case()
    assert (case.state, case.without_effects) == (CaseState.OPEN, True)
    assert listed(acme, ada, VIEW) == ["run_1"]
    failed.send("run.resumed")
    failed.does("tickets.update", TICKET)
    failed.ends()
    case = failed.case()
    assert (case.state, case.outcome) == (CaseState.CLOSED, "resumed")
    assert Event.objects.filter(type="case.closed").count() == 2


def test_it_keeps_its_run_no_longer_than_others_until_a_person_takes_it_up(failed, acme, ada):
    case = failed.case()
    runs = [case.run_id]
    assert worked_on(acme, runs) == had_a_case(acme, runs) == set()
    assert not Cause.objects.exists()

    seen = resuming.preview(case)
    assert seen.why_not == ""
    resuming.commit(case, digest=seen.digest, revision=seen.case.revision, by=ada)

    assert worked_on(acme, runs) == had_a_case(acme, runs) == {case.run_id}
