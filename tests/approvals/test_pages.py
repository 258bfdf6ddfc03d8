"""The inbox in a browser without JavaScript: what is shown, and that only a POST decides."""

import re
import time
from dataclasses import replace
from datetime import timedelta

import pytest
from django.contrib.auth import HASH_SESSION_KEY
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from approvals import awaiting, grants, inbox
from approvals.models import Approval, ApprovalState
from approvals.policy import RequiredApprovers
from tests.approvals.cast import refund
from tests.people import person
from workspaces import teams

PASSWORD = "a long password of somebody"
LIST, HISTORY = "/w/acme/approvals/", "/w/acme/approvals/history/"


@pytest.fixture
def as_person(client):
    def enter(who, *, proved_seconds_ago=None):
        browser = Client()
        if proved_seconds_ago is None:
            browser.force_login(who)
            return browser
        who.set_password(PASSWORD)
        who.save()
        browser.post("/accounts/login/", {"login": who.email, "password": PASSWORD})
        session = browser.session
        for record in session["account_authentication_methods"]:
            record["proved_at"] = time.time() - proved_seconds_ago
        session.save()
        return browser

    return enter


def card_of(approval):
    return f"/w/acme/approvals/{approval.pk}/"


def decide(browser, approval, decision="grant", digest=None, reason="checked", **headers):
    said = {"decision": decision, "digest": digest or approval.digest, "reason": reason}
    return browser.post(f"{card_of(approval)}decide/", said, headers=headers)


def test_an_approver_finds_reads_and_decides_without_a_script(as_person, ask, ben):
    approval, browser = ask(), as_person(ben)

    listed = browser.get(LIST).content.decode()
    assert card_of(approval) in listed
    shown = browser.get(card_of(approval)).content.decode()
    assert approval.headline in shown
    assert "payments.refund" in shown
    stamp = re.search(r'name="shown" value="([^"]+)"', shown)[1]
    said = {"decision": "grant", "digest": approval.digest, "reason": "ok", "shown": stamp}
    answered = browser.post(f"{card_of(approval)}decide/", said)

    assert answered.status_code == 302
    approval.refresh_from_db()
    assert approval.state == ApprovalState.GRANTED
    decision = approval.decisions.get()
    assert decision.shown_seconds >= 0
    assert decision.shown["digest"] == approval.digest
    assert card_of(approval) not in browser.get(LIST).content.decode()
    assert card_of(approval) in browser.get(HISTORY).content.decode()


def test_an_empty_list_does_not_hide_what_waits_for_others(as_person, ask, ben):
    browser = as_person(ben)
    assert "No agent has asked yet." in browser.get(LIST).text

    ask(RequiredApprovers("leads", 1))

    empty = browser.get(LIST).text
    assert "What waits now is asked of others." in empty
    assert f'href="{LIST}?view=all"' in empty


def test_who_decides_nothing_is_led_to_what_waits(as_person, ask, operators):
    browser = as_person(person("vera", operators))
    assert "Show what waits for others" not in browser.get(LIST).text
    ask()

    empty = browser.get(LIST).text

    assert "You do not decide here." in empty
    assert "Show what waits for others" in empty


def test_a_scanner_that_opens_every_link_decides_nothing(as_person, ask, ben):
    approval, browser = ask(), as_person(ben)
    for path in (card_of(approval), f"{card_of(approval)}decide/", f"{card_of(approval)}withdraw/"):
        for query in ("", "?decision=grant&digest=" + approval.digest):
            assert browser.get(path + query).status_code in {200, 405}

    approval.refresh_from_db()
    assert approval.state == ApprovalState.WAITING


def test_a_stale_page_is_told_409_and_loses_nothing_typed(as_person, ask, ben, cleo, finance):
    approval = ask()
    inbox.grant(approval, by=cleo, seen=approval.digest)

    answered = decide(as_person(ben), approval, reason="my long thought")

    assert answered.status_code == 409
    assert "already granted" in answered.content.decode()
    other = ask()
    answered = decide(as_person(ben), other, digest="0" * 64, reason="my long thought")
    assert answered.status_code == 409
    assert "my long thought" in answered.content.decode()


LONG, TOO_LONG = "y" * 2_000, "y" * 2_001
LIMIT = "it has 2,001 characters, of which 2,000 can be kept"


@pytest.mark.parametrize("decision", ["grant", "reject"])
def test_a_reason_is_kept_whole_or_refused_with_nothing_lost(as_person, ask, ben, decision):
    approval = ask()

    refused = decide(as_person(ben), approval, decision, reason=TOO_LONG)

    assert refused.status_code == 422
    assert LIMIT in refused.text
    assert f'value="{TOO_LONG}"' in refused.text
    assert "maxlength" not in refused.text
    assert not approval.decisions.exists()
    assert decide(as_person(ben), approval, decision, reason=LONG).status_code == 302
    assert approval.decisions.get().reason == LONG


def test_a_question_back_and_its_answer_are_kept_whole_or_come_back(as_person, ask, ada, ben):
    approval, bens, adas = ask(), as_person(ben), as_person(ada)
    ask_url = f"{card_of(approval)}ask/"

    refused = bens.post(ask_url, {"question": TOO_LONG, "reason": "half a thought"})

    assert (refused.status_code, LIMIT in refused.text) == (422, True)
    assert f'value="{TOO_LONG}"' in refused.text
    assert "half a thought" in refused.text
    bens.post(ask_url, {"question": LONG})
    asked = approval.clarifications.get()
    assert asked.question == LONG
    answer_url, name = f"{card_of(approval)}answer/{asked.pk}/", f"answer_{asked.pk}"
    refused = adas.post(answer_url, {name: "z" * 8_001})
    assert (refused.status_code, f'value="{"z" * 8_001}"' in refused.text) == (422, True)
    adas.post(answer_url, {name: LONG})
    asked.refresh_from_db()
    assert asked.answer == LONG


def test_what_was_written_too_late_is_still_shown(as_person, ask, ben, cleo, ada):
    approval = ask()
    bens, adas = as_person(ben), as_person(ada)
    inbox.grant(approval, by=cleo, seen=approval.digest)

    late = decide(bens, approval, "reject", reason="the wrong card, I called her")
    too_long = adas.post(f"{card_of(approval)}withdraw/", {"reason": TOO_LONG})

    assert (late.status_code, "You wrote: the wrong card, I called her" in late.text) == (409, True)
    assert (too_long.status_code, f'value="{TOO_LONG}"' in too_long.text) == (422, True)
    approval.refresh_from_db()
    assert approval.state == ApprovalState.GRANTED


def test_with_htmx_only_the_card_comes_back(as_person, ask, ben):
    approval = ask()
    answered = decide(as_person(ben), approval, **{"HX-Request": "true"})

    html = answered.content.decode()
    assert answered.status_code == 200
    assert "<html" not in html
    assert 'id="card"' in html


def test_after_the_first_of_two_yeses_the_line_beside_the_card_says_so(as_person, ask, ben, cleo):
    approval = ask(RequiredApprovers("finance", 1), RequiredApprovers("leads", 1))
    everything = {"HX-Request": "true", "HX-Current-URL": f"http://desk{LIST}?view=all"}

    def line(who):
        html = decide(as_person(who), approval, **everything).content.decode()
        return html.split(f'<li id="line-{approval.pk}"')[1].split("</li>")[0]

    first = line(ben)
    since = (timezone.now() - timedelta(hours=1)).isoformat()
    fresh = {
        view: as_person(ben).get(f"{LIST}fresh/", {"since": since, "view": view}).json()
        for view in ("all", "mine")
    }
    second = line(cleo)

    assert 'class="answered" hx-swap-oob="true"' in first
    assert "1 of 2 agreed · you have answered" in first
    assert f'href="{card_of(approval)}?view=all"' in first, "it leads to where the list still is"
    assert fresh["mine"]["gone"] == {str(approval.pk): "You have answered"}
    assert fresh["all"]["gone"] == {}, "there it still waits, for others"
    assert 'class="gone"' in second
    assert "Approved" in second


def test_law_14_the_badge_equals_the_list(as_person, ask, ben, cleo):
    for _ in range(3):
        ask()
    ask(RequiredApprovers("leads", 1))
    both = ask(RequiredApprovers("finance", 1), RequiredApprovers("leads", 1))
    inbox.grant(both, by=ben, seen=both.digest)

    for who, expected in ((ben, 3), (cleo, 5)):
        html = as_person(who).get(LIST).content.decode()
        assert len(set(re.findall(r'data-id="(\d+)"', html))) == expected
        assert awaiting.among(Approval.objects.all(), who).count() == expected
        assert re.search(rf'data-count="approvals"[^>]*>\s*{expected}\s*<', html)


def test_critical_asks_for_a_fresh_log_in_first(as_person, ask, ben):
    approval = ask(fresh_login=True, risk="critical")
    stale = as_person(ben, proved_seconds_ago=600)
    assert "reauthenticate" in stale.get(card_of(approval)).content.decode()
    assert decide(stale, approval).status_code == 409
    fresh = as_person(ben, proved_seconds_ago=10)
    assert decide(fresh, approval).status_code == 302
    approval.refresh_from_db()
    assert approval.state == ApprovalState.GRANTED


def test_whoever_comes_through_single_sign_on_alone_is_never_fresh(as_person, ask, ben):
    approval = ask(fresh_login=True, risk="critical")
    browser = as_person(ben, proved_seconds_ago=1)
    session = browser.session
    for record in session["account_authentication_methods"]:
        record["method"] = "socialaccount"
    session.save()
    ben.set_unusable_password()
    ben.save()
    session[HASH_SESSION_KEY] = ben.get_session_auth_hash()
    session.save()

    assert "set one up first" in browser.get(card_of(approval)).content.decode()
    assert decide(browser, approval).status_code == 409


def test_what_an_agent_writes_is_escaped_and_its_hidden_characters_are_seen(as_person, ask, ben):
    nasty = "<script>alert(1)</script> pay\u202etxe"
    approval = ask(calls=[replace(refund(), args={"note": nasty})])
    Approval.objects.filter(pk=approval.pk).update(
        agent_text={"goal": nasty}, previews=[], headline="Refund"
    )

    html = as_person(ben).get(card_of(approval)).content.decode()

    assert "<script>alert" not in html
    assert "⟦U+202E⟧" in html
    assert "hidden" in html.lower()


def test_whoever_asked_withdraws_and_learns_why_they_cannot_answer(as_person, ask, ada):
    approval, browser = ask(), as_person(ada)
    assert "second person" in browser.get(card_of(approval)).content.decode()

    assert (
        browser.post(f"{card_of(approval)}withdraw/", {"reason": "wrong case"}).status_code == 302
    )
    approval.refresh_from_db()
    assert (approval.state, approval.closing_reason) == ("withdrawn", "wrong case")


def test_live_news_say_what_is_new_and_what_is_gone(as_person, ask, ben, cleo):
    browser = as_person(ben)
    gone = ask()
    since = (timezone.now() - timedelta(seconds=1)).isoformat()
    Approval.objects.filter(pk=gone.pk).update(asked_at=timezone.now() - timedelta(hours=1))
    inbox.grant(gone, by=cleo, seen=gone.digest)
    ask()

    news = browser.get("/w/acme/approvals/fresh/", {"since": since}).json()

    assert news["new"] == 1
    assert news["gone"] == {str(gone.pk): "Approved"}
    assert news["counts"] == {"approvals": "1"}


def test_who_is_gone_is_told_once_and_nobody_is_left_out(as_person, ask, ben, cleo, monkeypatch):
    monkeypatch.setattr("workspaces.news.LEFT_MAX", 2)
    browser, asked = as_person(ben), [ask() for _ in range(3)]
    hour_ago = timezone.now() - timedelta(hours=1)
    for minute, approval in enumerate(asked):
        inbox.grant(approval, by=cleo, seen=approval.digest)
        decided = hour_ago + timedelta(minutes=minute)
        Approval.objects.filter(pk=approval.pk).update(decided_at=decided)
    path = "/w/acme/approvals/fresh/"
    page = {"since": (hour_ago - timedelta(minutes=1)).isoformat()}

    first = browser.get(path, page).json()
    then = browser.get(path, page | {"heard": first["heard"]}).json()
    last = browser.get(path, page | {"heard": then["heard"]}).json()

    assert [set(one["gone"]) for one in (first, then, last)] == [
        {str(asked[0].pk), str(asked[1].pk)},
        {str(asked[2].pk)},
        set(),
    ]


@pytest.mark.parametrize("query", ["?after=x", "?after=2026_1", "?view=%00", "?q=" + "x" * 5000])
def test_no_address_breaks_the_list(as_person, ask, ben, query):
    ask()
    assert as_person(ben).get(LIST + query).status_code == 200
    assert as_person(ben).get(HISTORY + query).status_code == 200


def test_a_long_list_is_paged_without_gaps(as_person, ask, ben, monkeypatch):
    from approvals.views import lists

    monkeypatch.setattr(lists, "PAGE", 2)
    wanted = {str(ask().pk) for _ in range(5)}
    browser, seen, path = as_person(ben), set(), LIST
    while path:
        html = browser.get(path).content.decode()
        seen |= set(re.findall(r'data-id="(\d+)"', html))
        found = re.search(r'href="(\?[^"]*after[^"]*)"', html)
        path = LIST + found[1].replace("&amp;", "&") if found else None

    assert seen == wanted


def test_teams_are_asked_as_they_stand_now(ask, ben, finance, leads):
    approval = ask(RequiredApprovers("leads", 1))
    assert awaiting.among(Approval.objects.all(), ben).count() == 0
    teams.add(leads, ben, by=None)
    assert list(awaiting.among(Approval.objects.all(), ben)) == [approval]


def test_answers_are_counted_for_prometheus_once_they_are_through(
    ask, ben, as_person, django_capture_on_commit_callbacks
):
    from prometheus_client import REGISTRY

    def counted():
        labels = {"answer": "yes", "risk": "high"}
        return (
            REGISTRY.get_sample_value("amends_approval_answers_total", labels) or 0,
            REGISTRY.get_sample_value("amends_approval_decide_seconds_count", {"end": "granted"})
            or 0,
        )

    before, approval = counted(), ask()
    with django_capture_on_commit_callbacks(execute=True):
        decide(as_person(ben), approval)
    assert counted() == (before[0] + 1, before[1] + 1)
    decide(as_person(ben), approval)  # too late, and nothing was given
    assert counted() == (before[0] + 1, before[1] + 1)


def test_a_deactivated_approver_with_the_card_still_open_decides_nothing(ask, ben, as_person):
    approval, browser = ask(), as_person(ben)
    browser.get(card_of(approval))
    ben.is_active = False
    ben.save()

    answered = decide(browser, approval)

    assert answered.status_code in {302, 403, 404}
    assert "/accounts/login/" in answered.headers.get("Location", "/accounts/login/")
    approval.refresh_from_db()
    assert approval.state == ApprovalState.WAITING
    assert approval.decisions.count() == 0


def test_a_stranger_finds_no_card_and_no_answer_counts_nor_does_a_viewers(
    ask, ben, dev, operators, as_person
):
    approval, browser = ask(), as_person(dev)

    assert browser.get(card_of(approval)).status_code == 404
    for path in ("decide/", "ask/", "withdraw/", "answer/1/"):
        said = {"decision": "grant", "digest": approval.digest, "question": "?", "reason": "x"}
        assert browser.post(card_of(approval) + path, said).status_code == 404
    assert decide(as_person(person("vera", operators)), approval).status_code == 403
    assert Client().get(LIST).status_code == 302
    approval.refresh_from_db()
    assert (approval.state, approval.clarifications.count()) == (ApprovalState.WAITING, 0)
    inbox.grant(approval, by=ben, seen=approval.digest, reason="fine")
    assert browser.get(f"{card_of(approval)}outcome/").status_code == 404


def test_the_card_names_who_can_still_answer(as_person, ask, ada, ben, cleo):
    approval = ask(RequiredApprovers("finance", 1), RequiredApprovers("leads", 1))

    def named(who):
        html = as_person(who).get(card_of(approval)).content.decode()
        found = re.search(r"Can still answer:</span> (.*?)</p>", html)
        return found[1] if found else ""

    assert named(ada) == "Ben, Cleo"
    inbox.grant(approval, by=ben, seen=approval.digest)
    assert named(ada) == "Cleo"
    page = as_person(ben).get(card_of(approval)).content.decode()
    assert "<b>So far:</b> Ben approved. It still takes: 1 person from leads." in page
    assert "Why people are asked" in page, "Ben is asked no more"
    approval.refresh_from_db()
    inbox.reject(approval, by=cleo, seen=approval.digest, reason="the wrong card")
    assert named(ada) == ""


def test_a_card_asks_once_who_can_still_answer_and_what_that_rests_on(as_person, ask, ben):
    browser, path = as_person(ben), card_of(ask())
    with CaptureQueriesContext(connection) as asked:
        page = browser.get(path).content.decode()

    assert "Ben" in page.partition("Can still answer:")[2][:50]
    assert "Why you are asked" in page
    said = [one["sql"] for one in asked]
    assert len([one for one in said if 'ORDER BY "workspaces_user"."name"' in one]) == 1
    assert len([one for one in said if one.startswith('SELECT "approvals_requirement"')]) == 1


def test_the_card_learns_by_itself_that_what_was_approved_has_been_used(as_person, ask, ben):
    approval = ask()
    browser = as_person(ben)
    page = decide(browser, approval).content.decode()
    approval.refresh_from_db()
    page = browser.get(card_of(approval)).content.decode()
    [asks_anew] = re.findall(r'id="outcome"\s+data-poll="([^"]+)"', page)
    assert "Approved, and not yet used." in page
    assert "held until approved" not in page, "it is"
    assert "Why people were asked" in page
    assert 'id="withdraw"' in page
    assert "Exactly this will be sent" in page

    assert grants.use(approval.pk, approval.digest)

    told = browser.get(asks_anew, HTTP_HX_REQUEST="true").content.decode()
    assert re.search(r"Approved, and used\. .*used <time [^>]*>", told)
    assert 'hx-swap-oob="delete:#withdraw"' in told, "used, it cannot be withdrawn"
    assert "What was asked for" in told
    assert "Why people were asked" in told
    assert "delete:#promise" in told
    assert "was held for people" in told
    assert "not yet used" not in told
    assert "data-poll" not in told, "there is nothing more to learn"
    assert "data-focus" not in told, "it takes nobody's focus"

    over = browser.get(card_of(approval)).content.decode()
    assert "Withdraw" not in over
    assert "will be sent" not in over
    assert "One changed byte" not in over
    assert "held until approved" not in over
    assert "expires" not in over.split('id="card"')[1]


def test_the_inbox_is_searched_by_words_and_keys_and_falls_into_groups(as_person, ask, ben, cleo):
    first, second = ask(), ask()
    Approval.objects.filter(pk=second.pk).update(
        headline="Close the account of Eve", case_ref="77",
        rules=[{"glob": "accounts.*", "approval": "MANUAL", "words": "accounts are closed by two"},
               {"glob": "reading.*", "approval": "AUTO", "words": "reading needs nobody"}],
    )  # fmt: skip
    browser = as_person(ben)

    def found(q):
        page = browser.get(LIST, {"q": q})
        return [one["id"] for one in page.context["approvals"]]

    assert found("") == [first.pk, second.pk]
    assert found("account") == found("case:77") == found("rule:accounts.*") == [second.pk]
    assert found('"account of Eve" risk:high') == [second.pk]
    assert found("tool:refund") == [first.pk, second.pk]
    assert (found("risk:critical"), found("tool:transfer")) == ([], [])
    Approval.objects.filter(pk=second.pk).update(asked_at=timezone.now() - timedelta(days=31))
    assert found("asked:30d") == [first.pk]
    assert found("agent:nobody") == found("job:1") == found("job:99999999999999999999") == []
    assert found('an "open quote') == []
    [rules] = browser.get(LIST).context["find"]["groups"]
    assert (rules["name"], [one["name"] for one in rules["choices"]]) == ("Rule", ["accounts.*"])
    assert browser.get(rules["choices"][0]["url"]).context["approvals"][0]["id"] == second.pk
    assert "Search approvals" in browser.get(HISTORY).content.decode()
    inbox.reject(first, by=ben, seen=first.digest, reason="no")
    decided = browser.get(HISTORY, {"q": f"by:{cleo.pk}"}).content.decode()
    assert first.headline not in decided
    assert first.headline in browser.get(HISTORY, {"q": f"by:{ben.pk}"}).content.decode()
