"""A desk that answers as it is told, for programs in TypeScript."""

import pytest

from tests.contract.desk import ScriptedDesk


@pytest.fixture
def desk():
    desk = ScriptedDesk()
    desk.up()
    yield desk
    desk.down()
