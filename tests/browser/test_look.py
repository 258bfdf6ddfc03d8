"""The pages of the entrance and of a person's account, for everybody and at every width."""

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command
from django.test import override_settings
from playwright.sync_api import Page, ViewportSize, expect

from tests.browser.accessible import Look, assert_accessible, in_each_look
from tests.browser.conftest import DESKTOP, Visit
from workspaces import entrance, formatting
from workspaces.models import User
from workspaces.templatetags.formatting import diff

NARROW: ViewportSize = {"width": 320, "height": 700}
LOOKS: list[Look] = [("light", DESKTOP), ("dark", NARROW)]
OWN_PAGES = [
    "/accounts/2fa/",
    "/accounts/2fa/totp/activate/",
    "/accounts/password/change/",
    "/accounts/reauthenticate/",
    "/accounts/logout/",
    "/w/airline/settings/",
    "/w/airline/settings/members/",
    "/w/airline/settings/keys/",
    "/w/airline/connectors/",
    "/w/airline/audit/",
]


@pytest.fixture
def ada(transactional_db: None) -> User:
    person: User = User.objects.create_user("ada@example.com", "a long enough secret", name="Ada")
    entrance.open_workspace("Airline desk", "airline", by=person)
    return person


def overflow(page: Page) -> int:
    """How many pixels the page is wider than its window, or a box clips of what is in it."""
    width: int = page.evaluate(
        """() => Math.max(
            document.documentElement.scrollWidth - document.documentElement.clientWidth,
            ...[...document.querySelectorAll(".card")].map(box => box.scrollWidth - box.clientWidth)
        )"""
    )
    return width


def test_a_stranger_can_use_the_entrance(visit: Visit) -> None:
    page = visit()

    for path in ("/accounts/login/", "/accounts/password/reset/"):
        page.goto(path)
        assert page.locator("h1").count() == 1
        for _ in in_each_look(page, LOOKS):
            assert_accessible(page)
            assert overflow(page) <= 0


def test_sheets_are_collected_without_their_comments_and_say_the_same(
    visit: Visit, tmp_path: Path
) -> None:
    page = visit()
    page.goto("/accounts/login/")
    hashed = {"staticfiles": {"BACKEND": "config.edge.HashedStorage"}}
    with override_settings(STATIC_ROOT=tmp_path, STORAGES=settings.STORAGES | hashed):
        call_command("collectstatic", interactive=False, verbosity=0)

    for sheet in Path(settings.STATICFILES_DIRS[0]).glob("*.css"):
        (collected,) = tmp_path.glob(f"{sheet.stem}.????????????.css")
        served = re.sub(r"\.[0-9a-f]{12}(?=\.\w+\")", "", collected.read_text())
        source, found = [
            page.evaluate(
                """text => {
                    const sheet = new CSSStyleSheet();
                    sheet.replaceSync(text);
                    return [...sheet.cssRules].map(rule => rule.cssText);
                }""",
                text,
            )
            for text in (sheet.read_text(), served)
        ]

        assert found == source != [], sheet.name
        assert "/*" not in served


def test_everybody_can_use_the_pages_of_their_account_and_workspace(
    visit: Visit, ada: User
) -> None:
    page = visit(ada)

    for path in OWN_PAGES:
        page.goto(path)
        for _ in in_each_look(page, LOOKS):
            assert_accessible(page)
            assert overflow(page) <= 0, path


def test_the_pages_bring_their_own_letters_and_load_only_those_that_they_hold(
    visit: Visit, ada: User
) -> None:
    page = visit(ada)
    page.goto("/w/airline/settings/")

    loaded = page.evaluate(
        """() => document.fonts.ready.then(fonts => [...fonts]
            .filter(face => face.family.replaceAll('"', "") === "Inter" && face.status === "loaded")
            .map(face => face.unicodeRange.split(",")[0]))"""
    )

    assert loaded == ["U+0-FF"]
    licence = page.request.get("/static/vendor/inter.LICENSE.txt")
    assert "SIL OPEN FONT LICENSE Version 1.1" in licence.text()


def test_figures_below_one_another_are_equally_wide(visit: Visit, ada: User) -> None:
    page = visit(ada)
    for path, where in (("settings/members/", "td.num"), ("audit/", "time")):
        page.goto(f"/w/airline/{path}")

        widths = page.evaluate(
            """async where => {
                await document.fonts.ready;
                const box = document.createElement("span");
                document.querySelector(where).append(box);
                return [..."0123456789"].map(digit => {
                    box.textContent = digit.repeat(10);
                    return box.getBoundingClientRect().width;
                });
            }""",
            where,
        )

        assert min(widths) > 0, where
        assert len(set(widths)) == 1, f"{where}: {widths}"


def test_who_lives_in_lists_may_have_them_compact(visit: Visit, ada: User) -> None:
    page = visit(ada)
    page.goto("/w/airline/audit/")
    row = page.locator(".listing-table tbody tr").first
    airy = row.bounding_box()

    page.goto("/w/airline/settings/")
    page.get_by_label("Compact lists").check()
    page.get_by_role("button", name="Save for me").click()
    page.goto("/w/airline/audit/")
    compact = row.bounding_box()

    assert airy
    assert compact
    assert compact["height"] < airy["height"]
    assert_accessible(page)


def test_what_came_of_a_press_has_the_focus_and_nothing_is_wider_than_its_place(
    visit: Visit, ada: User
) -> None:
    page = visit(ada)
    page.goto("/w/airline/settings/keys/")
    tabs = page.locator(".tabs ul")
    assert tabs.evaluate("one => one.scrollWidth - one.clientWidth") <= 0

    page.get_by_label("Name").first.fill("booker")
    page.get_by_role("button", name="Add the agent").click()

    expect(page.get_by_text("booker is added. It needs a key next.")).to_be_focused()


def test_a_page_goes_by_the_browsers_clock_until_its_reader_chooses_one(
    visit: Visit, ada: User
) -> None:
    page = visit(ada, timezone_id="Asia/Tokyo")
    behind = page.locator("time[data-moment]").first

    page.goto("/w/airline/audit/")  # the desk does not know the browser yet
    page.locator("html.js").wait_for(state="attached")
    assert " GMT+9 = " in (behind.get_attribute("data-exact") or "")
    page.reload()
    assert page.locator("html").get_attribute("data-zone") == "Asia/Tokyo"
    assert " JST = " in (behind.get_attribute("data-exact") or "")
    page.goto("/w/airline/settings/")
    chosen = page.get_by_label("Your time zone")
    assert "As this browser says: Asia/Tokyo" in chosen.inner_text()
    chosen.select_option("America/New_York")
    page.get_by_role("button", name="Save for me").click()
    page.goto("/w/airline/audit/")
    page.locator("html.js").wait_for(state="attached")
    exact = behind.get_attribute("data-exact") or ""

    assert re.search(r" E[SD]T = .*\d\d:\d\d:\d\d UTC$", exact), exact


def test_an_amount_in_bold_shows_its_thousands_and_never_breaks(visit: Visit, ada: User) -> None:
    page = visit(ada)
    page.goto("/w/airline/settings/")

    gap, lines = page.evaluate(
        """async amount => {
            await document.fonts.ready;
            const box = document.body.appendChild(document.createElement("b"));
            const wide = text => { box.textContent = text; return box.offsetWidth; };
            box.style.cssText = "position: absolute; font-size: 100px; white-space: pre";
            const gap = wide(amount) - wide(amount.replace(/\\s/u, ""));
            box.style.width = `${wide(amount) + 4}px`;
            box.style.whiteSpace = "normal";
            box.textContent = `paid ${amount}`;
            const range = document.createRange();
            range.setStart(box.firstChild, 5);
            range.setEnd(box.firstChild, box.textContent.length);
            return [gap, new Set([...range.getClientRects()].map(one => one.top)).size];
        }""",
        formatting.money(128_600),
    )

    assert gap >= 20, "a fifth of the letters' size is seen, a tenth is not"
    assert lines == 1


def test_in_a_narrow_difference_no_word_breaks_but_one_that_no_column_has_room_for(
    visit: Visit, ada: User
) -> None:
    digest = "sha256:" + "0123456789abcdef" * 4
    short = {"class": ("draft", "internal_update"), "due": ("2026-12-01", "2026-12-24")}
    rows = [
        {"field": "digest", "was": digest, "now": "none at all", "kind": "changed"},
        *({"field": name, "was": was, "now": now} for name, (was, now) in short.items()),
    ]
    page = visit(ada)
    page.goto("/w/airline/settings/")

    page.evaluate("html => { document.getElementById('main').innerHTML = html }", diff(rows))
    page.locator("#main").evaluate("main => { main.style.inlineSize = '330px' }")

    lines = page.locator(".diff :is(.diff-was, .diff-now)").evaluate_all(
        """all => all.map(one => {
            const range = document.createRange();
            range.selectNodeContents(one);
            return new Set([...range.getClientRects()].map(box => box.top)).size;
        })"""
    )
    assert lines[0] > 1, "an id breaks, if it must"
    assert lines[2:] == [1] * 4
    assert overflow(page) <= 0
    assert page.locator(".diff").evaluate("one => one.scrollWidth <= one.clientWidth")
