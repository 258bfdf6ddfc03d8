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

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType

from connectors.outbound import CannotRead, CannotRestore, Outbound, Refused
from edge.pools import describe_types
from ledger.canonical import digest, same
from workspaces import formatting

__all__ = [
    "CURRENCY",
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
    "meaning",
    "segment",
]

# The shapes that go between the engine and a connector.

Reversibility = Literal["exact", "compensable", "irreversible"]
Idempotency = Literal["native_key", "conditional", "natural_key", "marker", "none"]
ProbeStrength = Literal["strong", "eventual", "none"]
Purpose = Literal["observe", "compensate"]
Kind = Literal["row", "money", "mail", "http", "calendar"]
State = dict[str, Any]
Recorded = State | None | UnsetType
"""A recorded snapshot: the fields; None where the target was not there; UNSET where nothing was
recorded.
"""


def meaning(words: str, label: str = "") -> msgspec.Meta:
    """What a field of a schema means, for the forms that are made of it; and what it is called."""
    return msgspec.Meta(description=words, title=label or None)


class NothingSchema(msgspec.Struct, forbid_unknown_fields=True):
    """The schema of a connector without settings or credentials."""


CURRENCY = re.compile("[A-Z]{3}")  # ISO 4217
COLUMN_END = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing that a connector can do, and how far it can be trusted to do it once.

    `idempotency` says what keeps a second try from doing it twice: the provider remembers our key
    (`native_key`, for `window_seconds`), the write is conditional on what was read (`conditional`),
    the end state is the same however often it is written (`natural_key`), we leave a mark in the
    same transaction (`marker`), or nothing does (`none`: it is tried once).

    `probe` says whether a lost answer can be found again: at once (`strong`), after
    `horizon_seconds` (`eventual`), or never (`none`). `limit_seconds` bounds the whole call, from
    look-up of the name to the last byte of the answer.
    """

    name: str
    title: str
    args_schema: type[msgspec.Struct]
    reversibility: Reversibility
    idempotency: Idempotency
    window_seconds: int | None = None
    probe: ProbeStrength = "none"
    horizon_seconds: int = 0
    limit_seconds: float = 15.0
    kind: Kind = "http"
    observes: bool = True  # False: there is nothing to read beforehand, so drift cannot be noticed
    is_partial: bool = False  # True: fields left out of the arguments stay as they are
    reads_back: bool = True  # False: no read exists afterwards, so a step ends `reported`

    def __post_init__(self) -> None:
        if self.idempotency == "native_key" and not self.window_seconds:
            raise ValueError(
                f"{self.name}: a native key needs the window that the provider keeps it"
            )
        if self.probe == "eventual" and self.horizon_seconds <= 0:
            raise ValueError(f"{self.name}: an eventual probe needs a horizon")
        if not 0 < self.limit_seconds <= LIMIT_SECONDS_MAX:
            raise ValueError(
                f"{self.name}: limit_seconds is above 0 and at most {LIMIT_SECONDS_MAX}"
            )
        describe_types(self.args_schema)

    def check_args(self, args: Mapping[str, Any]) -> Any:
        """The arguments as the schema's struct; raises Refused with the first mistake's path."""
        try:
            return msgspec.convert(dict(args), self.args_schema)
        except msgspec.ValidationError as wrong:
            raise Refused(f"Arguments of {self.name}: {wrong}") from wrong

    @property
    def may_repeat(self) -> bool:
        """Whether a try whose absence was proven may be followed by another one."""
        return self.idempotency != "none"


LIMIT_SECONDS_MAX = 60.0
"""Longer calls would outlast the engine's lease."""


@dataclass(frozen=True, slots=True)
class Target:
    type: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A connection, opened for one purpose and one call.

    `settings` and `credentials` are instances of the connector's schemas. `credentials` is the
    secret of the purpose: a session for `observe` never holds the credential that can write.
    `outbound` is the only way out: it applies the address rule and ends everything at the call's
    deadline.
    """

    connection: str
    purpose: Purpose
    settings: Any
    credentials: Any
    outbound: Outbound

    def __repr__(self) -> str:
        return f"<Session {self.connection} for {self.purpose}>"  # never the credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the target looks like now; `version` is what a conditional write can rest on.

    `readings` says per field of recorded values whether they are what was found. A connector gives
    them where the system itself has compared them: a column of decimals reads "12.50" as 12.5.
    """

    found: bool
    state: State | None
    version: str | None = None
    readings: Mapping[str, Sequence[tuple[Any, bool]]] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical state; of `null` where the target is gone."""
        return digest(self.state if self.found else None)

    def agrees(self, name: str, recorded: Any) -> bool:
        """Whether a field is as it was recorded."""
        for value, is_so in self.readings.get(name, ()):
            if digest(value) == digest(recorded):
                return is_so
        return self.state is not None and name in self.state and same(recorded, self.state[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of one operation on one target.

    `before` is what is to be restored, `expected` the state in which the target should be found
    just before the call (the action's recorded `after`); each may be UNSET where nothing was
    recorded. `observed` is what the engine last read inside its lease, `must_be_true` the
    post-condition that people approved (None while it is being drafted), `sent_at` the time of the
    attempt in question, `reason` why it is done, in words for people.
    """

    operation: Operation
    args: State
    target: Target
    key: str
    connection: Session
    before: Recorded = UNSET
    expected: Recorded = UNSET
    observed: Observation | None = None
    must_be_true: State | None = None
    sent_at: datetime | None = None
    reason: str = ""

    @property
    def wrote(self) -> State:
        """The fields that the agent left, as far as they were recorded."""
        return self.expected if isinstance(self.expected, dict) else {}

    @property
    def now(self) -> State:
        """The fields that were last read; none where nothing was, or nothing is there."""
        return (self.observed.state if self.observed else None) or {}


@dataclass(frozen=True, slots=True)
class DiffRow:
    """One field of a preview's diff; `now` is None where the target has not been read."""

    field: str
    was: Any
    agent_wrote: Any
    now: Any


@dataclass(frozen=True, slots=True)
class Money:
    """An amount in the currency's smallest unit, as payment APIs have it."""

    amount_minor: int
    currency: str

    @classmethod
    def of(cls, amount: Any, currency: Any) -> Money | None:
        """A whole number of the smallest unit of a currency; None where it is anything else. Cut to
        three letters, USDT would be shown to people as USD.
        """
        is_whole = isinstance(amount, int) or (isinstance(amount, float) and amount.is_integer())
        is_code = isinstance(currency, str) and currency.isascii()  # "ſ" in capitals is S
        code = currency.upper() if is_code else ""
        if not is_whole or isinstance(amount, bool) or not CURRENCY.fullmatch(code):
            return None
        return cls(int(amount), code)

    def __str__(self) -> str:
        return formatting.money(self.amount_minor, self.currency)

    @property
    def in_column(self) -> int | None:
        """The amount for a column; None beyond 64 bits, where the words alone say it."""
        return self.amount_minor if -COLUMN_END <= self.amount_minor < COLUMN_END else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What people decide on: from the structured arguments, and nothing an agent worded.

    `title` is one sentence ("Refund $1 286.00 to card ending 4421"). `will_send` is what goes out,
    `must_be_true` what a read afterwards must find: `{"exists": bool, "fields": {...}}`, or empty
    where no read exists.
    """

    kind: Kind
    title: str
    rows: Sequence[tuple[str, str]] = ()
    will_send: State = field(default_factory=dict)
    must_be_true: State = field(default_factory=dict)
    diff: Sequence[DiffRow] = ()
    money: Money | None = None
    recipients: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How an `apply` ended. `evidence` is small, redacted, and kept in the ledger."""

    outcome: Literal["applied", "no_effect", "unknown"]
    evidence: State = field(default_factory=dict)
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a probe found of an earlier try."""

    found: Literal["present", "absent", "cannot_tell"]
    evidence: State = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FieldDiff:
    """One field in which the target differs. `field` is empty if the whole target came or went."""

    field: str
    expected: Any
    actual: Any


@dataclass(frozen=True, slots=True)
class Check:
    """A read-back: `checks` is a list of {name, expected, actual, ok}."""

    ok: bool
    checks: list[State]


# A connector.


class Connector:
    """One kind of outside system. Each method is a promise; the contract test holds you to it."""

    name: ClassVar[str]
    version: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str] = ""
    """What it reaches and can do there, in one sentence for whoever chooses among connectors."""
    settings_schema: ClassVar[type[msgspec.Struct]] = NothingSchema
    credential_schema: ClassVar[type[msgspec.Struct]] = NothingSchema
    operations: ClassVar[dict[str, Operation]] = {}
    where: ClassVar[frozenset[str]] = frozenset()
    """The settings that say which system is reached; with none named, any of them may."""

    def operations_for(self, settings: Any) -> Mapping[str, Operation]:
        """The operations of one connection; override where the settings declare them."""
        return self.operations

    def version_with(self, settings: Any) -> str:
        """The version with which people approve calls over a connection of these settings; override
        where something else than code and settings says what is sent.
        """
        return self.version

    def place(self, settings: Any) -> str:
        """Which system is reached, in words for a card."""
        return ", ".join(str(getattr(settings, name)) for name in sorted(self.where))

    def account(self, settings: Any, credentials: Any) -> str | None:
        """Whose account a credential opens, where it says so by itself: a user, a role. Empty where
        the settings alone say it. None where nothing tells: then another credential counts as
        another account, and what was approved over the one is asked anew.
        """
        return None

    def asked_account(self, session: Session) -> str | None:
        """The same, asked of the system once, when a credential is entered that does not say it."""
        return None

    def offered(self) -> Mapping[str, Sequence[str]]:
        """What a text of the settings can be, where that is known: its form lets people choose."""
        return {}

    def check_settings(self, settings: Any) -> None:
        """Raise ValueError with one sentence if settings fit the schema and still cannot work."""

    def preview(self, call: Call) -> Preview:
        """Say what would be done: no network, no clock; the same call, the same preview.

        Raises Refused for arguments that can never be sent.
        """
        raise NotImplementedError

    def observe(self, call: Call) -> Observation:
        """Read the target as it is now, and change nothing. Gone is found=False, no error.

        Raises CannotRead where that is not to be had, always if the operation does not observe, and
        CannotRestore where it shows that what was recorded cannot be given back.
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


def segment(name: str) -> str:
    """What an agent named, as one segment of a path, percent-encoded; raises Refused for what can
    be none, so that it leads nowhere else.
    """
    if name in {"", ".", ".."}:
        raise Refused(f"“{name}” is not a name that can stand in a path.")
    return quote(name, safe="")


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
