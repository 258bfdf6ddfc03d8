"""`make screenshots`: pictures of the pages of the demo, for people who look at what they build.

Uses the desk that runs in this checkout, or starts one with the demo for as long as it takes. Each
page is taken light and dark, at a desk's width and at a phone's, into docs/pictures/; the six that
the README and the guides show, as a window shows them, into docs/. A ticket is put right first and
a refund asked for, so that there is an approval and a correction to look at.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import urljoin

import django
from playwright.sync_api import Browser, Page, sync_playwright

from config import env
from config.local.places import ROOT, local_home
from tests.browser import chromium
from tests.ports import free_port
from tests.processes import answers

DOCS = ROOT / "docs"
FOLDER = DOCS / "pictures"
LOADING_MILLISECONDS = 1_500
# A plan needs a moment to run, and the correction to be written.
WORK_SECONDS = 10.0
START_SECONDS_MAX = 240.0
# The demo's agents need a moment to act, fail and ask.
STORIES_SECONDS = 45.0
SIZES = {"": {"width": 1440, "height": 900}, "-phone": {"width": 390, "height": 844}}
HOME = "/w/skyline/"
OPERATOR, APPROVER = "rina@skyline.example", "moreau@skyline.example"


class Picture(NamedTuple):
    """Start at `path`, then follow the first link that matches each pattern of `follow`."""

    name: str
    person: str
    path: str
    follow: tuple[str, ...] = ()


CASE = r"/cases/[^/]+/$"
PICTURES = (
    Picture("queue", OPERATOR, "queue/"),
    Picture("case", OPERATOR, "queue/", (CASE,)),
    Picture("compensate", OPERATOR, "queue/", (CASE, r"/compensate/$")),
    Picture("approvals", APPROVER, "approvals/"),
    Picture("approval", APPROVER, "approvals/", (r"/approvals/\d+/$",)),
    Picture("corrections", OPERATOR, "corrections/"),
    Picture("trail", OPERATOR, "corrections/", (r"/c/[^/]+/$",)),
    Picture("runs", OPERATOR, "runs/"),
    Picture("run", OPERATOR, "runs/", (r"/runs/[^/]+/$",)),
    Picture("ledger", OPERATOR, "ledger/"),
    Picture("policies", OPERATOR, "policies/"),
    Picture("tools", OPERATOR, "tools/"),
    Picture("connectors", OPERATOR, "connectors/"),
    Picture("insights", OPERATOR, "insights/"),
)


TICKET, TRIP = "queue/?q=tool:tickets.update+state:open", "queue/?q=tool:hotels.book+state:open"
COMPENSATE = (CASE, r"/compensate/$")
SHOWN = (
    Picture("queue", OPERATOR, "queue/"),
    Picture("case", OPERATOR, TRIP, (CASE,)),
    Picture("compensate", OPERATOR, TRIP, COMPENSATE),
    Picture("approval", APPROVER, "approvals/", (r"/approvals/\d+/$",)),
    Picture("trail", OPERATOR, "corrections/", (r"/corrections/\d+/$", r"/preview/$")),
)


@contextmanager
def desk() -> Iterator[str]:
    """The address of the running desk, or of one started for this."""
    note = local_home() / env.URL_NOTE
    if note.exists() and answers(f"{note.read_text()}/readyz"):
        yield note.read_text()
        return
    port = free_port()
    command = [sys.executable, "-m", "config.processes", "--port", str(port)]
    running = subprocess.Popen(command, cwd=ROOT)
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not answers(f"http://localhost:{port}/readyz"):
            if running.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("The desk did not start; what went wrong stands above.")
            time.sleep(0.5)
        time.sleep(STORIES_SECONDS)
        yield f"http://localhost:{port}"
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait()


def session_of(email: str) -> str:
    """A session as the log-in page would make it: the demo's password is nobody's business here."""
    from django.conf import settings
    from django.contrib.auth import get_user_model
    from django.test import Client

    client = Client()
    person = get_user_model().objects.get(email=email)
    client.force_login(person, backend=settings.AUTHENTICATION_BACKENDS[0])
    return client.cookies[settings.SESSION_COOKIE_NAME].value


def work(browser: Browser, url: str) -> None:
    """Put a ticket right and ask for a refund, as an operator does, unless there is none left."""
    for path in (TICKET, TRIP):
        page = open_page(browser, url, OPERATOR, "light")
        if arrive(page, Picture("", OPERATOR, path, COMPENSATE)):
            page.get_by_placeholder(re.compile("^Why")).fill("The customer has nothing of it")
            button = page.locator("[data-commits]")
            if button.is_enabled():
                button.click()
                page.wait_for_url(re.compile(r"/cases/\d+/$"))
        page.context.close()
    time.sleep(WORK_SECONDS)


def open_page(browser: Browser, url: str, person: str, scheme: str) -> Page:
    context = browser.new_context(viewport=SIZES[""], color_scheme=scheme, base_url=url)  # type: ignore[arg-type]
    cookie = {"name": "sessionid", "value": session_of(person), "url": url}
    context.add_cookies([cookie])  # type: ignore[list-item]
    return context.new_page()


def show(browser: Browser, url: str, picture: Picture, scheme: str = "light") -> None:
    """As a window shows it, for the README and the guides."""
    page = open_page(browser, url, picture.person, scheme)
    if arrive(page, picture):
        page.wait_for_timeout(LOADING_MILLISECONDS)
        dark = "-dark" if scheme == "dark" else ""
        page.screenshot(path=DOCS / f"{picture.name}{dark}.png")
        print(f"docs/{picture.name}{dark}.png")  # noqa: T201
    page.context.close()


def take(browser: Browser, url: str, picture: Picture) -> None:
    cookie = {"name": "sessionid", "value": session_of(picture.person), "url": url}
    for scheme in ("light", "dark"):
        for ending, size in SIZES.items():
            context = browser.new_context(viewport=size, color_scheme=scheme, base_url=url)  # type: ignore[arg-type]
            context.add_cookies([cookie])  # type: ignore[list-item]
            page = context.new_page()
            if not arrive(page, picture):
                print(f"{picture.name}: nothing to show at {page.url}")  # noqa: T201
                context.close()
                return
            dark = "-dark" if scheme == "dark" else ""
            page.screenshot(path=FOLDER / f"{picture.name}{dark}{ending}.png", full_page=True)
            context.close()
    print(picture.name)  # noqa: T201


def arrive(page: Page, picture: Picture) -> bool:
    answer = page.goto(urljoin(HOME, picture.path))
    for pattern in picture.follow:
        links = [str(link.get_attribute("href")) for link in page.locator("a[href]").all()]
        found = next((link for link in links if re.search(pattern, link)), None)
        if found is None:
            return False
        answer = page.goto(found)
    return answer is not None and answer.ok


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"  # Playwright's loop runs in this thread
    with desk() as url, sync_playwright() as playwright:
        os.environ["AMENDS_URL"] = url
        django.setup()
        path = chromium.find(playwright)
        browser = playwright.chromium.launch(executable_path=path, args=list(chromium.FLAGS))
        work(browser, url)
        for picture in SHOWN:
            show(browser, url, picture)
        show(browser, url, SHOWN[0], "dark")
        for picture in () if "--shown" in sys.argv else PICTURES:
            take(browser, url, picture)
        browser.close()


if __name__ == "__main__":
    main()
