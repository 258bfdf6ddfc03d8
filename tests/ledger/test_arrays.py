"""Lists that travel as one text arrive as they were sent."""

import pytest

from ledger.append.statements import array
from ledger.drivers import plain_connection
from ledger.models import Attempt, Effect
from tests.ledger.conftest import event, record_events

TEXTS = [
    "plain", "", "NULL", None, 'a "quoted" word', "back\\slash", "comma, {braces}", " spaces ",
    "line\nbreak\ttab", "ünïcode ✓", '{"json": "\\u00e4 \\" \\\\"}', "'; DROP TABLE x",
]  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize("texts", [TEXTS, [], [""], [None], ["NULL"], ["\\"], ['"']])
def test_texts_that_anybody_may_have_written_arrive_as_they_are(texts):
    (arrived,) = plain_connection().execute("SELECT %s::text[]", [array(texts)]).fetchone()

    assert arrived == texts


@pytest.mark.django_db
def test_numbers_arrive_as_they_are():
    whole, broken = [0, -1, 2**62, None], [0.0, 1.5, 1e-9, 1e300, -2.25]

    arrived = plain_connection().execute(
        "SELECT %s::bigint[], %s::float8[]", [array(whole), array(broken)]
    )

    assert arrived.fetchone() == (whole, broken)


def test_texts_that_differ_in_what_parts_other_lists_stay_two(actor):
    parted = "order\x1f7\x1e1"
    alike = parted.replace("\x1f", " ").replace("\x1e", " ")
    effect = {"target": {"type": "order", "id": parted}, "summary": "a\ufdd0b", "after": 2}

    record_events(
        actor,
        event("action.planned", action="a", data={"tool": "t"}),
        *(event("action.started", action="a", data={"attempt": one}) for one in (parted, alike)),
        event("action.succeeded", action="a", data={"attempt": alike, "effects": [effect]}),
    )

    assert set(Attempt.objects.values_list("attempt", "state")) == {
        (parted, "running"), (alike, "succeeded")}  # fmt: skip
    assert Effect.objects.values_list("target_id", "summary").get() == (parted, "a b")
