"""Whatever fits the API's own document, and much that does not, is answered, never with a 500."""

import os
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ledger import sealer
from ledger.models import EventKey
from tests.ledger.conftest import actor, ada, event, northwind, record_events, token, trip_desk
from workspaces import keys, teams

# About a minute of `make long`; more for whoever looks for trouble.
EXAMPLES = int(os.environ.get("AMENDS_EXAMPLES", "20"))
MODES = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]
__all__ = ["actor", "ada", "northwind", "token", "trip_desk"]


@pytest.fixture
def known(northwind, actor, trip_desk):
    """Ids that exist, so that requests get past the first look-up."""
    record_events(
        actor,
        event("run.started", data={"request": "Move my flight"}),
        event("action.planned", action="a1", n=1, data={"tool": "t", "args": {"to": "LIS"}}),
        event("action.succeeded", action="a1", n=1, data={"result": {"ok": True}}),
    )
    sealer.seal(northwind)
    first = EventKey.objects.filter(workspace=northwind).order_by("place")[0]
    return {"run": "run_1", "action": "a1", "event": first.event_id, "id": 1, "sha256": "a" * 64}


@pytest.fixture
def tokens(northwind, ada, token):
    """An agent's key, a person's token, and none."""
    everything = teams.create(
        northwind, "all", by=None,
        may=["view", "view_sensitive", "recover", "approve", "administer"],
    )  # fmt: skip
    teams.add(everything, ada, by=None)
    return [token, keys.create_token(northwind, by=ada, name="script")[1], ""]


@pytest.mark.django_db(transaction=True)
def test_no_request_fails_the_server(processes, known, tokens):
    web = processes.web()
    schema = schemathesis.openapi.from_url(f"{web.url}/api/v1/openapi.json")
    seen: dict[str, set[int]] = {}
    found: Any
    for found in schema.get_all_operations():
        operation = found.ok()
        statuses = seen[operation.label] = set()
        bombard(operation, web.url, known, tokens, statuses)

    assert len(seen) >= 10
    assert any(status == 200 for statuses in seen.values() for status in statuses)


def bombard(operation, url, known, tokens, statuses):
    shapes = st.one_of([operation.as_strategy(generation_mode=mode) for mode in MODES])

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=shapes, exists=st.booleans(), token=st.sampled_from(tokens))
    def send(case, exists, token):
        if exists:
            case.path_parameters.update(
                {k: v for k, v in known.items() if k in case.path_parameters}
            )
        if case.query and "wait" in case.query:
            case.query["wait"] = 0
        headers = {"authorization": f"Bearer {token}"} if token else {}
        answer = case.call(base_url=url, headers=headers, timeout=30)
        statuses.add(answer.status_code)
        assert answer.status_code < 500, case.as_curl_command()

    send()
