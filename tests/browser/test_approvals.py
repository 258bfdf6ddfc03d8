"""Deciding by keyboard alone, and what the inbox looks like for everybody."""

from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from amends.protocol.vocabulary import ActionClass, Risk
from approvals import approval_requests, clarifications, consent_requests, inbox
from approvals.models import Approval
from approvals.policy import PolicyDecision, RequiredApprovers
from connectors import channels
from tests.approvals.cast import asker, refund
from tests.browser.accessible import assert_accessible, fields_cut, in_each_look
from tests.browser.conftest import DESKTOP, PHONE, Visit, press
from tests.people import person
from workspaces import teams
from workspaces.models import User, Workspace

ONE_LINE = 30


@pytest.fixture
def ada(acme: Workspace) -> User:
    operators = teams.create(acme, "operators", by=None, may=["view", "recover", "administer"])
    return person("ada", operators)


@pytest.fixture
def ben(acme: Workspace) -> User:
    return person("ben", teams.create(acme, "finance", by=None, may=["view", "approve"]))


@pytest.fixture
def ask(acme: Workspace, ada: User, ben: User) -> Any:
    teams.create(acme, "leads", by=None, may=["view", "approve"])
    return asker(acme, ada)


def test_ben_reads_and_approves_by_keyboard_alone(visit: Visit, ask: Any, ben: User) -> None:
    approval = ask()
    page = visit(ben)
    page.goto("/w/acme/approvals/")

    press(page, "j")
    press(page, "Enter")
    page.wait_for_url(f"**/approvals/{approval.pk}/")
    press(page, "d")
    # What a script or a person's pulling leaves of a style is not copied: the page may have none.
    page.locator("#card").evaluate("one => { one.style.width = '1px'; one.style.width = '' }")
    assert page.locator("details.raw").first.get_attribute("open") is not None
    press(page, "Shift+R")
    press(page, "Enter")  # for a no the browser asks for the reason first, and goes there
    page.keyboard.type("checked with the customer")
    press(page, "Enter")
    page.wait_for_timeout(300)
    assert Approval.objects.get().state == "waiting"  # no single key commits, nor does the field
    press(page, "Tab")
    press(page, "Tab")
    press(page, "Enter")

    page.locator(".notice.ok").wait_for()
    page.locator(f"#line-{approval.pk}.gone").get_by_text("Approved").wait_for()
    approval.refresh_from_db()
    assert approval.state == "granted"
    assert approval.decisions.get().reason == "checked with the customer"


def test_who_may_no_longer_approve_is_told_so_at_the_open_card_and_keeps_the_reason(
    visit: Visit, ask: Any, acme: Workspace, ben: User
) -> None:
    approval = ask()
    teams.add(teams.create(acme, "guests", by=None, may=["view"]), ben, by=None)
    page = visit(ben)
    page.goto(f"/w/acme/approvals/{approval.pk}/")
    reason = page.locator("input[name=reason]")
    reason.fill("checked with the customer")
    teams.remove(acme.teams.get(name="finance"), ben, by=None)

    page.locator("button[value=grant]").click()

    page.get_by_text("You may not do this here").wait_for()
    expect(reason).to_have_value("checked with the customer")
    approval.refresh_from_db()
    assert (approval.state, approval.decisions.count()) == ("waiting", 0)


def test_an_open_inbox_is_told_once_and_the_pill_stays(visit: Visit, ask: Any, ben: User) -> None:
    first = ask()
    page = visit(ben)
    page.goto("/w/acme/approvals/")
    row = page.locator(f'[data-id="{first.pk}"]')
    row.wait_for()

    ask()
    with page.expect_request(lambda request: "heard=" in request.url):
        page.get_by_text("+1 new").wait_for()
    inbox.withdraw(first, by=first.requested_by, reason="wrong case")

    page.locator(f'[data-id="{first.pk}"].gone').wait_for()
    assert page.get_by_text("+1 new").is_visible()
    press(page, "n")
    page.get_by_text("+1 new").wait_for(state="hidden")


def test_rows_keep_their_place_on_the_screen_while_news_arrive(
    visit: Visit, ask: Any, ben: User
) -> None:
    above, *others = [ask() for _ in range(14)]
    page = visit(ben, viewport={"width": 1440, "height": 360})
    page.goto("/w/acme/approvals/")
    first, row = (page.locator(f'[data-id="{one.pk}"]') for one in (above, others[5]))
    at_first = first.bounding_box()

    ask()
    page.get_by_text("+1 new").wait_for()
    assert first.bounding_box() == at_first
    row.evaluate("one => one.scrollIntoView({ block: 'center' })")
    read_at = row.bounding_box()
    inbox.withdraw(above, by=above.requested_by, reason="wrong case")
    page.locator(f'[data-id="{above.pk}"].gone').wait_for()

    still_at = row.bounding_box()
    assert read_at
    assert still_at
    assert abs(still_at["y"] - read_at["y"]) < 1, "a row that went above moves none on the screen"


def test_a_rejection_by_keyboard_needs_a_reason(visit: Visit, ask: Any, ben: User) -> None:
    approval = ask()
    page = visit(ben)
    page.goto(f"/w/acme/approvals/{approval.pk}/")

    press(page, "Shift+R")
    press(page, "Enter")
    assert page.locator("input[name=reason]:invalid").count() == 1
    page.locator("input[name=reason]").fill("the wrong card")
    page.locator("button[value=reject]").focus()
    press(page, "Enter")

    page.get_by_text("Rejected by Ben: the wrong card").wait_for()
    approval.refresh_from_db()
    assert approval.state == "rejected"


def test_everybody_can_use_the_pages(
    visit: Visit, ask: Any, acme: Workspace, ben: User, ada: User
) -> None:
    ask(RequiredApprovers("finance", 1), RequiredApprovers("leads", 1))
    approval = ask(calls=[refund(100), refund(250)], risk="critical")
    enquiry = clarifications.ask_back(approval, "Who confirmed it?", by=ben)
    clarifications.answer(enquiry, "The customer, by phone.", by=ada)
    clarifications.ask_back(approval, "When?", by=ben)
    granted = ask()
    inbox.grant(granted, by=ben, seen=granted.digest, shown_seconds=1)
    channels.create(acme, "ops", "mail", by=ada, settings={"to": ["ops@acme.example"]})
    for who in (ben, ada):
        page = visit(who)
        paths = ["approvals/", f"approvals/{approval.pk}/", "approvals/history/", "policies/"]
        paths += ["approvals/health/", "channels/"]
        paths += ["tools/"] + (["policies/new/"] if who == ada else [])
        for path in paths:
            page.goto(f"/w/acme/{path}")
            assert page.locator("h1").count() == 1
            for _, size in in_each_look(page, [("light", DESKTOP), ("dark", PHONE)]):
                assert_accessible(page)
                assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]


def test_on_a_phone_the_search_of_the_inbox_says_all_that_it_takes_and_no_word_is_broken(
    visit: Visit, ask: Any, ben: User
) -> None:
    ask()
    Approval.objects.update(headline="Transfer money to Riverside Catering, DE02 •••• 1180")
    page = visit(ben, viewport=PHONE)

    page.goto("/w/acme/approvals/")

    page.get_by_placeholder("rule:").wait_for()
    assert fields_cut(page) == []
    badge = page.locator(".inbox-list .badge").bounding_box()
    assert badge
    assert badge["height"] < ONE_LINE


@pytest.mark.parametrize("width", [900, 1024])
def test_the_bar_over_an_open_question_is_one_line_and_lies_over_nothing(
    visit: Visit, ask: Any, ben: User, width: int
) -> None:
    approval = ask()
    page = visit(ben, viewport={"width": width, "height": 700})

    page.goto(f"/w/acme/approvals/{approval.pk}/")

    bar, chips = page.locator(".topbar"), page.locator(".topbar .chip").all()
    tops = {one.bounding_box()["y"] for one in chips}
    assert len(tops) == 1
    assert page.evaluate("scrollTo({top: 2000, behavior: 'instant'}), scrollY") > 0
    under = page.locator("#inbox-list").bounding_box()
    over = bar.bounding_box()
    assert under
    assert over
    assert under["y"] + 6 >= over["y"] + over["height"]


def test_ben_asks_back_by_keyboard_and_ada_answers_on_the_card(
    visit: Visit, ask: Any, ben: User, ada: User
) -> None:
    approval = ask()
    page = visit(ben)
    page.goto(f"/w/acme/approvals/{approval.pk}/")
    page.emulate_media(media="print")
    expect(page.get_by_text("Asked back")).to_be_hidden()  # on paper nobody asks
    page.emulate_media(media="screen")

    press(page, "Shift+Q")
    page.keyboard.type("Did the customer confirm?")
    press(page, "Enter")  # a field's Enter sends nothing
    press(page, "Tab")
    press(page, "Enter")
    page.get_by_text("No answer yet.").wait_for()

    hers = visit(ada)
    hers.goto(f"/w/acme/approvals/{approval.pk}/")
    hers.get_by_label("Answer to Ben").fill("Yes, by phone.")
    hers.get_by_role("button", name="Answer", exact=True).click()
    hers.get_by_text("Yes, by phone.").wait_for()

    assert [one.answer for one in approval.clarifications.all()] == ["Yes, by phone."]
    approval.refresh_from_db()
    assert approval.state == "waiting"
    assert_accessible(hers)


def test_a_reason_can_be_chosen_without_typing_one(visit: Visit, ask: Any, ben: User) -> None:
    approval = ask()
    page = visit(ben)
    page.goto(f"/w/acme/approvals/{approval.pk}/")

    offered = page.locator("datalist#reasons option").evaluate_all("all => all.map(o => o.value)")
    assert offered == list(inbox.REASONS)
    assert page.locator("input[name=reason]").get_attribute("list") == "reasons"
    page.locator("input[name=reason]").fill(offered[0])
    page.locator("button[value=reject]").focus()
    press(page, "Enter")

    page.get_by_text(f"Rejected by Ben: {inbox.REASONS[0]}").wait_for()


@pytest.mark.parametrize(("scheme", "size"), [("light", PHONE), ("dark", DESKTOP)])
def test_the_affected_person_answers_without_a_script_and_people_see_it(
    visit: Visit,
    ask: Any,
    acme: Workspace,
    ben: User,
    ada: User,
    scheme: str,
    size: dict[str, int],
) -> None:
    judged = PolicyDecision(
        approval="MANUAL",
        risk=Risk.HIGH,
        action_class=ActionClass.EXTERNAL_REVERSIBLE,
        affected="must",
    )
    approval = approval_requests.ask_for_plan(
        acme,
        77,
        case_ref="12",
        calls=[refund()],
        judgement=judged,
        headline="Refund 1.00 EUR",
        previews=[{"kind": "money", "title": "Refund 1.00 EUR"}],
        by=ada,
        reason="charged twice",
        affected=[{"id": "cus_7", "name": "Eve"}],
    )
    bens = visit(ben, color_scheme=scheme, viewport=size)
    bens.goto(f"/w/acme/approvals/{approval.pk}/")
    assert bens.locator("button[value=grant]").is_disabled()
    assert bens.get_by_text("Nobody can approve this yet").is_visible()
    assert_accessible(bens)

    eves = visit(java_script_enabled=False, color_scheme=scheme, viewport=size)
    eves.goto(urlsplit(consent_requests.link_of(approval.consent_requests.get())).path)
    eves.get_by_role("button", name="Yes, please").click()
    eves.get_by_text("Thank you, we have your answer").wait_for()
    readable = visit(color_scheme=scheme, viewport=size)
    readable.goto(eves.url)
    assert_accessible(readable)
    assert readable.evaluate("document.documentElement.scrollWidth") <= size["width"]

    bens.reload()
    assert bens.locator("button[value=grant]").is_enabled()


def test_what_a_change_would_mean_is_shown_while_writing_and_the_text_stays_put(
    visit: Visit, ask: Any, ada: User
) -> None:
    ask()
    page = visit(ada)
    page.goto("/w/acme/policies/new/")
    text = page.locator("#id_source")
    before = text.bounding_box()

    text.fill('{"policies": {"payments.refund": {"approval": "DENY"}}}')
    page.get_by_text("would be denied, whatever people answer").wait_for()
    after = text.bounding_box()
    assert before
    assert after
    assert before["y"] == after["y"]
    assert page.evaluate("document.activeElement.id") == "id_source"
    assert_accessible(page)

    text.fill('{"policies": {"payments.refund": {"aproval": "DENY"}}}')
    page.get_by_text("Line 1, column 35").wait_for()
    assert page.evaluate("document.activeElement.id") == "id_source"


def test_a_question_that_somebody_else_answers_keeps_its_line_and_moves_no_other(
    visit: Visit, ask: Any, acme: Workspace, ben: User
) -> None:
    cleo = person("cleo", teams.create(acme, "chiefs", by=None, may=["view", "approve"]))
    first, second = ask(), ask()
    page = visit(ben)
    page.goto("/w/acme/approvals/")
    lines = page.locator("[data-list] [data-id]")
    lower = page.locator("[data-list] [data-id]").nth(1)
    upper_id, at = lines.first.get_attribute("data-id"), lower.bounding_box()
    upper = next(one for one in (first, second) if str(one.pk) == upper_id)
    card = visit(ben, viewport=PHONE)  # which shows no list
    card.goto(f"/w/acme/approvals/{upper_id}/")

    inbox.grant(upper, by=cleo, seen=upper.digest)

    line = page.locator(f"[data-id='{upper_id}'].gone")
    line.get_by_text("Approved").wait_for()
    assert lower.bounding_box() == at
    expect(card.locator("#toasts")).to_contain_text("Approved meanwhile: what is open here is as")
    expect(page.locator("#toasts")).to_be_empty()
    expect(page.locator("[data-count='approvals']").first).to_have_text("1")
    assert_accessible(page)
    page.reload()
    expect(line).to_have_count(0)
    expect(lines).to_have_count(1)


def test_on_a_phone_the_answer_is_at_hand_and_nothing_that_has_the_focus_lies_below_it(
    visit: Visit, ask: Any, ben: User
) -> None:
    """It stood at the end, some three screens down; a low window still has it there."""
    approval = ask()
    page = visit(ben, viewport=PHONE)
    page.goto(f"/w/acme/approvals/{approval.pk}/")

    expect(page.get_by_role("button", name="Approve", exact=True)).to_be_in_viewport(ratio=1)
    for one in page.locator("#card :is(a, summary, input:not([type=hidden]))").all():
        if one.is_visible():
            one.focus()
            below = "one => !!document.elementFromPoint(one.getBoundingClientRect().x + 4,"
            below += " one.getBoundingClientRect().y + 4)?.closest('.actionbar')"
            is_in_bar = one.evaluate("one => !!one.closest('.actionbar')")
            assert one.evaluate(below) == is_in_bar
    answer, fonts = page.get_by_role("button", name="Approve", exact=True), {"standard": 32}
    page.set_viewport_size({"width": PHONE["width"], "height": 560})
    page.evaluate("scrollTo(0, 0)")
    expect(answer).not_to_be_in_viewport()
    page.set_viewport_size(PHONE)
    expect(answer).to_be_in_viewport()
    page.context.new_cdp_session(page).send("Page.setFontSizes", {"fontSizes": fonts})
    expect(answer).not_to_be_in_viewport()  # with text twice as large the bar had half the screen


def test_a_yes_needs_no_reason_and_says_so(visit: Visit, ask: Any, ben: User) -> None:
    """The browser alone asked for one: of many alike none was needed."""
    approval = ask()
    page = visit(ben)
    page.goto(f"/w/acme/approvals/{approval.pk}/")
    reason = page.get_by_label("a no needs one")
    page.locator("button[value=reject]").click()
    expect(reason).to_be_focused()
    assert page.locator("input[name=reason]:invalid").count() == 1

    page.locator("button[value=grant]").click()

    page.locator(".notice.ok").wait_for()
    assert approval.decisions.get().reason == ""
