"""A page is asked as in a deployment: by the role of the desk, which lacks rights of the tables'
owner, as whom tests set up and look. A statement for which it has none ends the request.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from psycopg.pq import TransactionStatus

from config.local.postgres import RUNTIME

theirs = {"desk": True}


def ask_as_the_desk() -> None:
    """Let Django's test client do so from here on."""
    from django.db import connection
    from django.test import Client

    ask = Client.request

    def request(self: Client, **asked: Any) -> Any:
        line = connection.connection
        if line is None or not theirs["desk"]:
            return ask(self, **asked)
        line.execute(f"SET ROLE {RUNTIME}")
        try:
            return ask(self, **asked)
        finally:
            if not line.closed and line.info.transaction_status != TransactionStatus.INERROR:
                line.execute("RESET ROLE")

    Client.request = request  # type: ignore[method-assign]


@pytest.fixture
def as_the_owner() -> Iterator[None]:
    """For stories that ask through the owner's connection, which is the same in tests; and for
    those in whose one transaction what a trigger asks at its end is over.
    """
    theirs["desk"] = False
    yield
    theirs["desk"] = True
