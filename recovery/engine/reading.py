"""Reading steps for a journey: by one prepared statement, and what does not change only once.

Django needs longer to make the eight models of a step than PostgreSQL to find them. A step's plan
and run do not change while it is on its way, as far as the engine reads them; its connection may,
and is read anew each time.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

from django.db import DEFAULT_DB_ALIAS
from django.db.models import JSONField, Model
from django.db.models.base import ModelState

from connectors.models import Connection
from ledger.models import Action, Effect, Run
from recovery.engine.sql import ask
from recovery.models import Plan, Step
from workspaces.models import Secret


def _fields(model: type[Model]) -> dict[str, Any]:
    return {field.attname: field for field in model._meta.concrete_fields}  # noqa: SLF001


STEP: Final = list(_fields(Step))
EFFECT: Final = list(_fields(Effect))
ACTION: Final = ["id", "run_id", "action"]
"""The rest of an action is fetched if anybody asks for it."""

CONNECTION: Final = list(_fields(Connection))
CONNECTION_JSON: Final = ("settings", "sandbox_settings")
SECRET: Final = list(_fields(Secret))

KNOWN_MAX = 1_000

Row = TypeVar("Row", bound=Model)


def _json_at(model: type[Model]) -> list[int]:
    return [at for at, one in enumerate(_fields(model).values()) if isinstance(one, JSONField)]


_JSON: Final = [
    *_json_at(Step),
    *(len(STEP) + at for at in _json_at(Effect)),
]
_FROZEN_JSON: Final = [(STEP.index(name), name) for name in ("args", "expected", "post_condition")]
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


class Reader:
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
