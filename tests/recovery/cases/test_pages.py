"""The operator's pages, without JavaScript: what they show, and who may act on them."""

import re
from datetime import datetime, timedelta
from html import escape, unescape

import pytest
from django.utils import timezone
from django.utils.html import strip_tags

from approvals import versions
from approvals.models import Approval, Pause
from recovery.casework import cases, closing
from recovery.models import Case, CaseOutcome, Plan
from recovery.triage import triage
from tests import people
from tests.recovery.cases.cast import submitted
from tests.recovery.cases.conftest import POLICY
from tests.worlds import kept

pytestmark = pytest.mark.django_db
TWIN = "{connection: shop, operation: restore_row, args: {to: before}}"


@pytest.fixture
@kept(in_turn=True)
def case(raised):
    triage.look()
    return Case.objects.get()


def test_the_queue_shows_the_case_in_one_line(desk, case):
    page = desk.get("/w/acme/queue/")

    assert page.status_code == 200
    assert "A check found it wrong: “flights” is not so" in page.text
    assert "HAT290" not in page.text, "she is shown no payloads"
    assert case.run.run in page.text
    kept = page.text.replace('<span class="nowrap">T-182</span>', "T-182")
    assert case.suggestion_text in kept


def test_nothing_that_an_agent_or_a_customer_wrote_is_markup_in_a_line(desk, case):
    wrote = "<b onclick=x>&\"'"
    texts = ("brief", "request", "customer", "customer_name", "failed_tool", "failed_target",
             "suggestion_text", "needs_approval")  # fmt: skip
    Case.objects.filter(pk=case.pk).update(**dict.fromkeys(texts, wrote), currency='">')

    line = desk.get("/w/acme/queue/").context["cases"][0]["line"]

    assert "<b " not in line
    assert line.count("&lt;b onclick=x&gt;&amp;&quot;&#x27;") == len(texts)
    assert f'data-customer="{escape(wrote)}"' in line
    assert 'data-currency="&quot;&gt;"' in line


def test_what_is_written_on_a_case_is_kept_or_comes_back_with_it(desk, case, ada, acme):
    there = f"/w/acme/cases/{case.pk}/"
    why = "w" * 401

    comment = desk.post(f"{there}comment/", {"comment": "c" * 8_001})
    stop = desk.post(f"{there}pause/", {"kind": "agent", "why": why})

    assert (comment.status_code, stop.status_code) == (422, 422)
    assert "c" * 8_001 in comment.text
    assert "it has 401 characters, of which 400 can be kept" in stop.text
    assert f'value="{why}"' in stop.text
    assert not Pause.objects.exists()
    gone = desk.post(f"{there}pause/", {"kind": "team", "why": "they all err"})
    assert (gone.status_code, "they all err" in gone.text) == (409, True)
    late = desk.post(f"{there}reopen/", {"revision": case.revision, "why": "the seat is wrong"})
    assert late.status_code == 409
    assert "You wrote: the seat is wrong" in late.text
    fresh = Case.objects.get()
    closing.close(
        fresh, outcome=CaseOutcome.EXPECTED, by=ada, seen=fresh.revision, reason="It is fine"
    )
    again = desk.post(f"{there}reopen/", {"revision": 0, "why": "the seat is wrong"})
    assert (again.status_code, ">the seat is wrong</textarea>" in again.text) == (409, True)


def test_a_peek_opens_the_case_beside_the_list(desk, case):
    page = desk.get(f"/w/acme/queue/?peek={case.pk}")

    assert page.context["peek"]["headline"] == case.headline
    assert 'id="peek"' in page.text


def test_of_an_unknown_outcome_no_page_claims_an_effect(desk, begin_run):
    run = begin_run()
    run.fails("payments.charge", outcome="unknown")
    run.ends("failed")
    case = run.case()

    for page in (f"cases/{case.pk}/", f"queue/?peek={case.pk}"):
        text = desk.get(f"/w/acme/{page}").text
        assert "payments.charge may have changed mail welcome" in text
        assert "nobody knows whether it stands" in text


def test_a_call_that_certainly_failed_has_no_line_among_the_effects(desk, begin_run, ticket):
    run = begin_run()
    run.does("tickets.update", ("ticket", "main/T-182", ticket, ticket | {"priority": "high"}))
    run.fails("mail.send", outcome="no_effect")
    run.fails("payments.charge", outcome="unknown")
    case = run.ends("failed").case()

    shown = desk.get(f"/w/acme/cases/{case.pk}/").context["effects"]

    assert [one["standing"] for one in shown] == ["nobody knows whether it stands", "stands"]


def test_a_key_that_is_mistyped_is_offered_as_it_was_meant(desk, case):
    page = desk.get("/w/acme/queue/", {"q": "is:open agnet:ticket-desk"})

    assert "Did you mean “agent:”?" in page.text
    offered = {one["label"]: one["url"] for one in page.context["empty"]["links"]}
    meant = offered["Read it as agent:"]
    assert desk.get(f"/w/acme/queue/{meant}").context["count"] == "1"
    assert "Did you mean" not in desk.get("/w/acme/queue/", {"q": "zebra:1"}).text


def test_a_query_that_cannot_be_read_points_at_its_place(desk, case):
    for q in ("risk:purple", "(is:open", "is:nonsense", "age:>x"):
        page = desk.get("/w/acme/queue/", {"q": q})

        assert page.status_code == 422, q
        assert page.context["query_error"]["message"] in unescape(page.text), q


def test_a_list_says_how_far_it_has_heard_even_if_the_news_is_not_for_it(desk, case):
    """Else its question would go through to Django every two seconds, for the day."""
    drawn = timezone.now() - timedelta(hours=1)

    for q, new in (("", 1), ("tool:nobody", 0), ("(is:open", 0)):
        told = desk.get("/w/acme/queue/fresh/", {"q": q, "since": drawn.isoformat()}).json()

        assert (told["new"], told["gone"]) == (new, {}), q
        assert datetime.fromisoformat(told["heard"]) > drawn, q


def test_a_reopened_case_is_news_to_an_open_queue(desk, case, ben):
    why = f"As asked {'x' * 300} by Sue"
    closing.close(case, outcome="expected", reason=why, by=ben, seen=case.revision)
    drawn = {"since": timezone.now().isoformat()}
    Case.objects.update(opened_at=timezone.now() - timedelta(days=1))
    case.refresh_from_db()

    page = desk.get(f"/w/acme/cases/{case.pk}/").text
    assert ": “As asked xx" in page
    assert f">{why}</p>" in page, "all of it"
    cases.reopen(case, by=ben, seen=case.revision, reason="It was not")

    told = desk.get("/w/acme/queue/fresh/", drawn).json()
    assert (told["new"], told["gone"], told["back"]) == (1, {}, [str(case.pk)])


def test_a_moment_that_is_none_does_not_break_the_queues_news(desk, case):
    assert desk.get("/w/acme/queue/fresh/", {"since": "2026-13-45T00:00Z"}).status_code == 200


def test_a_number_that_no_row_can_have_is_none(desk, case, subtests):
    read = (
        "queue/?peek=",
        "queue/suggest/?q=is&cursor=",
        "audit/?before=",
        "approvals/history/?after=",
        "approvals/history/?q=by:",
        "approvals/?after=2026-11-22T10:00:00Z_",
        f"cases/{case.pk}/compensate/?reach=",
        "x/",
    )
    for number in ("\u00b2", "9" * 5000, "\u0663\u0663", "-1"):
        written = (
            (f"cases/{case.pk}/compensate/", {"reach": number, f"effect-{number}": "skip"}),
            (f"cases/{case.pk}/close/", {"ending": "partly", "owner": number, "due": "2026-12-01"}),
            ("queue/claim/", {"case": number}),
        )
        with subtests.test(number=number[:9]):
            for address in read:
                assert desk.get(f"/w/acme/{address}{number}").status_code in {200, 404}, address
            for address, said in written:
                posted = desk.post(f"/w/acme/{address}", {"revision": number, **said})
                assert posted.status_code < 500, address


def test_a_query_without_a_match_offers_to_drop_its_parts(desk, case):
    page = desk.get("/w/acme/queue/", {"q": "is:open tool:nobody"})

    assert "No case fits" in page.text
    assert "Without tool:nobody" in page.text
    page = desk.get("/w/acme/queue/", {"q": '(is:open OR customer:"Nora Lindt") tool:nobody'})
    drops = [one for one in page.context["empty"]["links"] if one["label"].startswith("Without")]
    assert [one["label"] for one in drops] == ["Without tool:nobody"], "the rest is a query"
    assert desk.get(f"/w/acme/queue/{drops[0]['url']}").status_code == 200


def test_a_desk_without_agents_says_how_to_connect_one(desk):
    assert "No agent is connected yet" in desk.get("/w/acme/queue/").text


def test_the_case_tells_its_story_and_its_effects(desk, case):
    page = desk.get(f"/w/acme/cases/{case.pk}/").text

    assert case.headline in strip_tags(page)
    assert "tickets.update" in page
    assert "Compensate" in page


def test_a_long_headline_is_told_by_its_trouble_with_the_whole_sentence_below(desk, case):
    there = f"/w/acme/cases/{case.pk}/"
    [headline] = re.findall("<h1>.*</h1>", desk.get(there).text)
    assert strip_tags(headline) == escape(case.headline)
    assert '<span class="nowrap">T-182</span>' in headline, "an id is not broken at its hyphen"
    long = "Agent “planner” reports “booked” and “paid”, " * 4 + "then failed at hotels.book"
    Case.objects.update(headline=long, brief="Failed: no room on these dates")

    page = desk.get(there).text

    assert "<h1>Failed: no room on these dates</h1>" in page
    assert f"<p>{escape(long)}</p>" in page


def test_every_tab_of_a_case_opens(desk, case, subtests):
    for tab in ("evidence", "related", "activity", "correction", "nonsense"):
        with subtests.test(tab=tab):
            assert desk.get(f"/w/acme/cases/{case.pk}/?tab={tab}").status_code == 200


def on_its_preview(desk, case):
    """What its form sends."""
    shown = desk.get(f"/w/acme/cases/{case.pk}/compensate/").context
    seen = {"digest": shown["digest"], "revision": shown["case"]["revision"]}
    seen["restores"] = shown["restores"]
    return seen | {"why": "the wrong ticket", "act": "commit"}


def test_the_preview_shows_the_call_and_its_post_runs_exactly_that(desk, case, ada):
    said = on_its_preview(desk, case)
    assert "goes to the record" in desk.get(f"/w/acme/cases/{case.pk}/compensate/").text

    answer = desk.post(f"/w/acme/cases/{case.pk}/compensate/", said)

    assert answer.status_code == 302
    plan = Plan.objects.get()
    assert plan.digest == said["digest"]
    assert plan.drafted_by == ada
    again = desk.post(f"/w/acme/cases/{case.pk}/compensate/", said)
    assert again.status_code == 302, "a proxy that heard no answer sends it once more"
    others = [{"why": "the wrong account"}, {"why": "x" * 9_000}, {"digest": "\0"}]
    for other in (*others, {"restores": "0" * 64}):
        late = desk.post(f"/w/acme/cases/{case.pk}/compensate/", said | other)
        assert late.status_code == 409, other
    assert Plan.objects.count() == 1


def test_a_preview_that_is_no_longer_so_is_shown_anew_and_keeps_what_was_typed(desk, case):
    said = {"digest": "0" * 64, "revision": case.revision, "why": "typed", "act": "commit"}

    answer = desk.post(f"/w/acme/cases/{case.pk}/compensate/", said)

    assert answer.status_code == 409
    assert 'value="typed"' in answer.text
    assert not Plan.objects.exists()


def test_looking_at_previews_changes_nothing(desk, case):
    before = Case.objects.values().get()

    for place in ("compensate", "resume", "close"):
        assert desk.get(f"/w/acme/cases/{case.pk}/{place}/").status_code == 200

    assert Case.objects.values().get() == before
    assert not Plan.objects.exists()


def test_the_suggestion_in_a_line_leads_to_its_preview_for_who_may(desk, client, case, finn, acme):
    def line(person=None):
        if person is not None:
            client.force_login(person)
        return client.get("/w/acme/queue/").context["cases"][0]

    assert line()["suggestion_url"] == f"/w/acme/cases/{case.pk}/compensate/"
    cases.claim(case, by=finn, seen=case.revision)
    assert line()["suggestion_url"] == "", "Finn has it in hand"
    assert line(finn)["suggestion_url"]
    assert line(people.person("vik", people.team(acme, "viewers", "view")))["suggestion_url"] == ""


def test_an_action_shows_the_trace_that_its_client_named(desk, begin_run, settings):
    settings.AMENDS_TRACE_URL = ""
    run = begin_run("run_traced")
    run.trace = {"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "span_id": "00f067aa0ba902b7"}
    run.does("tickets.update", ("ticket", "T-1", {"a": 1}, {"a": 2}))
    run.trace = None
    run.does("tickets.update", ("ticket", "T-2", {"a": 1}, {"a": 2}))
    address = f"/w/acme/cases/{run.ends('failed').case().pk}/"

    page = desk.get(address)

    first, second = [one for one in page.context["story"]["items"] if one["kind"] == "action"]
    assert first["trace"] == ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
    assert (first["trace"].url, second["trace"]) == ("", None)
    for where in (address, "/w/acme/runs/run_traced/"):
        settings.AMENDS_TRACE_URL = ""
        text = desk.get(where).text
        assert text.count("span <code>00f067aa0ba902b7</code>") == 1
        assert 'data-copy="4bf92f3577b34da6a3ce929d0e0e4736"' in text
        settings.AMENDS_TRACE_URL = "https://traces.example/{trace_id}"
        assert "https://traces.example/4bf92f3577b34da6a3ce929d0e0e4736" in desk.get(where).text


def test_a_line_says_whose_approval_the_suggested_act_takes(desk, case):
    told = {"needs_approval": "1 person from finance", "reversibility": "exact"}
    for suggestion, sign, approval in (
        ("compensate", "exact", "1 person from finance"),
        ("resume", "", "None"),
        ("settle", "unknown", "None yet"),
    ):
        Case.objects.filter(pk=case.pk).update(suggestion=suggestion, **told)

        line = desk.get("/w/acme/queue/").context["cases"][0]

        assert (line["reversibility"], line["approval"]) == (sign, approval)
        assert ("undo-" in line["line"]) == bool(sign), suggestion


def test_a_query_that_cannot_be_read_says_nothing_of_the_cases(desk, case):
    page = desk.get("/w/acme/queue/", {"q": "colour:red is:open"})

    assert page.status_code == 422
    assert "This search cannot be read" in page.text
    assert "No case fits" not in page.text
    assert page.context["empty"]["links"][0]["url"] == "?q=is%3Aopen"
    assert page.context["empty"]["links"][0]["label"] == "Leave out colour:red"
    wrong = desk.get("/w/acme/queue/", {"q": "risk:hihg"}).context["query_error"]
    assert wrong["message"].endswith("none of: low, medium, high, critical.")
    assert "Save view" not in page.text, "it would keep a mistake"


def test_a_case_is_closed_with_a_reason(desk, case):
    said = {"ending": "expected", "why": "it was meant so", "revision": case.revision}

    desk.post(f"/w/acme/cases/{case.pk}/close/", said)

    case.refresh_from_db()
    assert case.state == "closed"
    assert case.outcome == "expected"


def test_what_is_left_gets_its_owner_on_the_page_and_says_what_it_is(desk, case, ada):
    left = {"ending": "partly", "owner": str(ada.pk), "due": "2099-01-01"}
    said = left | {"why": "the seat is gone", "revision": case.revision}
    shown = desk.get(f"/w/acme/cases/{case.pk}/close/").context["standing"]

    desk.post(f"/w/acme/cases/{case.pk}/close/", said)

    case.refresh_from_db()
    assert case.outcome == "partly"
    assert [one.text for one in case.residues.order_by("pk")] == [one["summary"] for one in shown]
    assert {one.owner for one in case.residues.all()} == {ada}


def test_where_nothing_says_how_it_is_undone_no_page_offers_to_compensate_until_there_is_a_way(
    desk, begin_run, acme, ticket
):
    run = begin_run()
    run.does("rows.change", ("ticket", "main/T-182", ticket, ticket | {"priority": "high"}))
    run.ends("failed")
    case = run.case()

    line, page = desk.get("/w/acme/queue/").text, desk.get(f"/w/acme/cases/{case.pk}/")

    assert "Teach the desk to undo rows.change" in line
    assert {act["label"]: act["why_not"] for act in page.context["acts"]} == {
        "Resume…": "",
        "Compensate…": "An administrator can teach the desk how",
        "Close…": "",
    }
    assert [act["label"] for act in page.context["acts"] if act["main"]] == ["Compensate…"]
    assert "say who looks after what is left" in page.text

    later = POLICY.replace("  twins:", f'  twins:\n    "rows.change": {TWIN}')
    versions.activate(versions.save(acme, later, by=None), by=None)
    acts = desk.get(f"/w/acme/cases/{case.pk}/").context["acts"]
    assert all(not act["why_not"] for act in acts)


def test_the_day_until_which_what_is_left_is_due_has_a_time_zone(desk, case):
    assert "Until the end of (UTC)" in desk.get(f"/w/acme/cases/{case.pk}/close/").text


def test_closing_without_a_reason_says_so(desk, case):
    said = {"ending": "expected", "why": " ", "revision": case.revision}

    answer = desk.post(f"/w/acme/cases/{case.pk}/close/", said)

    assert answer.status_code == 409
    assert "Say why" in answer.text


def test_the_second_of_two_reads_who_was_first_and_did_what(desk, case, finn):
    said = {"revision": case.revision, "why": "typed", "act": "commit"}
    closing.close(
        case, outcome="expected", reason="as agreed", by=finn, seen=case.revision, left=[]
    )

    answer = desk.post(f"/w/acme/cases/{case.pk}/compensate/", said)

    assert answer.status_code == 409
    told = "Somebody changed this case since you saw it. Last, Finn closed the case, "
    assert re.search(rf"{re.escape(told)}\d+ s ago\. Nothing was changed by you\.", answer.text)
    assert "Look at resuming it" not in answer.text, "a closed case can only be reopened"


def test_two_people_cannot_both_act(desk, case, finn):
    cases.claim(case, by=finn, seen=case.revision)
    said = on_its_preview(desk, case)

    answer = desk.post(f"/w/acme/cases/{case.pk}/compensate/", said)

    assert answer.status_code == 409
    assert "finn" in answer.text.lower()
    assert not Plan.objects.exists()


def test_a_claim_is_seen_in_the_queue_and_can_be_released(desk, case):
    desk.post(f"/w/acme/cases/{case.pk}/claim/", {"act": "claim", "revision": case.revision})
    assert "you" in desk.get("/w/acme/queue/").context["cases"][0]["claimant"]

    desk.post(f"/w/acme/cases/{case.pk}/claim/", {"act": "release", "revision": case.revision})
    assert desk.get("/w/acme/queue/").context["cases"][0]["claimant"] == ""


def test_a_comment_stands_in_the_activity(desk, case):
    desk.post(f"/w/acme/cases/{case.pk}/comment/", {"comment": "called the customer"})

    assert "called the customer" in desk.get(f"/w/acme/cases/{case.pk}/?tab=activity").text


def test_an_approver_reads_and_cannot_compensate(client, case, ben):
    client.force_login(ben)

    assert client.get(f"/w/acme/cases/{case.pk}/").status_code == 200
    assert client.get(f"/w/acme/cases/{case.pk}/compensate/").status_code == 403
    assert client.post(f"/w/acme/cases/{case.pk}/close/", {}).status_code == 403


def test_a_stranger_finds_no_case_and_no_queue(client, case, dev):
    client.force_login(dev)

    assert client.get(f"/w/acme/cases/{case.pk}/").status_code == 404
    assert client.get("/w/acme/queue/").status_code == 404
    assert client.get(f"/w/globex/cases/{case.pk}/").status_code == 404


def test_without_view_sensitive_no_payload_is_on_the_page(desk, case):
    page = desk.get(f"/w/acme/cases/{case.pk}/").text
    preview = desk.get(f"/w/acme/cases/{case.pk}/compensate/").text

    assert "hidden: needs view_sensitive" in page
    assert "hidden: needs view_sensitive" in preview
    assert "Nora" not in preview


def test_a_stopped_plan_cancels_what_was_not_sent(desk, case, ada):
    submitted(case, ada, reason="wrong ticket")

    page = desk.post(f"/w/acme/cases/{case.pk}/stop/", follow=True).text

    plan = Plan.objects.get()
    assert plan.state == "stopped"
    assert f"Stopped: {plan.steps.count()} step" in page
    assert {step.state for step in plan.steps.all()} == {"cancelled"}


def test_a_plan_has_one_digest_under_one_name_wherever_it_is_shown(desk, raised, acme, ada, cleo):
    asks = POLICY.replace(
        "{risk: LOW, approval: AUTO}\n  twins", "{risk: LOW, approval: MANUAL}\n  twins"
    )
    versions.activate(versions.save(acme, asks, by=None), by=None)
    case = raised.case()
    preview = desk.get(f"/w/acme/cases/{case.pk}/compensate/").text
    plan = submitted(case, ada)

    shown = f"plan digest <code>{plan.digest[:12]}</code>"
    asked = Approval.objects.get()
    card = people.logged_in(cleo).get(f"/w/acme/approvals/{asked.pk}/").text
    whole = desk.get(f"/w/acme/cases/{case.pk}/").text
    assert [shown in page for page in (preview, whole, card)] == [True] * 3
    assert "goes to approvers and record" in preview
    assert f"with rules and expiry <code>{asked.digest[:12]}</code>" in card
