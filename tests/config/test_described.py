"""The pages that are drawn from the code say what the code says."""

import os
import re
import subprocess
import sys

import pytest

from amends.protocol.vocabulary import DESK_EVENTS
from config.local.places import ROOT
from config.management.commands import describe
from ledger.schemas import AGENT_TYPES
from recovery.models import STEP_MOVES
from workspaces.moves import pairs


@pytest.mark.parametrize("name", sorted(describe.PAGES))
def test_a_drawn_page_is_as_the_code_is_now(name: str) -> None:
    committed = (ROOT / "docs" / name).read_text()
    assert committed == describe.PAGES[name](), "run: manage.py describe"


def test_the_pages_have_every_move_and_every_word_of_an_agent() -> None:
    moves, events = describe.moves_page(), describe.events_page()
    for was, state in pairs(STEP_MOVES):
        assert f"    {was or '[*]'} --> {state}\n" in moves
    for type_ in AGENT_TYPES:
        assert f"| `{type_}` |" in events
    assert describe.spoken().keys() == DESK_EVENTS


def test_every_module_that_a_page_names_is_there() -> None:
    floors = r"edge|workspaces|ledger|connectors|approvals|recovery|config|sdk|bench|demo|tests"
    gone = []
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        named = re.findall(rf"`((?:{floors})/[\w/]+\.py)`", page.read_text())
        if page.name != "CHANGELOG.md":  # it tells of what was
            gone += [(page.name, one) for one in named if not (ROOT / one).exists()]
    rooms = (ROOT / "docs" / "architecture.md").read_text().split("\n### ")
    for room, text in (part.split("/: ", 1) for part in rooms if re.match(r"\w+/: ", part)):
        named = re.findall(r"`([\w/]+\.py)`", text.split("\n## ")[0])
        assert named
        gone += [(room, one) for one in named if not any((ROOT / room).rglob(one))]

    assert [one for one in gone if "NAME" not in one[1]] == []


def test_the_bench_starts_without_a_desk_and_its_page_has_every_measure() -> None:
    """Each measure runs in a process of its own; the first knows no database."""
    alone = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    command = [sys.executable, "-m", "bench", "--help"]
    said = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, check=True)

    listed = re.search(r"\{,?([\w,\s]+)\}", said.stdout)
    assert listed
    page = (ROOT / "docs" / "numbers.md").read_text()
    assert [one for one in listed[1].split(",") if f"| `{one.strip()}` |" not in page] == []
