"""A real browser in front of the real web process, over this test's own database.

    def test_ben_grants_it(visit, ben):
        page = visit(ben)            # logged in; visit() is somebody without an account
        page.goto("/w/acme/approvals/")

A page must stay free of JavaScript errors, of what the CSP refuses and of requests to other hosts:
each fails the test at its end.

What only goes well on a quick machine is found by making Chromium a slow one, and the line long:

    make test ARGS="tests/browser" BROWSER_SLOW=6 BROWSER_LATENCY=200

divides the speed of each page's processor by six and lets each answer come 200 ms later.
"""

import logging
import os
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import pytest
from django.conf import settings
from django.db import connections
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    Request,
    Response,
    ViewportSize,
    expect,
    sync_playwright,
)

from tests.browser import chromium
from tests.processes import Process, Processes
from tests.recovery.cases import conftest as cast
from tests.servers import home

WAIT_MILLISECONDS = 60_000
expect.set_options(timeout=WAIT_MILLISECONDS)
DESKTOP: ViewportSize = {"width": 1440, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
SLOW_TIMES = float(os.environ.get("BROWSER_SLOW", "1"))
LATENCY_MILLISECONDS = float(os.environ.get("BROWSER_LATENCY", "0"))
BAD_REQUEST = 400
LOOKS_SOONER = """
const wait = window.setTimeout;
window.setTimeout = (run, ms, ...more) => wait(run, ms === 2000 ? 400 : ms, ...more);
"""
"""A page that hears of news every two seconds (static/js/live.js) hears of them in less: no story
waits for as long, and what must stay as it is has to stay so through more answers."""
TEXT_CHARACTERS_MAX = 4_000
"""Of each page, where a story has failed."""

logger = logging.getLogger(__name__)

# The cast of the stories about cases; where a file has people of its own, they stand in it.
acme, globex, operators, leads = cast.acme, cast.globex, cast.operators, cast.leads
ada, ben, cleo, dev, finn = cast.ada, cast.ben, cast.cleo, cast.dev, cast.finn
agent, policy, begin_run, ticket = cast.agent, cast.policy, cast.begin_run, cast.ticket
raised, raises, three = cast.raised, cast.raises, cast.three
outbound, shop, shop_connection = cast.outbound, cast.shop, cast.shop_connection
shop_url, shop_allowed = cast.shop_url, cast.shop_allowed


class Visit(Protocol):
    def __call__(self, person: Any = None, **context: Any) -> Page: ...


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "browser" in Path(item.path).parts and "visit" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Keep the outcome where fixtures see it, so that a failed test leaves text and a picture."""
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


FAILED = pytest.StashKey[bool]()


def too_wide(page: Page) -> int:
    width: int = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return width


def press(page: Page, *keys: str) -> None:
    """Press keys one after the other, once the page's own scripts listen for them."""
    page.wait_for_load_state()
    page.locator("html.js").wait_for(state="attached")
    for key in keys:
        page.keyboard.press(key)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    patch = pytest.MonkeyPatch()
    # Playwright's loop runs in this thread, and Django would refuse to be called beside it.
    patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    # Beside a loop Django keeps other connections than without: what is left open on either side
    # would be cut off by the cleaning between tests, and found dead when the side changes.
    connections.close_all()
    with sync_playwright() as playwright:
        path = chromium.find(playwright)
        running = playwright.chromium.launch(executable_path=path, args=list(chromium.FLAGS))
        yield running
        running.close()
        connections.close_all()
    patch.undo()


@pytest.fixture(scope="session")
def web_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One web process for all browser tests: ids never come again, so it cannot be misled."""
    processes = Processes(tmp_path_factory.mktemp("web"))
    host = parse_qs(urlsplit(os.environ["DATABASE_URL"]).query).get("host", ["localhost"])[0]
    yield processes.web(AMENDS_OUTBOUND_ALLOW=f"127.0.0.1,localhost,{host}")
    processes.stop()


@pytest.fixture
def site(web_process: Process, transactional_db: None) -> str:
    """The address of the desk, with the database of this test behind it."""
    web_process.wait_until_ready()
    return web_process.url


@pytest.fixture
def visit(site: str, browser: Browser, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """Open a page as a person: `visit(ada)`, `visit(ada, java_script_enabled=False)`."""
    contexts: list[BrowserContext] = []
    wrong: list[str] = []

    def open_page(person: Any = None, **options: Any) -> Page:
        context = browser.new_context(**{"base_url": site, "viewport": DESKTOP} | options)
        context.set_default_timeout(WAIT_MILLISECONDS)
        context.add_init_script(LOOKS_SOONER)
        if person is not None:
            context.add_cookies([session_of(person, site)])
        contexts.append(context)
        page = context.new_page()
        slow_down(page)
        listen(page, wrong)
        return page

    yield open_page
    if request.node.stash.get(FAILED, False):
        keep_pictures(contexts, request.node.nodeid)
    for context in contexts:
        context.close()
    assert not wrong, "\n".join(wrong)


def slow_down(page: Page) -> None:
    """As the environment asks for, see above; by itself nothing."""
    if SLOW_TIMES == 1 and not LATENCY_MILLISECONDS:
        return
    debugger = page.context.new_cdp_session(page)
    debugger.send("Emulation.setCPUThrottlingRate", {"rate": SLOW_TIMES})
    debugger.send("Network.enable")
    line = {"offline": False, "downloadThroughput": -1, "uploadThroughput": -1}
    debugger.send("Network.emulateNetworkConditions", line | {"latency": LATENCY_MILLISECONDS})


def session_of(person: Any, site: str) -> Any:
    """A cookie of a session that began just now, as after the log-in page."""
    from django.test import Client

    client = Client()
    client.force_login(person, backend=settings.AUTHENTICATION_BACKENDS[0])
    name = settings.SESSION_COOKIE_NAME
    return {"name": name, "value": client.cookies[name].value, "url": site}


def listen(page: Page, wrong: list[str]) -> None:
    """Note what no page of ours may do."""

    def outside(request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in {"http", "https"} and parts.hostname not in {"localhost", "127.0.0.1"}:
            wrong.append(f"{page.url} asked for {request.url}")

    def refused(response: Response) -> None:
        if response.status >= BAD_REQUEST:
            logger.warning("%s %s", response.status, response.url)

    page.on("response", refused)
    page.on("pageerror", lambda error: wrong.append(f"{page.url}: {error}"))
    page.on("request", outside)
    page.on(
        "console",
        lambda message: (
            wrong.append(f"{page.url}: {message.text}")
            if "Content Security Policy" in message.text
            else None
        ),
    )


def keep_pictures(contexts: list[BrowserContext], test: str) -> None:
    folder = home() / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^a-z0-9_]+", "-", test.lower()).strip("-")[-120:]
    for number, page in enumerate(page for context in contexts for page in context.pages):
        text = page.locator("body").inner_text(timeout=1_000)
        logger.warning("Page %s: %s\n%s", number, page.url, text[:TEXT_CHARACTERS_MAX])
        page.screenshot(path=folder / f"{name}-{number}.png", full_page=True)
