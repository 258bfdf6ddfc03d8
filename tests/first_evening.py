"""What people and agents do at a desk that was just installed, over TLS alone, from elsewhere.

    python first_evening.py founder LINK       opens the set-up link; prints the key of an agent
    python first_evening.py agent SECONDS      calls so long, each tool once, and prints what it did

It runs in a place of its own, with what a desk installs alone (tests/config/test_clean_root.py).
"""

import json
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

import amends

DESK = "https://desk.example.com"
WAIT_SECONDS_MAX = 120


def founder(link: str) -> None:
    with httpx.Client(base_url=DESK, timeout=60, follow_redirects=True) as browser:
        first = {
            "name": "Ada", "email": "ada@northwind.example", "password": "a long enough secret",
            "workspace_name": "Northwind",
        }  # fmt: skip
        submit(browser, link, link, first)
        keys = "/w/northwind/settings/keys/"
        submit(browser, keys, "/w/northwind/settings/agents/", {"name": "trip-desk"})
        (agent,) = re.findall(r'<option value="(\d+)"[^>]*>\s*trip-desk', browser.get(keys).text)
        wanted = {"agent": agent, "name": "first", "scopes": ["ingest", "begin", "read"]}
        page = submit(browser, keys, f"{keys}new/", wanted)
        print(re.findall(r"amends_\w{10}_[\w-]{20,}", page)[0])  # noqa: T201


def submit(browser: httpx.Client, page: str, action: str, form: Mapping[str, object]) -> str:
    token = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', browser.get(page).text)[0]
    answer = browser.post(
        action, data={**form, "csrfmiddlewaretoken": token}, headers={"referer": f"{DESK}{page}"}
    )
    assert answer.status_code == 200, answer.text
    return answer.text


def agent(seconds: str) -> None:
    made, longest, over = 0, 0.0, time.monotonic() + float(seconds)
    with TemporaryDirectory() as folder:
        desk = amends.connect(spool=Path(folder) / "spool.sqlite", wait_seconds=WAIT_SECONDS_MAX)
        with desk.run("Move return flights") as run:
            while time.monotonic() < over:
                began = time.monotonic()
                with run.action(
                    "update_flight", target=("reservation", f"R{made}"), args={"flight": "HAT019"},
                    before={"flight": "HAT001"},
                ) as act:  # fmt: skip
                    made += 1
                    act.succeeded(result={"flight": "HAT019"}, after={"flight": "HAT019"})
                longest = max(longest, time.monotonic() - began)
                if made == 1:
                    print("calling", flush=True)  # noqa: T201
                time.sleep(0.05)
        assert desk.flush(WAIT_SECONDS_MAX)
        desk.close(seconds=WAIT_SECONDS_MAX)
    print(json.dumps({"calls": made, "longest": longest}))  # noqa: T201


if __name__ == "__main__":
    {"founder": founder, "agent": agent}[sys.argv[1]](*sys.argv[2:])
