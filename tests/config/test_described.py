"""The pages that are drawn from the code say what the code says."""

import re

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
