"""Places in lists that no page gave out: a digit that is no number, one of another script, one that
no row can have. Each is answered like none.
"""

import pytest
from django.test import Client

from tests import people
from workspaces.models import User, Workspace

pytestmark = pytest.mark.django_db
acme, operators, ada = people.acme, people.operators, people.ada

STRANGE = ["²", "٣", "9" * 19, "9" * 5_000, "-" + "9" * 30, "1e3"]
MOMENT = "2026-11-23T01:00:00+00:00_"
LISTS = ["queue", "approvals", "causes", "corrections", "bulk", "runs", "ledger", "audit",
         "policies", "connectors", "insights", "settings/keys"]  # fmt: skip
NAMES = ["after", "before", "cursor", "peek", "view", "step", "since", "heard"]


def test_no_list_fails_on_a_number_that_is_none(
    client: Client, acme: Workspace, ada: User, subtests: pytest.Subtests
) -> None:
    client.force_login(ada)
    for place in LISTS:
        with subtests.test(place=place):
            assert client.get(f"/w/acme/{place}/").status_code == 200
            for strange in [*STRANGE, *(MOMENT + one for one in STRANGE)]:
                page = client.get(f"/w/acme/{place}/", dict.fromkeys(NAMES, strange))
                assert page.status_code < 500, strange
