"""The pages that are drawn from the code say what the code says."""

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
