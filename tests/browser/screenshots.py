"""`make screenshots`: pictures of the pages of the demo, for people who look at what they build.

Uses the desk that runs in this checkout, or starts one with the demo for as long as it takes. Each
page is taken light and dark, at a desk's width and at a phone's, into docs/pictures/; the six that
the README and the guides show, as a window shows them, into docs/. Between them a ticket is put
right, its correction published and a refund asked for, so that there is something to look at.

What a picture needs is waited for, on a busy machine longer; what never came is named at the end.
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
START_SECONDS_MAX = 240.0
# Agents act, fail and ask, a plan runs, a correction is written: a minute on a quiet machine.
COMES_SECONDS_MAX = 180.0
LOOKS_AGAIN_MILLISECONDS = 2_000
SIZES = {"": {"width": 1440, "height": 900}, "-phone": {"width": 390, "height": 844}}
HOME = "/w/skyline/"
OPERATOR, APPROVER = "rina@skyline.example", "moreau@skyline.example"


class Picture(NamedTuple):
    """Start at `path`, then follow the first link that matches each pattern of `follow`."""

    name: str
    person: str
    path: str
    follow: tuple[str, ...] = ()


# A case knows the list that it was opened from.
CASE = r"/cases/[^/]+/(\?.*)?$"
TICKET, TRIP = "queue/?q=tool:tickets.update+state:open", "queue/?q=tool:hotels.book+state:open"
COMPENSATE = (CASE, r"/compensate/(\?.*)?$")
CORRECTION = r"/corrections/\d+/$"
APPROVAL = r"/approvals/\d+/$"

# What has to be there before anybody works on it, and what comes of the work.
OPEN = (
    Picture("case", OPERATOR, TRIP, (CASE,)),
    Picture("compensate", OPERATOR, TRIP, COMPENSATE),
)
WORKED = (
    Picture("approval", APPROVER, "approvals/", (APPROVAL,)),
    Picture("trail", OPERATOR, "corrections/?view=published", (CORRECTION, r"/c/[^/]+/$")),
)
QUEUE = Picture("queue", OPERATOR, "queue/")
ALWAYS = (
    QUEUE,
    Picture("approvals", APPROVER, "approvals/"),
    Picture("corrections", OPERATOR, "corrections/"),
    Picture("runs", OPERATOR, "runs/"),
    Picture("run", OPERATOR, "runs/", (r"/runs/[^/]+/$",)),
    Picture("ledger", OPERATOR, "ledger/"),
    Picture("event", OPERATOR, "ledger/", (r"/ledger/event/[^/]{10,}/$",)),
    Picture("verify", OPERATOR, "ledger/verify/"),
    Picture("policies", OPERATOR, "policies/"),
    Picture("tools", OPERATOR, "tools/"),
    Picture("connectors", OPERATOR, "connectors/"),
    Picture("insights", OPERATOR, "insights/"),
)
missed: list[str] = []


@contextmanager
def desk() -> Iterator[str]:
    """The address of the running desk, or of one started for this."""
    note = local_home() / env.URL_NOTE
    if note.exists() and answers(f"{note.read_text()}/statusz"):
        yield note.read_text()
        return
    port = free_port()
    command = [sys.executable, "-m", "config.processes", "--port", str(port)]
    running = subprocess.Popen(command, cwd=ROOT)
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not answers(f"http://localhost:{port}/statusz"):
            if running.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("The desk did not start; what went wrong stands above.")
            time.sleep(0.5)
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
    session = client.session
    # Just proved, so that a card shows its answers and not the way to log in anew.
    session["account_authentication_methods"] = [{"method": "password", "proved_at": time.time()}]
    session["account_authentication_methods_user"] = str(person.pk)
    session.save()
    return client.cookies[settings.SESSION_COOKIE_NAME].value


def work(browser: Browser, url: str) -> None:
    """Put a ticket right, ask for a refund, publish what came of the ticket, as an operator does.

    Where none is left to do, somebody did it before.
    """
    page = open_page(browser, url, OPERATOR, "light")
    for path in (TICKET, TRIP):
        page.goto(urljoin(HOME, path))
        any(compensate(page, case) for case in links(page, CASE))
    published = Picture("", OPERATOR, "corrections/?view=published", (CORRECTION,))
    draft = Picture("a draft to publish", OPERATOR, "corrections/?view=draft", (CORRECTION,))
    if not arrive(page, published) and comes(page, draft):
        page.locator("input[name=delivery][value=link]").check()
        page.locator("[data-commits]").click()
        page.wait_for_url(re.compile(CORRECTION))
    page.context.close()


def compensate(page: Page, case: str) -> bool:
    """Commit the plan of a case, unless its target has changed since."""
    if not arrive(page, Picture("", OPERATOR, case, COMPENSATE[1:])):
        return False
    button = page.locator("[data-commits]")
    if not (button.count() and button.is_enabled()):
        return False
    page.get_by_placeholder(re.compile("^Why")).fill("The customer has nothing of it")
    button.click()
    page.wait_for_url(re.compile(r"/cases/\d+/$"))
    return True


def open_page(browser: Browser, url: str, person: str, scheme: str) -> Page:
    context = browser.new_context(viewport=SIZES[""], color_scheme=scheme, base_url=url)  # type: ignore[arg-type]
    cookie = {"name": "sessionid", "value": session_of(person), "url": url}
    context.add_cookies([cookie])  # type: ignore[list-item]
    return context.new_page()


def show(browser: Browser, url: str, picture: Picture, scheme: str = "light") -> None:
    """As a window shows it, for the README and the guides."""
    page = open_page(browser, url, picture.person, scheme)
    if comes(page, picture):
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
            if not comes(page, picture):
                context.close()
                return
            dark = "-dark" if scheme == "dark" else ""
            page.screenshot(path=FOLDER / f"{picture.name}{dark}{ending}.png", full_page=True)
            context.close()
    print(picture.name)  # noqa: T201


def comes(page: Page, picture: Picture) -> bool:
    """Look until what the picture needs is there, within bounds; what never comes is kept in mind.

    Nobody waits twice for the same.
    """
    deadline = time.monotonic() + (0 if picture.name in missed else COMES_SECONDS_MAX)
    while not arrive(page, picture):
        if time.monotonic() > deadline:
            if picture.name not in missed:
                missed.append(picture.name)
                print(f"{picture.name}: nothing to show at {page.url}")  # noqa: T201
            return False
        page.wait_for_timeout(LOOKS_AGAIN_MILLISECONDS)
    return True


def arrive(page: Page, picture: Picture) -> bool:
    answer = page.goto(urljoin(HOME, picture.path))
    for pattern in picture.follow:
        found = next(iter(links(page, pattern)), None)
        if found is None:
            return False
        answer = page.goto(found)
    return answer is not None and answer.ok


def links(page: Page, pattern: str) -> list[str]:
    """Where the page leads, as far as it fits; an address that is only copied counts, too."""
    shown = page.locator("a[href], [data-copy]").evaluate_all(
        "all => all.map(one => one.getAttribute('href') || one.dataset.copy)"
    )
    return [link for link in shown if re.search(pattern, link)]


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"  # Playwright's loop runs in this thread
    with desk() as url, sync_playwright() as playwright:
        os.environ["AMENDS_URL"] = url
        django.setup()
        path = chromium.find(playwright)
        browser = playwright.chromium.launch(executable_path=path, args=list(chromium.FLAGS))
        rest = "--shown" not in sys.argv
        for picture in OPEN:
            show(browser, url, picture)
        for picture in OPEN if rest else ():
            take(browser, url, picture)
        work(browser, url)
        show(browser, url, QUEUE)
        show(browser, url, QUEUE, "dark")
        for picture in WORKED:
            show(browser, url, picture)
        for picture in (*WORKED, *ALWAYS) if rest else ():
            take(browser, url, picture)
        browser.close()
    if missed:
        raise SystemExit(f"No picture was taken of: {', '.join(missed)}.")


if __name__ == "__main__":
    main()
