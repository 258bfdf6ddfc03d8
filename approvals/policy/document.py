"""The policy document (docs/policy.md), read once into what the desk works with."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from django.conf import settings

from amends.protocol.planning import chosen_twin
from amends.protocol.vocabulary import (
    CLASSES,
    RISK_OF_CLASS,
    RISKS,
    WITHOUT_EFFECT,
    ActionClass,
    Risk,
    glob_matches,
    glob_specificity,
)
from approvals.policy.condition_types import SENSITIVITIES
from approvals.policy.conditions import Cap, Condition
from approvals.policy.decisions import OrderLaw, Rule, Verify
from approvals.policy.expressions import CannotEvaluate, Expression
from approvals.policy.named_lists import DeclaredList
from ledger.canonical import canonical_of
from workspaces.lookalikes import skeleton

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True, slots=True)
class WorkingHours:
    """From a minute of the day until another, which may be of the next day."""

    zone: str
    days: Sequence[str]
    start: int
    end: int
    closed: frozenset[date]

    def covers(self, moment: datetime) -> bool:
        """Whether somebody is there at this moment; a shift past midnight is of its first day."""
        local = moment.astimezone(ZoneInfo(self.zone))
        minute, today = local.hour * 60 + local.minute, local.date()
        if self.start < self.end:
            return self.start <= minute < self.end and self._is_open(today)
        if minute >= self.start:
            return self._is_open(today)
        return minute < self.end and self._is_open(date.fromordinal(today.toordinal() - 1))

    def _is_open(self, day: date) -> bool:
        return DAYS[day.weekday()] in self.days and day not in self.closed


# Twins: the compensating operation of a tool, its arguments taken from facts of the ledger.

ARGUMENT_BYTES_MAX = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinCall:
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
            written = canonical_of(found)
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
class Twin(TwinCall):
    """How effects of a tool are undone. `target_type` is empty where it serves every type."""

    tool: str
    target_type: str = ""
    reversibility: str | None = None
    probe: TwinCall | None = None
    words: str = ""


DUE_SECONDS: dict[Risk, int] = {
    Risk.LOW: 7 * 86400,
    Risk.MEDIUM: 3 * 86400,
    Risk.HIGH: 86400,
    Risk.CRITICAL: 4 * 3600,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A catalogue entry: what the workspace itself says of a tool. Agents can only raise it."""

    glob: str
    action_class: ActionClass | None = None
    risk: Risk | None = None
    target: str = ""
    title: str = ""
    reads_untrusted: bool = False
    """Whether its results hold what strangers wrote: mail, web pages, documents."""
    sensitivity: str = ""
    sensitive_args: Mapping[str, str] = field(default_factory=dict)
    """Of which sensitivity single arguments are, by name."""
    preview: Mapping[str, Any] = field(default_factory=dict)

    def sensitivity_of(self, args: Any) -> str:
        """The highest of the tool and of the arguments that are given, be it as no, 0 or empty; of
        all that it names where the arguments have no names.
        """
        given = {} if args is None else args if isinstance(args, dict) else self.sensitive_args
        named = [one for name, one in self.sensitive_args.items() if given.get(name) is not None]
        return max([self.sensitivity, *named], key=("", *SENSITIVITIES).index)

    def rank(self) -> tuple[tuple[int, int, int], int, int, str]:
        """The highest of those that fit a tool counts: most specific, then strictest.

        The glob comes last, so that nothing is ever decided by the order in the document.
        """
        risk = self.risk or (RISK_OF_CLASS[self.action_class] if self.action_class else Risk.LOW)
        known = CLASSES.index(self.action_class) if self.action_class else -1
        return glob_specificity(self.glob), RISKS.index(risk), known, self.glob


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoCompensation:
    """Off unless written; the other conditions (recovery/triage/automatic.py) always hold."""

    enabled: bool = False
    tools: tuple[str, ...] = ("*",)
    publish: bool = False

    def covers(self, tool: str) -> bool:
        return self.enabled and any(glob_matches(glob, tool) for glob in self.tools)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakGlass:
    """Who may decide where nobody who should can be reached (approvals/glass_eligibility.py)."""

    group: str = ""
    """The team; without one the administrators."""
    after_seconds: int = 900
    """So long the question has waited before."""
    up_to: Risk = Risk.HIGH

    def covers(self, risk: str) -> bool:
        return RISKS.index(Risk(risk)) <= RISKS.index(self.up_to)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    capture_intent: bool = True
    capture_snapshot: bool = True
    retention_days: int = 90
    mask: tuple[str, ...] = ()
    shows_last4: bool = False


TOOLS_KNOWN_MAX = 1_000  # names; of further ones it is found anew


class ToolPolicy(NamedTuple):
    """What a policy has about one tool, by its name alone."""

    entry: Tool | None
    """Of the catalogue: the most specific that fits, among equals the strictest."""
    rules: tuple[Rule, ...]
    """The most specific first."""
    always: tuple[Rule, ...]
    review: tuple[Rule, ...]
    asking: tuple[Condition, ...]
    """Those of its rules that ask about more than the call itself."""
    caps: Mapping[str, Cap]
    """By the keys of their lookups the sums and counts that are only held against numbers."""
    is_listed: bool
    """Whether anybody wrote of this tool: a rule, met or not, or an entry of the catalogue; not of
    a name that only reads like one that is written out, whatever wider glob it fits.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A document, compiled. The same digest is the same policy."""

    digest: str
    document: Mapping[str, Any]
    rules: tuple[Rule, ...] = ()
    always: tuple[Rule, ...] = ()
    """Rules that ask or deny beside those that decide, however specific these are."""
    review: tuple[Rule, ...] = ()
    """What is worth a second look once it ran unasked (gate/slow_path_statements.py)."""
    tools: tuple[Tool, ...] = ()
    twins: tuple[Twin, ...] = ()
    audit: Audit = field(default_factory=Audit)
    auto_compensation: AutoCompensation = field(default_factory=AutoCompensation)
    halt_on_failure: bool = False
    call_timeout_seconds: int | None = None
    """Of one outside call of a step; the operation's own limit where it is shorter, or none is."""
    stuck_after_seconds: int = 900
    probation_seconds: int = 24 * 3600
    order_law: OrderLaw = "WARN"
    asks_of_unknown: bool = False
    """Whether people are asked of a tool that no rule and no catalogue entry lists."""
    verify: Verify = "NONE"
    signed_from: Risk | None = None
    """From which risk up each yes is signed by the person; None: from none."""
    self_approval: bool = False
    break_glass: BreakGlass | None = None
    """None: nobody breaks the glass here."""
    due: Mapping[Risk, int] = field(default_factory=lambda: dict(DUE_SECONDS))
    named_lists: Mapping[str, DeclaredList] = field(default_factory=dict)
    """The named lists that conditions may ask about."""
    working_hours: WorkingHours | None = None
    reading_globs: tuple[str, ...] = field(init=False)
    """Of the tools whose calls only read, as the catalogue says."""
    asking: tuple[Rule, ...] = field(init=False)
    """The rules whose conditions ask about more than the call itself."""
    reads_labels: bool = field(init=False)
    """Whether a condition looks at the labels of the run; else they need not be known."""
    _of_tools: dict[str, ToolPolicy] = field(init=False, compare=False, repr=False)
    _looks: Mapping[str, set[str]] = field(init=False, compare=False, repr=False)
    """The globs of rules and of the catalogue, by what they look like."""
    action_expires_seconds: int = 3600
    plan_expires_seconds: int = 24 * 3600

    def __post_init__(self) -> None:
        rules = (*self.rules, *self.always, *self.review)
        read_only = (one.glob for one in self.tools if one.action_class in WITHOUT_EFFECT)
        looks: dict[str, set[str]] = {}
        written = [rule.glob for rule in (*self.rules, *self.always)]
        for glob in (*written, *(tool.glob for tool in self.tools)):
            looks.setdefault(skeleton(glob), set()).add(glob)
        found = {
            "reads_labels": any(rule.when and rule.when.reads("labels") for rule in rules),
            "reading_globs": tuple(sorted(read_only)),
            "asking": tuple(rule for rule in rules if rule.when and rule.when.lookups),
            "_of_tools": {},
            "_looks": looks,
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def of_tool(self, name: str) -> ToolPolicy:
        """What fits this tool, found once: every call of it asks."""
        known = self._of_tools.get(name)
        if known is None:
            known = self._found_of(name)
            if len(self._of_tools) < TOOLS_KNOWN_MAX:
                self._of_tools[name] = known
        return known

    def _found_of(self, name: str) -> ToolPolicy:
        def fitting(rules: Sequence[Rule]) -> tuple[Rule, ...]:
            return tuple(rule for rule in rules if glob_matches(rule.glob, name))

        entry = self.entry_of(name)
        rules = sorted(
            fitting(self.rules), key=lambda one: glob_specificity(one.glob), reverse=True
        )
        asking = tuple(rule.when for rule in fitting(self.asking) if rule.when)
        looks = self._looks.get(skeleton(name))
        is_listed = bool(rules or entry) and (looks is None or name in looks)
        return ToolPolicy(
            entry, tuple(rules), fitting(self.always), fitting(self.review), asking, _caps(asking),
            is_listed,
        )  # fmt: skip

    @property
    def untrusted_globs(self) -> tuple[str, ...]:
        """Of the tools whose results hold what strangers wrote; see also `is_untrusted`."""
        return tuple(sorted({one.glob for one in self.tools if one.reads_untrusted}))

    def is_untrusted(self, tool: str) -> bool:
        """Whether the entry that counts for this tool says that it reads what strangers wrote."""
        found = self.tool(tool)
        return found is not None and found.reads_untrusted

    def is_looking_up(self, tool: str) -> bool:
        """Whether the catalogue says that this tool only reads, and nothing that strangers wrote;
        not of a name that only reads like one that is written out.
        """
        found = self.of_tool(tool)
        entry = found.entry if found.is_listed else None
        return (
            entry is not None
            and entry.action_class == ActionClass.READ_ONLY
            and not entry.reads_untrusted
        )

    @property
    def asks_for_signatures(self) -> bool:
        """Whether any yes has to be signed; else nobody need look for it."""
        return self.wants_signature(Risk.CRITICAL)

    def wants_signature(self, risk: Risk) -> bool:
        """Whether a yes at this risk is signed; the server's own floor counts, whatever stands in
        the document, for the database holds that.
        """
        floors = [one for one in (self.signed_from, settings.AMENDS_SIGNED_FROM) if one]
        return any(RISKS.index(risk) >= RISKS.index(Risk(one)) for one in floors)

    def may_verify(self, tool: str) -> bool:
        """Whether calls of this tool may have to be verified: where nothing asks for that, none of
        them need be judged to know.
        """
        found = self.of_tool(tool)
        return self.verify != "NONE" or any(
            rule.verify not in {None, "NONE"} for rule in (*found.rules, *found.always)
        )

    def due_seconds(self, risk: str) -> int:
        """How long after a failure a case of this risk is due."""
        return next((due for one, due in self.due.items() if one == risk), self.due[Risk.MEDIUM])

    def tool(self, name: str) -> Tool | None:
        """The most specific catalogue entry that fits, among equals the strictest; or None."""
        return self.of_tool(name).entry

    def entry_of(self, name: str) -> Tool | None:
        """The same, for many at once: none of them takes the place of a tool that is called."""
        fitting = (tool for tool in self.tools if glob_matches(tool.glob, name))
        return max(fitting, key=Tool.rank, default=None)

    def twin(self, tool: str, target_type: str) -> Twin | None:
        """How effects of `tool` on targets of this type are undone; the most specific wins."""
        return chosen_twin(
            self.twins, tool, target_type, lambda twin: (twin.tool, twin.target_type)
        )


def _caps(conditions: Iterable[Condition]) -> dict[str, Cap]:
    """The lowest cap of each lookup, where every condition that asks it has one."""
    found: dict[str, list[Cap | None]] = {}
    for condition in conditions:
        for lookup in condition.lookups:
            found.setdefault(lookup.key, []).append(condition.cap(lookup))
    return {
        key: min(known)
        for key, caps in found.items()
        if len(known := [one for one in caps if one is not None]) == len(caps)
    }


GLOB_CHARACTERS_MAX = 200
WILDCARDS_MAX = 6  # each one multiplies the work of a match
OF_PATTERNS = re.compile(r"[\\^$(){}\[\]|,]|^\s|\s$")
"""What other languages of patterns have: a rule that is never met would let pass in silence."""


def mistake(glob: str) -> str | None:
    """What keeps this from being a glob, in words; None if nothing does."""
    if not glob:
        return "a glob needs at least one character"
    if len(glob) > GLOB_CHARACTERS_MAX:
        return f"longer than {GLOB_CHARACTERS_MAX} characters"
    if glob.count("*") + glob.count("?") > WILDCARDS_MAX:
        return f"more than {WILDCARDS_MAX} wildcards"
    return None


@lru_cache(maxsize=1_000)
def posix(globs: Sequence[str]) -> str:
    """The regular expression that PostgreSQL reads for a name that one of these globs fits."""
    words = {"*": ".*", "?": "."}

    def of(glob: str) -> str:
        return "".join(words.get(one) or re.sub(r"([^\w])", r"\\\1", one) for one in glob)

    return f"^({'|'.join(map(of, globs))})$"
