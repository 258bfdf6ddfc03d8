"""Ada, who opened the workspace."""

import pytest


@pytest.fixture
def ada(db):
    from workspaces.models import User

    return User.objects.create_user("ada@example.com", "a long enough secret", name="Ada")


@pytest.fixture
def airline(ada):
    from workspaces import entrance

    return entrance.open_workspace("Airline desk", "airline", by=ada)
