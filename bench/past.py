"""A desk's past, as its gate remembers it: sums, what is held of them, and values of earlier calls.

A rule with a memory is cheap on an empty desk, where nothing is found. Here every call that the
bench makes was made before: its target has a sum, on which the earlier call still stands, and its
value is on record among a million others. It needs Django, which `bench.begin` sets up before.
"""

import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal

import psycopg

from approvals import memory, tallies
from approvals.models.policy import DIGEST_CHARACTERS
from approvals.policy import Lookup
from approvals.policy.conditions import window_seconds
from approvals.policy.spelling import as_one

DIGEST = f"left(encode(sha256(convert_to({{}}, 'UTF8')), 'hex'), {DIGEST_CHARACTERS})"
SIGHTINGS = f"""
INSERT INTO approvals_sighting
    (workspace_id, field, value, shape, agent_id, person, run_ref, action, at)
SELECT r.workspace_id, %(field)s, {DIGEST.format("'card ' || a.id")},
    {DIGEST.format("'card' || a.id")}, a.agent_id, '', r.run, a.action, a.planned_at
FROM ledger_action a JOIN ledger_run r ON r.id = a.run_id"""  # noqa: S608 - our own words
TALLIES = f"""
INSERT INTO approvals_tally (workspace_id, meter, subject, buckets, since, touched_at)
SELECT r.workspace_id, %(meter)s, {DIGEST.format("'charge ch_' || a.id")},
    jsonb_build_object(%(bucket)s::text, '12'), a.planned_at, a.planned_at
FROM ledger_action a JOIN ledger_run r ON r.id = a.run_id"""  # noqa: S608
RESERVATIONS = """
INSERT INTO approvals_reservation
    (tally_id, agent_id, key, run_ref, action, bucket, amount, held, at)
SELECT t.id, a.agent_id, a.key, r.run, a.action, %(bucket)s, 12, true, a.planned_at
FROM approvals_tally t JOIN ledger_action a ON a.id = t.id - (SELECT min(id) FROM approvals_tally)
    + (SELECT min(id) FROM ledger_action)
JOIN ledger_run r ON r.id = a.run_id WHERE t.meter = %(meter)s"""


def remember(url: str, asked: Iterable[Lookup]) -> int:
    """Every action on record becomes one that the rules' questions find: the call of card and
    charge of its number. How many there are.
    """
    sums = [one for one in asked if one.function == "sum"]
    known = [one for one in asked if one.function == "known"]
    _same_digests()
    begun = time.monotonic()
    with psycopg.connect(url, autocommit=True) as connection:
        for one in known:
            connection.execute(SIGHTINGS, {"field": tallies.name_of(one.subject)})
        for one in sums:
            meter = tallies.Meter("", [], Decimal(0), window_seconds(one.option("over")))
            said = {"meter": tallies.name_of(one.key), "bucket": meter.bucket(datetime.now(UTC))}
            connection.execute(TALLIES, said)
            connection.execute(RESERVATIONS, said)
        connection.execute("VACUUM (ANALYZE)")
        connection.execute("CHECKPOINT")
        row = connection.execute("SELECT count(*) FROM approvals_sighting").fetchone()
    print(f"  remembered in {time.monotonic() - begun:.0f} s", file=sys.stderr)
    return int(row[0]) if row else 0


def _same_digests() -> None:
    """What the statements above make of a number is what the gate looks for."""
    assert memory.ValueDigest.of("card 7").value == tallies.digest_of("card 7")
    assert f"{as_one('charge')} {as_one('ch_7')}" == "charge ch_7"
