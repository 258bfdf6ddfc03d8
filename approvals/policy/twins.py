"""Twins: the compensating operation of a tool, its arguments taken from facts of the ledger."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from approvals.policy.expressions import CannotEvaluate, Expression
from connectors.canonical import canonical

ARGUMENT_BYTES_MAX = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """An operation of a connection, and where its arguments come from."""

    connection: str
    operation: str
    args: Mapping[str, Any]

    def arguments(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments over `target`, `before`, `after`, `args` and `result`, as JSON values.

        Raises CannotEvaluate where a fact is missing or the result is not JSON.
        """
        found = {name: _value(one, facts) for name, one in self.args.items()}
        try:
            written = canonical(found)
        except ValueError as wrong:
            raise CannotEvaluate(f"{self.connection}.{self.operation}: {wrong}") from wrong
        if len(written) > ARGUMENT_BYTES_MAX:
            raise CannotEvaluate(f"arguments larger than {ARGUMENT_BYTES_MAX} bytes")
        return found


def _value(one: Any, facts: Mapping[str, Any]) -> Any:
    if isinstance(one, Expression):
        return one.evaluate(facts)
    if isinstance(one, Mapping):
        return {name: _value(inner, facts) for name, inner in one.items()}
    if isinstance(one, list):
        return [_value(inner, facts) for inner in one]
    return one


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin(Call):
    """How effects of a tool are undone. `target_type` is empty where it serves every type."""

    tool: str
    target_type: str = ""
    reversibility: str | None = None
    probe: Call | None = None
    words: str = ""
