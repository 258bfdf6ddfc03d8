"""Every page of a workspace is for everybody: axe on each address that answers with a page, and
none heavier than a slow line bears.

The walk goes over the URL configuration itself, as Ada who may everything and as Vic who may only
view. An address that is neither walked nor said to be no page fails.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page

from approvals import named_lists
from tests.browser.accessible import BY_COLOUR, assert_accessible
from tests.browser.conftest import DESKTOP, PHONE, Visit, too_wide
from tests.people import person, team
from tests.recovery.cases import test_disclosure
from tests.recovery.cases.test_disclosure import PLACES, W, routes
from tests.recovery.cases.test_lists import WEIGHT_BYTES_MAX, weight_of
from tests.recovery.cases.test_roles import BY_ROUTE
from workspaces import teams
from workspaces.access import Codename
from workspaces.models import User

finance, known = test_disclosure.finance, test_disclosure.known

RIGHTS: tuple[Codename, ...] = (
    "view", "view_sensitive", "recover", "approve", "administer", "edit_lists",
)  # fmt: skip
NO_PAGES = {
    "": "leads to the queue", "queue/fresh/": "numbers", "approvals/fresh/": "numbers",
    "queue/suggest/": "a part, in test_console", "find/": "for the palette",
    "settings/kept/progress/": "a part",
    "cases/<int:pk>/progress/": "a part", "cases/<int:pk>/outlook/": "a part",
    "bulk/<int:pk>/progress/": "a part, in test_console",
    "approvals/<int:pk>/outcome/": "a part", "x/<path:query>": "leads elsewhere",
    "views/<slug:slug>/": "leads to the queue", "ledger/proof/<path:event>/": "a file",
    "ledger/snapshots/<str:sha256>/": "a file",
    "approvals/<int:pk>/<slug:name>.json": "a file",
    "approvals/<int:pk>/signed/<int:decision>/": "a file",
}  # fmt: skip
# Where a page is asked for as the walk of what may be seen does not ask.
OTHERWISE = {
    "connectors/new/": ["?connector=sql", "?connector=http"],
    "approvals/health/proposal/": ["?of=tighter:tickets.update"],
    "settings/keys/<int:pk>/first/": [],  # only with a new key, in test_first_event
    "bulk/<int:pk>/": [],  # only with a job, in test_console
}
BY_COLOUR_AND_ROOM = [*BY_COLOUR, "target-size", "label", "aria-input-field-name"]
PAGES = sorted(
    route
    for route, (needed, _) in BY_ROUTE.items()
    if needed is not None and route.removeprefix(W) not in NO_PAGES
)


@pytest.fixture
def everybody(transactional_db: None, known: dict[str, Any], acme: Any, ada: User) -> Any:
    """What there is to see, and Vic; Ada may everything."""
    teams.add(team(acme, "heads", *RIGHTS), ada, by=None)
    named_lists.create(acme, "payees", "mail")
    return known, person("vic", team(acme, "guests", "view"))


def addresses(route: str, known: dict[str, Any]) -> Iterator[str]:
    """Where a page is, with the questions that change what it shows."""
    plain = route.removeprefix(W)
    for place in PLACES[route]:
        path = route
        for name, value in (known | place).items():
            path = re.sub(rf"<\w+:{name}>", str(value), path)
        path = path.replace("{", "%(").replace("}", ")s") % known
        if plain in OTHERWISE:
            yield from (f"/{path}{more}" for more in OTHERWISE[plain])
            return
        asked = place.get("?", "").replace("{", "%(").replace("}", ")s") % known
        yield f"/{path}?{asked}" if asked else f"/{path}"


def test_every_address_is_a_page_that_is_looked_at_or_says_why_not() -> None:
    served = {
        route.removeprefix(W) for route, (needed, _) in BY_ROUTE.items() if needed is not None
    }

    assert set(NO_PAGES) - served == set()
    assert set(OTHERWISE) - served == set()
    assert {one for one in routes() if one.startswith(W)} - set(BY_ROUTE) == set()


def look(page: Page, address: str, *, dark_alone: bool = False, status: int = 200) -> str:
    """What is wrong with this page in the light and the dark, wide and narrow; empty if nothing.

    In other colours, all is folded open and the rules that colours and room answer are asked again.
    """
    answer = page.goto(address)
    if answer is None or answer.status != status:
        return f"{address}: {answer and answer.status}"
    if (weight := weight_of(answer.text())) > WEIGHT_BYTES_MAX:
        return f"{address} weighs {weight} bytes"
    try:
        if not dark_alone:
            page.emulate_media(color_scheme="light")
            page.set_viewport_size(DESKTOP)
            assert_accessible(page)
        page.emulate_media(color_scheme="dark")
        page.set_viewport_size(PHONE)
        for summary in page.locator("main summary:visible").all():
            summary.click()
        assert_accessible(page, rules=() if dark_alone else BY_COLOUR_AND_ROOM)
    except AssertionError as wrong:
        return str(wrong)
    wide = too_wide(page)
    return f"{address} is {wide} pixels wider than a phone" if wide > 0 else ""


@pytest.mark.parametrize("half", [0, 1])
def test_each_page_is_for_everybody_whoever_may_what(
    visit: Visit, everybody: Any, ada: User, half: int
) -> None:
    known, _ = everybody
    page = visit(ada)

    wrong = [
        said
        for route in PAGES[half::2]
        for address in addresses(route, known)
        if (said := look(page, address))
    ]

    assert not wrong, "\n\n".join(wrong)


def test_who_may_only_look_meets_no_page_that_is_not_for_everybody(
    visit: Visit, everybody: Any
) -> None:
    known, vic = everybody
    page = visit(vic)

    wrong = [
        said
        for route in PAGES
        if BY_ROUTE[route][0] == ""
        for address in list(addresses(route, known))[:1]
        if (said := look(page, address, dark_alone=True))
    ]

    assert not wrong, "\n\n".join(wrong)
