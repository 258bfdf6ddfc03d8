"""Ada, who opened the workspace, and Ben, who may look."""

import pytest

from tests import worlds
from tests.worlds import kept

kept_world = worlds.kept_world


@pytest.fixture
@kept
def ada(db):
    from workspaces.models import User

    return User.objects.create_user("ada@example.com", "a long enough secret", name="Ada")


@pytest.fixture
@kept
def airline(ada):
    from workspaces import entrance

    return entrance.open_workspace("Airline desk", "airline", by=ada)


@pytest.fixture
@kept
def ben(airline):
    from workspaces import teams
    from workspaces.models import User

    ben = User.objects.create_user("ben@example.com", "a long enough secret", name="Ben")
    teams.add(airline.teams.get(name="viewers"), ben, by=None)
    return ben
