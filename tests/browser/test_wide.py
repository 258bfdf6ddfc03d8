"""A screen of 1920 by 1080 pixels: its room is used, and nothing lies over anything else."""

import itertools
from typing import Any

import pytest
from playwright.sync_api import FloatRect, Locator, Page, ViewportSize, expect

from recovery.models import Case
from recovery.triage import triage
from tests.browser.conftest import PHONE, Visit, too_wide
from tests.recovery.cases.cast import stands, submitted
from tests.recovery.engine import by_hand
from workspaces.models import User

SCREEN: ViewportSize = {"width": 1920, "height": 1080}
ONE_LINE = 60
"""With the room around it."""
FULL = 0.97
"""Of the width, where what is there ends: a margin remains."""


@pytest.fixture
def cases(transactional_db: None, raises: Any) -> list[Case]:
    for number in range(1, 7):
        run = raises(number)
        run.ends("failed", failed_action=run.fails("mail.send", message="504"))
    triage.look()
    return list(Case.objects.order_by("pk"))


def place(one: Locator) -> FloatRect:
    found = one.bounding_box()
    assert found, "it has no place on the page"
    return found


def beside(*columns: Locator) -> None:
    """Each begins where the one before it has ended."""
    for left, right in itertools.pairwise(map(place, columns)):
        assert left["x"] + left["width"] <= right["x"]


def covered(page: Page) -> list[str]:
    """The words in the window of which something else lies on top."""
    found: list[str] = page.evaluate(
        """() => {
            const tiny = box => box && (box.offsetWidth <= 1 || tiny(box.parentElement));
            const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            const lost = [];
            for (let text = words.nextNode(); text; text = words.nextNode()) {
                const own = text.parentElement;
                if (!text.data.trim() || !own.checkVisibility({ visibilityProperty: true })
                    || tiny(own) || own.closest(".skip, .hint, script, option")) continue;
                const range = document.createRange();
                range.selectNodeContents(text);
                for (const line of range.getClientRects()) {
                    const [x, y] = [line.x + line.width / 2, line.y + line.height / 2];
                    const top = document.elementFromPoint(x, y);
                    if (!top || top.contains(own) || own.contains(top)) continue;
                    lost.push(`${text.data.trim()} is below ${top.outerHTML.slice(0, 80)}`);
                }
            }
            return lost;
        }"""
    )
    return found


def test_a_list_and_the_case_beside_it_take_all_of_the_screen(
    visit: Visit, cases: list[Case], ada: User
) -> None:
    page = visit(ada, viewport=SCREEN)
    page.goto("/w/acme/queue/")
    rows, places = page.locator("#rows"), page.locator("header.side")
    assert place(rows)["width"] + place(places)["width"] >= FULL * SCREEN["width"]
    assert (covered(page), too_wide(page)) == ([], 0)

    page.locator(f"tr[data-id='{cases[2].pk}']").get_by_role("link", name="Peek").click()

    peek = page.locator("#peek")
    peek.wait_for()
    beside(places, rows, peek)
    assert place(rows)["y"] == place(peek)["y"]
    assert place(peek)["x"] + place(peek)["width"] >= FULL * SCREEN["width"]
    assert (covered(page), too_wide(page)) == ([], 0)


def test_what_an_agent_did_stands_beside_what_can_be_done_about_it(
    visit: Visit, cases: list[Case], ada: User
) -> None:
    page = visit(ada, viewport=SCREEN)

    page.goto(f"/w/acme/cases/{cases[2].pk}/")

    page.locator("#outlook .steps").wait_for()
    did, can_be_done = page.locator(".columns > *").all()
    expect(did.get_by_role("heading", name="What the agent did")).to_be_visible()
    expect(can_be_done.get_by_role("heading", name="What compensating would do")).to_be_visible()
    beside(page.locator("header.side"), did, can_be_done)
    assert place(did)["y"] == place(can_be_done)["y"]
    assert place(can_be_done)["x"] + place(can_be_done)["width"] >= FULL * SCREEN["width"]
    assert (covered(page), too_wide(page)) == ([], 0)


def test_the_steps_of_a_plan_end_alike_and_on_a_phone_how_each_stands_comes_first(
    visit: Visit, transactional_db: None, raises: Any, shop: Any, ticket: Any, ada: User
) -> None:
    row = ticket | {"id": "T-9"}
    stands(shop, row | {"priority": "high"})
    run = raises(1)
    run.does("tickets.update", ("ticket", "main/T-9", row, row | {"priority": "high"}))
    run.ends("failed")
    triage.look()
    case, page = Case.objects.get(), visit(ada)
    plan, lines = submitted(case, ada), page.locator(".steps > li")
    shop.execute("UPDATE tickets SET assignee = 'Finn', version = version + 1 WHERE id = 'T-9'")

    page.goto(f"/w/acme/cases/{case.pk}/compensate/")
    ends = [one["x"] + one["width"] for one in map(place, lines.locator("> .body").all())]
    assert (len(ends), len(set(ends))) == (2, 1)
    page.set_viewport_size(PHONE)
    note, title = lines.first.locator(".side-note"), lines.first.locator(".title")
    assert place(note)["y"] < place(title)["y"]
    assert place(title)["width"] > PHONE["width"] / 2

    by_hand.advance(plan.pk)
    page.goto(f"/w/acme/cases/{case.pk}/")
    card, story = page.locator("#plan"), page.locator("[aria-labelledby='story-title']")
    expect(card).to_contain_text("! Drifted")
    words = '<p class="inner">3 on <a href="#">the page of the run</a>.</p>'
    card.evaluate("(one, words) => one.insertAdjacentHTML('beforeend', words)", words)
    assert place(card.locator("p.inner").last)["height"] < ONE_LINE
    assert place(card)["y"] < place(story)["y"], "what is under way comes first"
