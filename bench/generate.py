"""A desk that has been at work for three months: runs, actions, effects, events, cases.

    DATABASE_URL=… python -m bench.generate --runs 1000000

writes them by COPY straight into the tables and prints who may look at it, as JSON. Every tenth run
has an open case and every tenth a closed one.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import django
import psycopg
from django.conf import settings
from django.test import Client

django.setup()

from approvals import memory, tallies  # noqa: E402
from approvals.models.policy import DIGEST_CHARACTERS  # noqa: E402
from approvals.policy import Lookup  # noqa: E402
from approvals.policy.conditions import window_seconds  # noqa: E402
from approvals.policy.spelling import as_one  # noqa: E402
from bench.life import (  # noqa: E402
    EVERY_OPEN,
    TOOLS,
    Life,
    Setting,
    ToolTemplate,
    chunks,
    restart_sequences,
)
from bench.servers import Made  # noqa: E402 - models come after Django
from workspaces import independence, keys, teams  # noqa: E402
from workspaces.access import Codename  # noqa: E402
from workspaces.models import Agent, Team, User, Workspace  # noqa: E402

# Who works at the desk of a benchmark, and how they come in.

AGENTS = (
    "airline-desk",
    "billing-bot",
    "crm-sync",
    "travel-concierge",
    "it-onboarding",
    "support-mail",
)
OPERATOR_MAY: tuple[Codename, ...] = ("view", "view_sensitive", "recover", "administer")


@dataclass(frozen=True, slots=True)
class Cast:
    """A workspace, Ada who works its queue, Ben who decides, and the agents with a key each."""

    workspace: Workspace
    ada: User
    ben: User
    agents: list[Agent]
    tokens: list[str]


def cast(slug: str = "bench") -> Cast:
    workspace = Workspace.objects.create(slug=slug, name="Bench")
    operators = teams.create(workspace, "operators", by=None, may=OPERATOR_MAY)
    approvers = teams.create(workspace, "approvers", by=None, may=("view", "approve"))
    ada, ben = _person("Ada", operators), _person("Ben", approvers)
    agents = [Agent.objects.create(workspace=workspace, name=name) for name in AGENTS]
    tokens = [keys.create_key(agent, by=None, name="bench")[1] for agent in agents]
    return Cast(workspace, ada, ben, agents, tokens)


def _person(name: str, team: Team) -> User:
    person = User.objects.create_user(
        f"{name.lower()}@{team.workspace.slug}.example.com", name=name
    )
    teams.add(team, person, by=None)
    independence.prove(person)
    return person


def cookie_of(person: User) -> str:
    """The Cookie header of a session that began just now, as after the log-in page."""
    client = Client()
    client.force_login(person, backend=settings.AUTHENTICATION_BACKENDS[0])
    name = settings.SESSION_COOKIE_NAME
    return f"{name}={client.cookies[name].value}"


CHUNK_RUNS = 20_000


ORDER = ("run", "action", "attempt", "effect", "event", "key", "case", "correction", "approval",
         "requirement")  # fmt: skip
WORDED = {
    "run": "array_to_tsvector(ARRAY['=', 'ofworkspace' || workspace_id, 'instate' || state])",
    "case": "array_to_tsvector(ARRAY['='])",
}
"""Tables with words to be found by, and the lexemes they have besides their text."""


def write(connection: psycopg.Connection[Any], life: Life, rows: dict[str, list[Any]]) -> None:
    """One chunk, parents first; a case's words become a vector on their way in.

    Foreign keys are not checked on the way: these rows are right, and there are millions.
    """
    connection.execute("SET LOCAL session_replication_role = replica")
    for name in ORDER:
        if name in WORDED:
            copy_worded(connection, life, name, rows[name])
        else:
            life.tables[name].copy(connection, rows[name])
    connection.execute("SET LOCAL session_replication_role = origin")


def copy_worded(
    connection: psycopg.Connection[Any], life: Life, name: str, rows: list[Any]
) -> None:
    """Rows with words to be found by: by way of a staging table, where they are still text."""
    table = life.tables[name]
    connection.execute(f"TRUNCATE staged_{name}")
    table.copy(connection, rows, into=f"staged_{name}")
    columns = ", ".join(f'"{one}"' for one in table.defaults)
    chosen = columns.replace('"search"', f"to_tsvector('simple', search) || {WORDED[name]}")
    connection.execute(
        f"INSERT INTO {table.name} ({columns}) SELECT {chosen} FROM staged_{name}"  # noqa: S608
    )


def stage(connection: psycopg.Connection[Any], life: Life) -> None:
    for name in WORDED:
        connection.execute(
            f"CREATE TEMP TABLE staged_{name}"
            f" (LIKE {life.tables[name].name} INCLUDING DEFAULTS INCLUDING GENERATED)"
        )
        connection.execute(f"ALTER TABLE staged_{name} ALTER search TYPE text")


def fill(connection: psycopg.Connection[Any], people: "Cast", runs: int) -> Life:
    """Write everything into the transaction that is open; the tables are empty."""
    from ledger import partitions

    begun = time.monotonic()
    for weeks in (13, 9, 4):
        partitions.make_ahead(datetime.now(UTC) - timedelta(weeks=weeks))
    causes = {call.tool: _cause(people.workspace, call, runs) for call in TOOLS}
    team_id = people.workspace.teams.get(name="approvers").pk
    agents = [(agent.pk, agent.name) for agent in people.agents]
    life = Life(Setting(people.workspace.pk, agents, causes, team_id, runs))
    stage(connection, life)
    for numbers in chunks(runs, CHUNK_RUNS):
        write(connection, life, life.runs(numbers))
        spent = time.monotonic() - begun
        print(f"  {numbers.stop:,} runs in {spent:.0f} s", file=sys.stderr)
    restart_sequences(connection, "ledger_run", "ledger_action", "recovery_case",
                      "approvals_approval")  # fmt: skip
    connection.execute("SELECT setval('ledger_place', %s)", [life.place])
    return life


def made(life: Life, people: "Cast", seconds: float = 0.0) -> Made:
    return Made(
        slug=people.workspace.slug, runs=life.setting.total, cookie=cookie_of(people.ada),
        approver_cookie=cookie_of(people.ben), token=people.tokens[0], case=life.cases.case_id - 1,
        closed_case=life.cases.case_id, case_in_doubt=life.cases.case_in_doubt,
        run=f"run_{life.setting.total - 8:07d}", event=life.event,
        approval=life.cases.approval_id, seconds=seconds,
    )  # fmt: skip


def live(runs: int) -> Made:
    """Make a desk; Django is set up, and the database is empty but migrated."""
    from django.conf import settings

    begun, people = time.monotonic(), cast()
    with psycopg.connect(settings.DATABASE_URL) as connection:
        life = fill(connection, people, runs)
        connection.commit()
        connection.autocommit = True
        connection.execute("VACUUM (ANALYZE)")
    return made(life, people, round(time.monotonic() - begun, 1))


def _cause(workspace: Any, call: ToolTemplate, runs: int) -> int:
    from recovery.models import Cause
    from recovery.triage.causes import Fingerprint, keep

    cause = keep(workspace, Fingerprint(call.tool, call.error, call.message))
    Cause.objects.filter(pk=cause.pk).update(case_count=runs // EVERY_OPEN * 2 // len(TOOLS))
    return cause.pk


# What its gate remembers: sums, what is held of them, and values of earlier calls. A rule with a
# memory is cheap on an empty desk, where nothing is found. Here every call that the bench makes was
# made before: its target has a sum, on which the earlier call still stands, and its value is on
# record among a million others.

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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.generate")
    parser.add_argument("--runs", type=int, default=1_000_000)
    options = parser.parse_args()
    print(json.dumps(asdict(live(options.runs))))


if __name__ == "__main__":
    main()
