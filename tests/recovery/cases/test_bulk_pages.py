"""Bulk acts on their pages: what the dry run shows is what starts, and each case tells its end."""

from datetime import timedelta

import pytest
from django.utils import timezone

from recovery.casework import bulk, cases
from recovery.casework.bulk_verbs import VERBS
from recovery.models import BulkItem, BulkJob, Case, Plan
from tests.people import logged_in, person, team
from tests.recovery.engine import by_hand
from workspaces.free_text import REASON_CHARACTERS_MAX


def dry_run(desk, **said):
    return desk.get("/w/acme/bulk/new/", {"act": "compensate"} | said)


def started(page, **said):
    """What the form of a dry run posts."""
    items = [one["value"] for one in page.context["eligible"]]
    return {"act": "compensate", "why": "Same cause", "item": items} | said


def instead_of(act):
    """What the page of one act offers in its place: every other that there is, in their order."""
    return [f"{verb.label} instead" for name, verb in VERBS.items() if name != act]


def test_the_dry_run_shows_who_is_meant_and_who_not_and_writes_nothing(desk, three):
    page = dry_run(desk, q="is:open")

    assert "<h1>Compensate <span data-chosen-count>2 cases</span></h1>" in page.text
    shown = [one["run"] for one in page.context["eligible"]]
    assert shown == ["run_2", "run_1"], "as in the queue: what failed last"
    Case.objects.filter(run__run="run_1").update(risk="critical")
    anew = dry_run(desk, q="is:open").context["eligible"]
    assert [one["run"] for one in anew] == ["run_1", "run_2"], "the highest risk stands first"
    assert "nobody knows whether it happened" in page.context["not_eligible"][0]["why"]
    assert not BulkJob.objects.exists()

    assert dry_run(desk, q="is:open", act="no-such-act").status_code == 404
    assert desk.post("/w/acme/bulk/new/", started(page, act="no-such-act")).status_code == 404
    assert not BulkJob.objects.exists()


def test_exactly_what_was_left_ticked_is_started(desk, three, ada):
    page = dry_run(desk, q="is:open")
    said = started(page)
    said["item"] = said["item"][1:]

    answer = desk.post("/w/acme/bulk/new/", said)

    job = BulkJob.objects.get()
    assert answer["location"] == f"/w/acme/bulk/{job.pk}/"
    assert (job.started_by, job.reason) == (ada, "Same cause")
    assert [one.case.run.run for one in job.items.all()] == ["run_1"]
    assert not Plan.objects.exists(), "the page only writes down what the sweeper does"


def test_what_is_too_long_is_refused_with_nothing_lost(desk, three):
    page = dry_run(desk, q="is:open")
    long = {"why": "x" * (REASON_CHARACTERS_MAX + 1)}

    refused = desk.post("/w/acme/bulk/new/", started(page, **long))

    assert refused.status_code == 422
    assert "it has 2,001 characters, of which 2,000 can be kept." in refused.text
    assert refused.context["why"] == long["why"]
    assert not BulkJob.objects.exists()


@pytest.mark.parametrize("q", ["is:", "(", "is:open " * 200])
def test_a_query_of_no_dry_run_is_refused_in_words(desk, three, q):
    said = started(dry_run(desk, q="is:open"), q=q, why=" ")

    assert desk.post("/w/acme/bulk/new/", said).status_code == 422
    assert not BulkJob.objects.exists()


def test_closing_asks_how_they_end_and_resuming_does_not(desk, three):
    page = dry_run(desk, act="close", q="run:run_1 OR run:run_2")
    assert [one["value"] for one in page.context["choice"]["options"]] == [
        "expected", "already_handled", "duplicate"
    ]  # fmt: skip
    desk.post("/w/acme/bulk/new/", started(page, act="close", ending="duplicate"))
    bulk.sweep()

    shown = desk.get(f"/w/acme/bulk/{BulkJob.objects.get().pk}/")
    assert [one["case_word"] for one in shown.context["items"]] == ["Duplicate"] * 2
    other = dry_run(desk, act="resume", q="is:open")
    assert (other.context["choice"]["name"], 'name="ending"' in other.text) == ("from", False)
    assert [one["label"] for one in other.context["others"]] == instead_of("resume")


def test_the_queue_offers_every_act_that_there_is_for_many_cases(desk, three):
    page = desk.get("/w/acme/queue/")

    offered = {one["name"]: (one["label"], one["key"]) for one in page.context["bulk_verbs"]}
    assert offered == {name: (verb.label, verb.key) for name, verb in VERBS.items()}
    assert all(f'value="{name}"' in page.text for name in VERBS)


def test_where_the_runs_go_on_is_chosen_and_kept(desk, three):
    page = dry_run(desk, act="resume", q="is:open")
    assert [(one["label"], one["selected"]) for one in page.context["choice"]["options"]] == [
        ("the last checkpoint of each", True), ("the start", False),
    ]  # fmt: skip

    page = desk.get(page.context["choice"]["options"][1]["url"])
    assert [one["selected"] for one in page.context["choice"]["options"]] == [False, True]
    assert len(page.context["eligible"]) == 2
    assert 'name="from" value="start"' in page.text
    items = [one["value"] for one in page.context["eligible"]]
    said = {"act": "resume", "q": "is:open", "from": "start", "why": "It is back", "item": items}
    desk.post("/w/acme/bulk/new/", said)

    assert BulkJob.objects.get().resume_from == "start"
    assert dry_run(desk, act="compensate", q="is:open").context["choice"] is None


def test_a_job_tells_of_each_case_what_became_of_it(desk, three, ada):
    page = dry_run(desk, q="is:open")
    desk.post("/w/acme/bulk/new/", started(page))
    job = BulkJob.objects.get()
    cases.report(three[0].run, text="Look at this one", by=ada)
    running = desk.get(f"/w/acme/bulk/{job.pk}/")
    assert running.context["progress_url"]

    bulk.sweep()

    page = desk.get(f"/w/acme/bulk/{job.pk}/")
    assert [one["word"] for one in page.context["items"]] == ["Refused", "Submitted"]
    assert page.context["job"]["title"] == "Compensate 2 cases"
    BulkJob.objects.update(query="cause:" + "0123456789ab" + "c" * 52)
    for listed in (desk.get(f"/w/acme/bulk/{job.pk}/"), desk.get("/w/acme/bulk/")):
        assert "Found by <code>cause:0123456789ab…</code>" in listed.text, "nobody reads a hash"
    assert "Somebody changed this case since you saw it." in page.text
    counts = {one["name"]: one["value"] for one in page.context["counts"]}
    assert (counts["Submitted"], counts["Restored"], counts["Refused"]) == ("1", "0", "1")
    assert page.context["progress_url"], "submitted is not restored"
    by_hand.advance(Plan.objects.get().pk)
    page = desk.get(f"/w/acme/bulk/{job.pk}/")
    assert [one["case_word"] for one in page.context["items"]] == ["Open", "Restored"]
    assert page.context["progress_url"] == "", "it is over, so nobody asks any more"
    done = BulkItem.objects.get(state="done").case
    Case.objects.filter(pk=done.pk).update(state="open", outcome="", closed_at=None)
    for state in ("waiting", "recovering"):
        Case.objects.filter(pk=done.pk).update(state=state)
        beyond = desk.get(f"/w/acme/bulk/{job.pk}/?after={BulkItem.objects.latest('pk').pk}")
        assert beyond.context["items"] == []
        assert beyond.context["progress_url"], "its figures go on counting, on whichever page"


def test_stop_leaves_what_has_not_begun(desk, three, finn):
    desk.post("/w/acme/bulk/new/", started(dry_run(desk, q="is:open")))
    job = BulkJob.objects.get()

    page = logged_in(finn).post(f"/w/acme/bulk/{job.pk}/stop/", follow=True)

    assert "2 cases that had not begun stay as they are" in page.text
    assert "started by <b>Ada</b>" in page.text, "and not: stopped by Ada"
    assert page.text.count("Stopped by Finn.") == 2
    assert set(BulkItem.objects.values_list("state", flat=True)) == {"stopped"}
    assert page.context["stop_url"] == ""
    one = started(dry_run(desk, q="is:open"))
    desk.post("/w/acme/bulk/new/", one | {"item": one["item"][:1]})
    newest = BulkJob.objects.latest("pk")
    newest.items.update(state="done")
    page = desk.post(f"/w/acme/bulk/{newest.pk}/stop/", follow=True)
    assert "Nothing was left to stop" in page.text
    assert page.context["job"]["state"] == "Running", "it ends by itself"
    newest.items.update(state="waiting")
    page = desk.post(f"/w/acme/bulk/{newest.pk}/stop/", follow=True)
    assert "1 case that had not begun stays as it is" in page.text


def test_without_a_reason_nothing_starts_and_the_dry_run_stays(desk, three):
    page = desk.post("/w/acme/bulk/new/", started(dry_run(desk, q="is:open"), why=" "))

    assert page.status_code == 422
    assert len(page.context["eligible"]) == 2
    assert not BulkJob.objects.exists()


def test_a_forged_form_starts_nothing(desk, three, subtests):
    for items in ([], ["x"], ["1:2"], ["9" * 30 + ":1:d"], ["1:-1:d", "::"]):
        said = {"act": "compensate", "why": "x", "item": items}

        with subtests.test(items=items):
            assert desk.post("/w/acme/bulk/new/", said).status_code in (302, 422)
            assert not BulkItem.objects.filter(case__in=three, digest="d").exists()


def test_one_chosen_case_goes_to_its_own_preview(desk, three):
    answer = dry_run(desk, case=three[0].pk)

    assert answer["location"] == f"/w/acme/cases/{three[0].pk}/compensate/"


def test_a_query_that_cannot_be_read_is_said(desk, three):
    page = dry_run(desk, q="is:nonsense")

    assert page.status_code == 422
    assert "is none of" in page.text


def test_too_many_cases_are_refused_before_any_is_looked_at(desk, three, monkeypatch):
    monkeypatch.setattr(bulk, "CASES_MAX", 2)

    page = dry_run(desk, q="is:open")

    assert "At most 2 cases at once" in page.text
    assert page.context["why_not"]


def test_cases_of_another_workspace_are_never_frozen(client, three, dev, globex):
    client.force_login(dev)
    said = [f"{one.pk}:{one.revision}:d" for one in three]

    chosen = client.get("/w/globex/bulk/new/", {"case": [one.pk for one in three]})
    client.post("/w/globex/bulk/new/", {"act": "close", "why": "x", "item": said})

    assert chosen.context["eligible"] == chosen.context["not_eligible"] == []
    assert not BulkItem.objects.exists()


def test_a_viewer_sees_jobs_and_starts_or_stops_none(client, desk, three, acme):
    desk.post("/w/acme/bulk/new/", started(dry_run(desk, q="is:open")))
    job = BulkJob.objects.get()
    client.force_login(person("vik", team(acme, "viewers", "view")))

    assert client.get("/w/acme/bulk/").status_code == 200
    assert client.get(f"/w/acme/bulk/{job.pk}/").context["stop_url"] == ""
    assert client.post(f"/w/acme/bulk/{job.pk}/stop/").status_code == 403
    assert client.post("/w/acme/bulk/new/", {"act": "close"}).status_code == 403
    assert job.items.filter(state="waiting").count() == 2


def test_the_other_acts_are_for_the_cases_that_were_chosen(desk, three):
    chosen = [one.pk for one in three[:2]]
    page = dry_run(desk, q="is:open", case=chosen)
    refused = desk.post("/w/acme/bulk/new/", started(page, why=" ", q="is:open"))

    for shown in (page, refused):
        labels = [one["label"] for one in shown.context["others"]]
        assert labels == instead_of("compensate")
        anew = desk.get(shown.context["others"][1]["url"])
        assert [one["run"] for one in anew.context["eligible"]] == ["run_2", "run_1"]
        assert anew.context["not_eligible"] == [], "nobody chose the third"


def test_all_that_match_are_those_of_the_list(desk, three):
    """Neither who was put off, nor only those of the last 90 days."""
    now = timezone.now()
    first, second, third = three
    Case.objects.filter(pk=first.pk).update(snoozed_until=now + timedelta(hours=1))
    Case.objects.filter(pk=second.pk).update(failed_at=now - timedelta(days=100))
    queue = desk.get("/w/acme/queue/")
    assert {one["id"] for one in queue.context["cases"]} == {second.pk, third.pk}

    page = desk.get(queue.context["bulk_all_url"])

    rows = [*page.context["eligible"], *page.context["not_eligible"]]
    assert {one["url"] for one in rows} == {
        f"/w/acme/cases/{pk}/" for pk in (second.pk, third.pk)
    }  # fmt: skip
    assert [one["label"] for one in page.context["others"]] == instead_of("compensate")
