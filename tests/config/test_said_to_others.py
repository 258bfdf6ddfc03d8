"""What others could read later: logs, and what a browser keeps of a page."""

import json
import logging

import pytest
from django.test import Client

from config.logs import Redacting
from tests import people
from tests.config.test_door import ask
from tests.processes import Processes
from workspaces import entrance
from workspaces.models import User, Workspace

pytestmark = pytest.mark.django_db(transaction=True)
acme, operators, ada = people.acme, people.operators, people.ada


def test_no_living_link_or_key_stands_in_the_log_of_a_web_process(processes: Processes) -> None:
    token = entrance.setup_link()
    web = processes.web(AMENDS_LOG_LEVEL="DEBUG")
    for path in (f"/setup/{token}/x", f"/c/{token}/", f"/join/{token}/", f"/ask/{token}/",
                 f"/summary/stop/{token}/"):  # fmt: skip
        assert ask(f"{web.url}{path}")[0] in {404, 410}
        ask(f"{web.url}{path}", "POST")  # without a CSRF token: Django warns, and names the path

    assert "/join/…/" in web.said()
    assert token not in web.said()


def test_a_log_for_machines_is_json_and_tells_no_token_either(processes: Processes) -> None:
    token = entrance.setup_link()
    web = processes.web(AMENDS_LOG_LEVEL="DEBUG", AMENDS_LOG_FORMAT="json")
    ask(f"{web.url}/join/{token}/", "POST")
    ask(f'{web.url}/join/{token}"quoted"/', "POST")

    lines = [json.loads(line) for line in web.said().splitlines()]
    warned = [line for line in lines if "/join/…" in line["message"]]
    assert warned
    assert {line["process"] for line in lines} == {"web"}
    assert {"time", "level", "logger", "message", "pid", "process"} <= lines[0].keys()
    assert token not in web.said()


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("Not Found: /c/s3cret_-x/record.json", "Not Found: /c/…/record.json"),
        ("GET /accounts/login/?next=/join/s3cret/", "GET /accounts/login/?next=/join/…/"),
        (
            "GET /accounts/login/?next=%2Fjoin%2Fs3cret%2F",
            "GET /accounts/login/?next=%2Fjoin%2F…%2F",
        ),
        ("/accounts/password/reset/key/3-s3cret/", "/accounts/password/reset/key/…/"),
        ("Bearer amends_0a1b2c3d4e_s3-cret_x", "Bearer amends_0a1b2c3d4e_…"),
        ("GET /w/acme/cases/7/ 500", "GET /w/acme/cases/7/ 500"),
    ],
)
def test_a_token_is_left_out_wherever_it_stands(said: str, written: str) -> None:
    record = logging.LogRecord("django.request", logging.WARNING, "", 0, "%s", (said,), None)

    assert Redacting("%(message)s").format(record) == written


def test_no_browser_keeps_a_page_of_a_workspace(client: Client, acme: Workspace, ada: User) -> None:
    client.force_login(ada)
    for path in ("queue/", "approvals/", "ledger/", "settings/members/", "cases/404/"):
        assert "no-store" in client.get(f"/w/acme/{path}")["Cache-Control"], path
    assert "no-store" in client.get("/accounts/login/")["Cache-Control"]


def test_a_foreign_host_is_one_line_in_the_log(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Anybody can send one with every request: no traceback for each."""
    assert client.get("/", headers={"host": "elsewhere.example"}).status_code == 400

    [said] = [one for one in caplog.records if one.name == "django.security.DisallowedHost"]
    assert "elsewhere.example" in said.getMessage()
    assert "\n" not in Redacting().format(said)


def test_what_is_not_for_somebody_is_one_line_in_the_log_however_often_they_ask(
    client: Client, caplog: pytest.LogCaptureFixture, acme: Workspace
) -> None:
    viewer = people.person("vera", people.team(acme, "viewers", "view"))
    client.force_login(viewer)
    assert client.post("/w/acme/policies/new/").status_code == 403

    [said] = [one for one in caplog.records if one.name == "django.request"]
    assert "\n" not in Redacting().format(said)


def test_a_line_in_the_log_writes_no_other_line() -> None:
    path = "/api/v1/runs/a\n2026-11-26 ERROR desk: all is lost\r\x1b[31m\u2028/directive"
    record = logging.LogRecord("edge", logging.WARNING, "", 0, "%s: too busy", (path,), None)

    said = Redacting("%(message)s").format(record)

    assert said.splitlines() == [said]
    assert "a\\n2026-11-26 ERROR" in said
