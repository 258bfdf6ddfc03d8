"""Everything that the engine asks of PostgreSQL, beside the moves of one table (`steps`).

First the pieces that moves are put together from, then how statements are sent, then each statement
in the order of the protocol, and last how steps are read: by one prepared statement, and what does
not change only once. Django needs longer to make the eight models of a step than PostgreSQL to find
them. A step's plan and run do not change while it is on its way, as far as the engine reads them;
its connection may, and is read anew each time.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from django.db import (
    DEFAULT_DB_ALIAS,
    connection,
)
from django.db.models import JSONField, Model
from django.db.models.base import ModelState

from approvals import pauses
from connectors.models import Connection
from ledger import drivers
from ledger.append.statements import Rows, Statement, array
from ledger.drivers import plain_connection
from ledger.models import Action, Effect, Run
from recovery.models import Plan, PlanState, Step, StepState
from recovery.models.plans import (
    DONE,
    HOLDS_TARGET,
    IN_HAND,
    LEFT,
    WAITS_FOR_TURN,
    literals,
)
from workspaces.locks import ADVISORY_SHARED, ROW_LOCK
from workspaces.models import Secret

Row = TypeVar("Row", bound=Model)


class Fragment(NamedTuple):
    """An expression with its parameters. Names in it are ours, never anybody's input."""

    text: str
    values: tuple[Any, ...] = ()


NOW = Fragment("clock_timestamp()")

LEASE_OVER = Fragment("lease_until < clock_timestamp()")

# For `steps.move_all`, which knows of each step how many `seconds` are needed.
LEASE_OUTLASTS = Fragment("lease_until > clock_timestamp() + u.seconds * interval '1 second'")

# A step that is in nobody's hands, and waits for no time.
AT_REST = MappingProxyType({"lease_until": Fragment("NULL"), "wake_at": Fragment("NULL")})

# A sub-query on another table: after a wait for the row's lock PostgreSQL looks at the row's own
# columns again, which it would not do for a row found through a join. And a scalar one, which stays
# where it is: of EXISTS the planner makes a join, and begins there where it knows little of plans.
PLAN_RUNS = Fragment(
    "(SELECT p.state FROM recovery_plan p WHERE p.id = recovery_step.plan_id)"  # noqa: S608
    f" = '{PlanState.RUNNING}'"
)

# A step that has not ended, asked of the steps of one plan in their order. Of `state` itself the
# planner would go to an index of all living steps, for each plan anew, whenever the statistics are
# from a moment in which there were few.
LIVING = f"({{0}}.state || '') NOT IN ({literals((*DONE, *LEFT))})"


def in_seconds(seconds: float) -> Fragment:
    """So many seconds from now, by the database's clock."""
    return Fragment("clock_timestamp() + %s * interval '1 second'", (seconds,))


def ask(text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Run a statement that is run again and again, and give its rows.

    psycopg prepares it after some times, which Django's own cursors never do: for the statements of
    the engine PostgreSQL needs longer to plan than to carry out. Lists are for parameters that are
    cast to arrays. JSON comes back as text.
    """
    return ask_all([(text, values)])[0]


def ask_all(asked: Sequence[Statement], meanwhile: Callable[[], None] | None = None) -> list[Rows]:
    """Several in one go. `meanwhile` is done while PostgreSQL is at work, and must not ask it
    anything.
    """
    sent = [
        (text, [array(value) if isinstance(value, list) else value for value in values])
        for text, values in asked
    ]
    with connection.wrap_database_errors:
        return drivers.execute(plain_connection(), sent, meanwhile)


# What a plan needs next, and which plans wait beside it.

NEXT_ACTIONS_SQL = f"""
SELECT p.id, p.state, p.halt_on_failure, s.id, s.state, s.target_type, s.target_id,
    s.wake_at IS NULL OR s.wake_at <= clock_timestamp(),
    coalesce(s.lease_until < clock_timestamp(), false), s.connector, s.claims
FROM recovery_plan p LEFT JOIN LATERAL (
    SELECT r.*, c.connector FROM recovery_step r
    JOIN connectors_connection c ON c.id = r.connection_id
    WHERE r.plan_id = p.id AND {LIVING.format("r")}
    ORDER BY r.position LIMIT %s) s ON true
WHERE p.id = ANY(%s::bigint[]) ORDER BY p.id, s.position
"""  # noqa: S608

WAITING_SQL = f"""
SELECT p.id, c.concurrency FROM recovery_plan p
CROSS JOIN LATERAL (
    SELECT state, wake_at, claims, connection_id FROM recovery_step s
    WHERE s.plan_id = p.id AND {LIVING.format("s")}
    ORDER BY position LIMIT 1) s
JOIN connectors_connection c ON c.id = s.connection_id
WHERE p.state = '{PlanState.RUNNING}' AND NOT p.id = ANY(%s::bigint[])
    AND p.workspace_id = (SELECT workspace_id FROM recovery_plan WHERE id = %s)
    AND s.state IN ({literals(WAITS_FOR_TURN)}) AND s.claims = 0 AND c.connector = %s
    AND (s.wake_at IS NULL OR s.wake_at <= clock_timestamp())
    AND c.concurrency > (SELECT count(*) FROM recovery_step h
        WHERE h.connection_id = c.id AND h.state IN ({literals(IN_HAND)}))
ORDER BY p.id LIMIT %s
"""  # noqa: S608


# Claiming.

# A step `o` that has its target to itself: it may be at work on it, or nobody knows.
HOLDS_TARGET_SQL = (
    f"(o.state IN ({literals(HOLDS_TARGET)})"
    f" OR (o.state = '{StepState.NEEDS_HUMAN}' AND o.was = '{StepState.UNKNOWN}'))"
)

BUSY_SQL = f"""
SELECT c.id,
    EXISTS (SELECT FROM approvals_pause WHERE workspace_id = c.workspace_id AND lifted_at IS NULL),
    (SELECT count(*) FROM recovery_step
     WHERE state IN ({literals(IN_HAND)}) AND connection_id = c.id)
FROM connectors_connection c WHERE c.id = ANY(%s::bigint[])
"""  # noqa: S608

# Close to its bound, the claims of a connection are made one after the other: whoever counts sees
# what those before it have committed. The lock ends with the claim's transaction.
ONE_BY_ONE_SQL = "SELECT pg_advisory_xact_lock(%s::int, %s::int)"

# Blocked steps become ready and claimed in one go: both moves are told. Whoever has the row in hand
# has won, so nobody waits for it. A target that another plan is at work on is left alone.
CLAIM_SQL = f"""
UPDATE recovery_step SET was = '{StepState.READY}', state = '{StepState.CLAIMED}',
    moved_at = clock_timestamp(), note = '',
    fence = recovery_step.fence + 1, claims = claims + 1, wake_at = NULL,
    lease_until = clock_timestamp() + u.seconds * interval '1 second'
FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::float8[]) AS u (id, fence, state, seconds)
WHERE recovery_step.id = u.id AND recovery_step.state = u.state AND recovery_step.fence = u.fence
    AND recovery_step.id IN (
        SELECT id FROM recovery_step WHERE id = ANY(%s::bigint[]) {ROW_LOCK} SKIP LOCKED)
    AND (wake_at IS NULL OR wake_at <= clock_timestamp())
    AND {PLAN_RUNS.text}
    AND NOT EXISTS (
        SELECT FROM recovery_step o
        WHERE o.workspace_id = recovery_step.workspace_id
        AND o.target_type = recovery_step.target_type AND o.target_id = recovery_step.target_id
        AND o.id <> recovery_step.id AND {HOLDS_TARGET_SQL})
RETURNING recovery_step.id
"""  # noqa: S608

OTHER_ON_TARGET_SQL = f"""
SELECT p.case_id FROM recovery_step o JOIN recovery_plan p ON p.id = o.plan_id
WHERE o.workspace_id = %s AND o.target_type = %s AND o.target_id = %s AND o.plan_id <> %s
    AND {HOLDS_TARGET_SQL}
LIMIT 1
"""  # noqa: S608


# Intending, and settling.

ATTEMPTS_SQL = """
INSERT INTO recovery_stepattempt (step_id, number, fence, key, intended_at, outcome, detail)
SELECT u.id, coalesce((SELECT max(number) FROM recovery_stepattempt t WHERE t.step_id = u.id), 0)
    + 1, u.fence, u.key, clock_timestamp(), '', ''
FROM unnest(%s::bigint[], %s::bigint[], %s::text[]) AS u (id, fence, key)
RETURNING step_id, id, number, intended_at
"""

KEEP_SQL = """
UPDATE recovery_stepattempt SET answered_at = clock_timestamp(), outcome = u.outcome,
    detail = u.detail, evidence = u.evidence::jsonb
FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[]) AS u (id, outcome, detail, evidence)
WHERE recovery_stepattempt.id = u.id
"""

# Reading steps.


def _fields(model: type[Model]) -> dict[str, Any]:
    return {field.attname: field for field in model._meta.concrete_fields}


STEP: Final = list(_fields(Step))

EFFECT: Final = list(_fields(Effect))

ACTION: Final = ["id", "run_id", "action"]
"""The rest of an action is fetched if anybody asks for it."""

CONNECTION: Final = list(_fields(Connection))

CONNECTION_JSON: Final = ("settings", "sandbox_settings")

SECRET: Final = list(_fields(Secret))

KNOWN_MAX = 1_000


def _json_at(model: type[Model]) -> list[int]:
    return [at for at, one in enumerate(_fields(model).values()) if isinstance(one, JSONField)]


_JSON: Final = [
    *_json_at(Step),
    *(len(STEP) + at for at in _json_at(Effect)),
]

FROZEN_JSON: Final = ("args", "before", "expected", "post_condition")

_FROZEN_JSON: Final = [(STEP.index(name), name) for name in FROZEN_JSON]

_COLUMNS: Final = ", ".join(
    f'{table}."{name}"'
    for table, names in (("s", STEP), ("e", EFFECT), ("a", ACTION))
    for name in names
)

STEPS_SQL: Final = f"""
SELECT {_COLUMNS} FROM recovery_step s JOIN ledger_effect e ON e.id = s.effect_id
JOIN ledger_action a ON a.id = e.action_id WHERE s.id = ANY(%s::bigint[])
"""  # noqa: S608

_OF_CONNECTION: Final = ", ".join(
    f'{table}."{name}"'
    for table, names in (("c", CONNECTION), ("o", SECRET), ("w", SECRET))
    for name in names
)

CONNECTIONS_SQL: Final = f"""
SELECT {_OF_CONNECTION} FROM connectors_connection c
LEFT JOIN workspaces_secret o ON o.id = c.observe_secret_id
LEFT JOIN workspaces_secret w ON w.id = c.compensate_secret_id WHERE c.id = ANY(%s::bigint[])
"""  # noqa: S608


class StepReader:
    """Reads steps; remembers the plans and runs that it has met."""

    def __init__(self) -> None:
        self._plans: dict[int, Plan] = {}
        self._runs: dict[int, Run] = {}

    def read(self, step_ids: Collection[int]) -> list[Step]:
        """The steps with everything that the engine reads of them, in no order."""
        found = [_step(row) for row in ask(STEPS_SQL, [list(step_ids)])]
        self._meet(found)
        connections = _connections({step.connection_id for step in found})
        for step in found:
            step.connection = connections[step.connection_id]
            step.plan = self._plans[step.plan_id]
            step.workspace = step.plan.workspace
            step.effect.action.run = self._runs[step.effect.action.run_id]
        return found

    def _meet(self, found: Sequence[Step]) -> None:
        if len(self._plans) > KNOWN_MAX:
            self._plans.clear()
            self._runs.clear()
        plans = {step.plan_id for step in found} - self._plans.keys()
        runs = {step.effect.action.run_id for step in found} - self._runs.keys()
        if plans:
            met = Plan.objects.select_related("case", "workspace").in_bulk(plans)
            self._plans |= met
        if runs:
            self._runs |= Run.objects.only("run", "workspace_id").in_bulk(runs)


def copied(row: Row) -> Row:
    """Another object for the same row. Django's own copying goes through pickling."""
    twin = _bare(type(row), row.__dict__)
    # What is fetched for one is not the other's.
    twin._state.fields_cache = row._state.fields_cache.copy()  # noqa: SLF001
    return twin


def _bare(model: type[Row], values: Mapping[str, Any]) -> Row:
    """An object for a row that is there, of its values alone: Django's own way to make one goes
    through each field and two signals. What is not among them is fetched if anybody asks.
    """
    row = model.__new__(model)
    row.__dict__.update(values)
    row._state = ModelState()  # noqa: SLF001
    row._state.adding, row._state.db = False, DEFAULT_DB_ALIAS  # noqa: SLF001
    return row


def _step(row: Sequence[Any]) -> Step:
    values = list(row)
    texts = {name: values[at] for at, name in _FROZEN_JSON}
    for at in _JSON:
        if values[at] is not None:
            values[at] = json.loads(values[at])
    effect_at, action_at = len(STEP), len(STEP) + len(EFFECT)
    step = _bare(Step, dict(zip(STEP, values[:effect_at], strict=True)))
    step.texts = texts
    step.effect = _bare(Effect, dict(zip(EFFECT, values[effect_at:action_at], strict=True)))
    step.effect.action = _bare(Action, dict(zip(ACTION, values[action_at:], strict=True)))
    return step


def _connections(ids: Collection[int]) -> dict[int, Connection]:
    found = {}
    for row in ask(CONNECTIONS_SQL, [list(ids)]):
        one = Connection.from_db("default", CONNECTION, row[: len(CONNECTION)])
        for name in CONNECTION_JSON:
            setattr(one, name, json.loads(getattr(one, name)))
        observe, compensate = row[len(CONNECTION) :][: len(SECRET)], row[-len(SECRET) :]
        one.observe_secret, one.compensate_secret = _secret(observe), _secret(compensate)
        found[one.pk] = one
    return found


def _secret(row: Sequence[Any]) -> Secret | None:
    return None if row[0] is None else Secret.from_db("default", SECRET, row)


# Reading them anew, at the moment of the intent.

FROZEN = (
    "connection_digest", "connector_version", "operation", "args", "target_type", "target_id",
    "before", "expected", "fingerprint", "post_condition", "digest", "key",
)  # fmt: skip
CONNECTION_NOW = ("name", "connector", "settings", "disabled_at")
FRESH_SQL = f"""
SELECT s.id, {", ".join(f"s.{name}" for name in FROZEN)}, p.policy_digest, p.approval_id,
       {", ".join(f"c.{name}" for name in CONNECTION_NOW)},
       EXISTS (SELECT FROM approvals_pause WHERE workspace_id = s.workspace_id
               AND lifted_at IS NULL),
       (SELECT v.digest FROM approvals_policyversion v
        WHERE v.workspace_id = s.workspace_id AND v.active)
FROM recovery_step s JOIN recovery_plan p ON p.id = s.plan_id
     JOIN connectors_connection c ON c.id = s.connection_id
WHERE s.id = ANY(%s::bigint[])
"""  # noqa: S608

JSON_AT = frozenset({*FROZEN_JSON, "settings"})


@dataclass(frozen=True)
class IntentContext:
    """What stands beside the step at the moment of the intent."""

    paused: bool
    policy_digest: str | None


def read_anew(found: Sequence[Step]) -> dict[int, IntentContext]:
    """Bring steps of one workspace, their plans and connections to what the database says now. A
    pause that is not seen waits for the caller's commit.
    """
    turn: Statement = (ADVISORY_SHARED, [pauses.INTENTS, found[0].workspace_id])
    _, read = ask_all([turn, (FRESH_SQL, [[step.pk for step in found]])])
    rows = {pk: row for pk, *row in read}
    beside: dict[int, Connection] = {}
    fresh = {}
    for step in found:
        values = iter(rows[step.pk])
        for name, value in zip(FROZEN, islice(values, len(FROZEN)), strict=True):
            if name not in JSON_AT or value is None or step.texts.get(name) != value:
                setattr(step, name, _decoded(name, value))
        step.plan = copied(step.plan)
        step.plan.policy_digest, step.plan.approval_id = next(values), next(values)
        now = dict(zip(CONNECTION_NOW, islice(values, len(CONNECTION_NOW)), strict=True))
        if step.connection_id not in beside:  # the steps of one statement share it
            known = beside[step.connection_id] = copied(step.connection)
            for name, value in now.items():
                setattr(known, name, _decoded(name, value))
        step.connection = beside[step.connection_id]
        fresh[step.pk] = IntentContext(*values)
    return fresh


def _decoded(name: str, value: Any) -> Any:
    """Django leaves jsonb as text, so that each field may decode it in its own way."""
    return json.loads(value) if name in JSON_AT and isinstance(value, str) else value
