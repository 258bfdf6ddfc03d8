"""What the stories of the examples share: Skyline's desk, its systems, and how people use pages."""

import re
import time
from dataclasses import dataclass
from typing import Any

import httpx
import psycopg
from playwright.sync_api import Page

from tests.browser import trails

SECONDS_MAX = 90.0


@dataclass
class Skyline:
    url: str
    database: str

    def stage(self) -> Any:
        from demo import agents

        return agents.stage()

    def row(self, table: str, row_id: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.stage().read(table, row_id)
        return found

    def notes(self, ticket: str) -> list[str]:
        with psycopg.connect(self.database) as database:
            found = database.execute("SELECT text FROM ticket_notes WHERE ticket = %s", [ticket])
            return [text for (text,) in found.fetchall()]

    def journal(self, system: str) -> list[dict[str, Any]]:
        """What a system outside says that it did."""
        from demo import places

        url = getattr(places.places(), system)
        entries: list[dict[str, Any]] = httpx.get(f"{url}/journal", trust_env=False).json()[
            "entries"
        ]
        return entries

    def case_of(self, run: str) -> Any:
        """The case of a run, once triage has found it."""
        from recovery.models import Case

        return until(lambda: Case.objects.filter(run__run=run).first())

    def outcome_of(self, case: Any) -> str:
        """How the case ended, once it has."""

        def outcome() -> str:
            case.refresh_from_db()
            return str(case.outcome)

        ended: str = until(outcome)
        return ended


def until(found: Any, seconds: float = SECONDS_MAX) -> Any:
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.2)
    return value


def act(page: Page, name: str) -> None:
    page.locator(".headline").get_by_role("link", name=re.compile(f"^{name}")).click()


def commit(page: Page, why: str, button: str) -> None:
    """Say why and press the button that names the act; the case comes next."""
    page.get_by_placeholder(re.compile("^Why")).fill(why)
    page.get_by_role("button", name=re.compile(button)).click()
    page.wait_for_url(re.compile(r"/cases/\d+/$"))


def open_case(page: Page, case: Any) -> None:
    page.goto("/w/skyline/queue/")
    page.locator(f"tr[data-id='{case.pk}'] .row-link").click()
    page.wait_for_url(re.compile(rf"/cases/{case.pk}/"))


def publish(page: Page, case: Any) -> str:
    """Publish the case's correction as a link; its public address."""
    from recovery.models import Correction

    correction = until(lambda: Correction.objects.filter(case=case).first())
    return trails.publish(page, "skyline", correction.pk)
