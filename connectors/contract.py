"""The plug-in contract: what a connector says of itself, and the promises that it keeps.

A connector is one class in one file. It knows how to look at one kind of outside system and how to
do a few compensating things there; it knows nothing of plans, approvals or retries. The engine
asks, in this order: `preview` (before people decide), `observe` (inside the lease), `apply` (once),
then `probe` if the answer was lost, and `verify` at the end. Between these calls a process may die,
so a connector keeps no state of its own: everything it needs is in the `Call`. Calls for several
steps may be under way beside each other in one process.

There are three outcomes and no fourth. A connector may say `no_effect` only by raising `Refused`;
any other exception means that we do not know, and so does a time-out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET

from connectors.canonical import same
from connectors.refusals import CannotRead, CannotRestore, Refused
from connectors.shapes import (
    Answer,
    Call,
    Check,
    DiffRow,
    FieldDiff,
    Finding,
    Idempotency,
    Kind,
    Money,
    NothingSchema,
    Observation,
    Operation,
    Preview,
    ProbeStrength,
    Purpose,
    Recorded,
    Reversibility,
    Session,
    State,
    Target,
)

__all__ = [
    "UNSET",
    "Answer",
    "Call",
    "CannotRead",
    "CannotRestore",
    "Check",
    "Connector",
    "DiffRow",
    "FieldDiff",
    "Finding",
    "Idempotency",
    "Kind",
    "Money",
    "NothingSchema",
    "Observation",
    "Operation",
    "Preview",
    "ProbeStrength",
    "Purpose",
    "Recorded",
    "Refused",
    "Reversibility",
    "Session",
    "State",
    "Target",
    "checked",
    "drift",
    "found_by_state",
]


class Connector:
    """One kind of outside system. Each method is a promise; the contract test holds you to it."""

    name: ClassVar[str]
    version: ClassVar[str]
    title: ClassVar[str]
    settings_schema: ClassVar[type[msgspec.Struct]] = NothingSchema
    credential_schema: ClassVar[type[msgspec.Struct]] = NothingSchema
    operations: ClassVar[dict[str, Operation]] = {}

    def operations_for(self, settings: Any) -> Mapping[str, Operation]:
        """The operations of one connection; override where the settings declare them."""
        return self.operations

    def check_settings(self, settings: Any) -> None:
        """Raise ValueError with one sentence if settings fit the schema and still cannot work."""

    def preview(self, call: Call) -> Preview:
        """Say what would be done: no network, no clock; the same call, the same preview.

        Raises Refused for arguments that can never be sent.
        """
        raise NotImplementedError

    def observe(self, call: Call) -> Observation:
        """Read the target as it is now, and change nothing. Gone is found=False, no error.

        Raises CannotRestore where it shows that what was recorded cannot be given back.
        """
        raise NotImplementedError

    def apply(self, call: Call) -> Answer:
        """Do it, at most once per key.

        Doing it a second time, or when the thing is already gone, answers `applied`. Where the
        target no longer is as `call.expected` (or `call.observed.version`) says and the operation
        is conditional, raise Refused. Return `applied` only for a clear success.
        """
        raise NotImplementedError

    def probe(self, call: Call) -> Finding:
        """Find out whether an earlier `apply` of this key took effect. Changes nothing.

        `absent` is a proof: the engine may try again on the strength of it.
        """
        return Finding(found="cannot_tell")

    def verify(self, call: Call) -> Check:
        """Read the target anew and hold it against the post-condition, field by field."""
        return checked(self.post_condition(call), self.observe(call))

    def drifted(self, call: Call, observation: Observation) -> list[FieldDiff]:
        """Where the target differs from what the agent left, which is `call.expected`; of fields
        that it did not speak of, those in which the call would write over what somebody else did.
        """
        found = drift(call.expected, observation)
        if isinstance(call.before, dict) and isinstance(call.expected, dict):
            found += _written_over(call, self.post_condition(call), observation)
        return found

    def satisfied(self, call: Call, observation: Observation) -> bool:
        """Whether the post-condition already holds, so that success needs no call."""
        wanted = self.post_condition(call)
        return bool(wanted) and checked(wanted, observation).ok

    def post_condition(self, call: Call) -> State:
        """The one that people approved, or the one that a preview of this call would show."""
        if call.must_be_true is not None:
            return call.must_be_true
        return self.preview(call).must_be_true


def found_by_state(connector: Connector, call: Call) -> Finding:
    """A probe for operations whose effect is the target's state: what does it look like now?

    `present` where the post-condition holds, `absent` where the target is still as the agent left
    it. Use it with an `eventual` probe and a horizon, for a request on its way may still arrive.
    """
    observation = connector.observe(call)
    evidence = {"found": observation.found, "fingerprint": observation.fingerprint}
    if connector.satisfied(call, observation):
        return Finding(found="present", evidence=evidence)
    if call.expected is UNSET or connector.drifted(call, observation):
        return Finding(found="cannot_tell", evidence=evidence)
    return Finding(found="absent", evidence=evidence)


def drift(expected: Recorded, observation: Observation) -> list[FieldDiff]:
    """Compare recorded fields with found ones; fields that nobody recorded cannot drift."""
    if expected is UNSET:
        return []
    if expected is None:
        return [FieldDiff("", None, observation.state)] if observation.found else []
    if not observation.found or observation.state is None:
        return [FieldDiff("", expected, None)]
    return [
        FieldDiff(name, value, observation.state.get(name))
        for name, value in expected.items()
        if not observation.agrees(name, value)
    ]


def _written_over(call: Call, wanted: State, observation: Observation) -> list[FieldDiff]:
    """Fields that are to be as they were, and hold something that the agent has not told of."""
    fields, state = wanted.get("fields", {}), observation.state or {}
    return [
        FieldDiff(name, value, state[name])
        for name, value in dict(call.before or {}).items()
        if name not in (call.expected or {})
        and name in state
        and name in fields
        and same(fields[name], value)
        and not observation.agrees(name, value)
    ]


def checked(wanted: Mapping[str, Any], observation: Observation) -> Check:
    """Hold an observation against a post-condition `{"exists": bool, "fields": {...}}`."""
    exists = bool(wanted.get("exists", True))
    checks = [_check("exists", exists, observation.found, ok=observation.found is exists)]
    state = observation.state or {}
    for name, value in wanted.get("fields", {}).items():
        actual = state.get(name)
        checks.append(_check(name, value, actual, ok=observation.agrees(name, value)))
    return Check(all(one["ok"] for one in checks), checks)


def _check(name: str, expected: Any, actual: Any, *, ok: bool) -> State:
    return {"name": name, "expected": expected, "actual": actual, "ok": ok}
