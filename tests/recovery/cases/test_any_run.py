"""Whatever an agent says that the ledger takes, triage reads it and drafts what it can."""

from typing import Any

import hypothesis
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger import drivers
from ledger.append.events import record
from ledger.drivers import plain_connection
from ledger.parsed_events import ParsedEvent, new_id
from ledger.wire import read
from recovery.casework import resuming
from recovery.corrections import publishing
from recovery.models import Case
from recovery.planning import plans
from recovery.triage import triage

pytestmark = pytest.mark.django_db

texts = st.sampled_from(["", "x", "tickets.update", "ticket", "main/T-182", "ü\u202e", "a" * 200])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.just(1e300) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=5,
)
TYPES = (
    "run.started", "run.checkpoint", "run.completed", "run.failed", "run.cancelled", "run.resumed",
    "action.planned", "action.started", "action.succeeded", "action.failed", "action.verified",
)  # fmt: skip
NAMES = (
    "tool", "args", "targets", "class", "saga", "risk", "intent", "compensation", "before", "after",
    "target", "attempt", "result", "effects", "error", "outcome", "ok", "checks", "name", "state",
    "completed", "pending", "request", "goal", "labels", "on_behalf_of", "summary", "key", "reason",
    "by", "failed_action", "directive", "undo_until",
)  # fmt: skip
usual: dict[str, Any] = {
    "tool": "tickets.update",
    "attempt": "1",
    "name": "here",
    "targets": [{"type": "ticket", "id": "main/T-182"}],
    "target": {"type": "ticket", "id": "main/T-182"},
    "before": {"priority": "normal"},
    "after": {"priority": "high"},
}
datas = st.dictionaries(st.sampled_from(NAMES), values, max_size=4).map(lambda odd: usual | odd)
told = st.tuples(st.sampled_from(TYPES), st.sampled_from(["act_1", "act_2"]), datas)


@pytest.mark.parametrize("seed", [3, 4])
def test_triage_reads_whatever_the_ledger_takes(seed, begin_run, shop_connection):
    @settings(
        max_examples=20,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @hypothesis.seed(seed)
    @given(story=st.lists(told, min_size=2, max_size=12))
    def reads(story):
        run = begin_run(f"run_{new_id()}")
        for n, (kind, action, data) in enumerate(story, 1):
            one = {"id": new_id(), "type": kind, "run": run.run, "n": n}
            if kind.startswith("action."):
                one["action"] = action
            said = read(msgspec.json.encode(one | {"data": data}), run.actor)
            if isinstance(said, ParsedEvent):
                drivers.run(record(run.actor, [said]), plain_connection())
        run.ends("failed")

        triage.look()

        for case in Case.objects.filter(run__run=run.run):
            plans.draft(case)
            resuming.preview(case)
            publishing.draft_due()

    reads()
