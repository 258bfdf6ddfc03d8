"""The words of a policy: what is judged, by which rules, and what comes out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeVar

from amends.protocol.vocabulary import RISKS, ActionClass, Risk
from approvals.policy.conditions import FINDINGS, STATES, WRITTEN, Condition, LookupResult
from approvals.policy.expressions import CannotEvaluate, InAnotherShape
from approvals.policy.reading import Path

T = TypeVar("T")
Verdict = Literal["AUTO", "MANUAL", "DENY"]
OrderLaw = Literal["WARN", "ASK", "DENY"]
Verify = Literal["CONNECTOR", "AGENT", "PERSON", "NONE"]

UNASKED: Mapping[str | None, str] = {
    "AUTO": "goes without asking",
    "DENY": "is never allowed",
}
"""What a rule without words of its own says of calls about which nobody is asked."""

Asking = Literal["", "ask", "must"]

VERDICTS: tuple[Verdict, ...] = ("AUTO", "MANUAL", "DENY")
VERIFIES: tuple[Verify, ...] = ("NONE", "AGENT", "CONNECTOR", "PERSON")  # from lax to strict
ASKING: tuple[Asking, ...] = ("", "ask", "must")
"""Whether the affected person is asked: not, as evidence, or so that nobody grants before a yes."""

COMPENSATIONS = (
    "NONE", "SNAPSHOT", "ARCHIVE", "DELETE", "REVERSE", "REFUND", "CANCEL", "CORRECTION",
)  # fmt: skip
CONDITION_FACTS = frozenset(
    {
        "tool", "args", "target", "targets", "class", "risk", "agent", "labels", "saga", "before",
        "after", "sensitivity", *WRITTEN,
    }
)  # fmt: skip
TWIN_FACTS = frozenset({"target", "before", "after", "args", "result"})


def first_of(before: Any) -> Any:
    """Of snapshots per target the first one's; a single snapshot is its own."""
    if isinstance(before, list):
        return before[0] if before else None
    return before


def verdict_by_risk(risk: Risk) -> Verdict:
    """Where no rule says a word of its own, people are asked from high up."""
    return "MANUAL" if RISKS.index(risk) >= RISKS.index(Risk.HIGH) else "AUTO"


def higher(order: Sequence[T], *found: T) -> T:
    """The highest of `found` in the given order."""
    return max(found, key=order.index)


BY_ORDER = {"order": True}
"""What marks, among the rules of a question, that people are asked because of a run's order."""


def asked_by_order(rules: Iterable[Mapping[str, Any]]) -> bool:
    """Whether one of a question's rules is that mark."""
    return any(BY_ORDER.items() <= rule.items() for rule in rules)


class Escalation(NamedTuple):
    """Which team is asked, too, where nobody has decided after so many seconds."""

    seconds: int
    team: str


@dataclass(frozen=True, slots=True)
class RequiredApprovers:
    """So many people of one team; without a team, of those who may approve."""

    team: str | None
    count: int

    def __str__(self) -> str:
        who = f"from {self.team}" if self.team else "who may approve"
        return f"{self.count} {'person' if self.count == 1 else 'people'} {who}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """What is judged: a tool call of an agent, or a step of a plan as `connection.operation`."""

    tool: str
    args: Any = None
    targets: Sequence[Mapping[str, Any]] = ()
    action_class: str = ""
    risk: str = ""
    agent: str = ""
    labels: Mapping[str, Any] = field(default_factory=dict)
    saga: str = ""
    trusted: bool = False
    is_step: bool = False
    """Of a plan, by an operation of the workspace's own connections: no tool of an agent."""
    before: Any = None
    """The state of the target that the agent saw, of several a list; None where it told of none."""
    findings: Mapping[str, LookupResult] = field(default_factory=dict)
    """What was looked up for the conditions that ask about more than the call."""

    def facts(self) -> dict[str, Any]:
        first = dict(self.targets[0]) if self.targets else {}
        return {
            "tool": self.tool,
            "args": self.args,
            "target": first,
            "targets": [dict(target) for target in self.targets],
            "class": self.action_class,
            "risk": self.risk,
            "agent": self.agent,
            "labels": dict(self.labels),
            "saga": self.saga,
            FINDINGS: self.findings,
            **self._states(),
        }

    def _states(self) -> dict[str, Any]:
        """`before`, and `after` as far as arguments name its fields, of the first target; neither
        where none is told. Of several targets those of each are told beside them.
        """
        first = self._state(first_of(self.before))
        if self.before is None or len(self.targets) <= 1:
            return first
        told = self.before if isinstance(self.before, list) else [self.before]
        return {**first, STATES: [self._state(one) for one in told]}

    def _state(self, before: Any) -> dict[str, Any]:
        if not isinstance(before, dict):
            return {}
        args = self.args if isinstance(self.args, dict) else {}
        after = {name: args.get(name, value) for name, value in before.items()}
        return {"before": before, "after": after}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule under one glob. What it leaves out is decided by the defaults."""

    glob: str
    when: Condition | None = None
    risk: Risk | None = None
    approval: Verdict | None = None
    requires: tuple[RequiredApprovers, ...] = ()
    expires_seconds: int | None = None
    compensation: str | None = None
    self_approval: bool | None = None
    verify: Verify | None = None
    affected: Asking = ""
    affected_words: str = ""
    bounded: Mapping[str, Any] | None = None
    """How far people may grant calls ahead that this rule asks about; None: not at all."""
    escalate: Escalation | None = None
    words: str = ""
    path: Path = field(default=(), compare=False)

    def verdict(self, risk: Risk) -> Verdict:
        """An explicit word stands."""
        return self.approval or verdict_by_risk(risk)

    def met(self, facts: Mapping[str, Any], verdict: Verdict) -> bool:
        """A condition that fails to evaluate is met where that is the careful reading; of several
        targets one is enough for it, and for `AUTO` it is all.
        """
        if self.when is None:
            return True
        is_careful = verdict != "AUTO"
        try:
            each = self.when.of_each_target(facts)
        except CannotEvaluate:
            return is_careful
        found = (self._holds(one, otherwise=is_careful) for one in each)
        return any(found) if is_careful else all(found)

    def is_told(self, facts: Mapping[str, Any]) -> bool:
        """Of a rule that is met whether it is so whatever arguments of another kind stand for."""
        if self.when is None:
            return True
        try:
            each = self.when.of_each_target(facts)
            return any(self.when.evaluate(one) is True for one in each)
        except CannotEvaluate as cannot:
            return not isinstance(cannot, InAnotherShape)

    def _holds(self, facts: Mapping[str, Any], *, otherwise: bool) -> bool:
        try:
            answer = self.when.evaluate(facts) if self.when else True
        except CannotEvaluate:
            return otherwise
        return answer if isinstance(answer, bool) else otherwise

    def as_json(self, facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The rule as digests and pages need it: every word of it, and, with `facts`, what was
        found because of it.
        """
        told = self.when.told(facts) if self.when and facts else []
        return {
            "glob": self.glob,
            "when": self.when.source if self.when else None,
            "risk": self.risk,
            "approval": self.approval,
            "requires": [{"group": need.team, "count": need.count} for need in self.requires],
            "expires_seconds": self.expires_seconds,
            "compensation": self.compensation,
            "self_approval": self.self_approval,
            "verify": self.verify,
            "affected": self.affected,
            "words": self.words or self.in_words(),
            **({"bounded": dict(self.bounded)} if self.bounded else {}),
            **({"escalate": self.escalate._asdict()} if self.escalate else {}),
            **({"facts": told} if told else {}),
        }

    def in_words(self) -> str:
        condition = f" when {self.when.source}" if self.when else ""
        people = " and ".join(map(str, self.requires)) or str(RequiredApprovers(None, 1))
        wanted = {**UNASKED, "MANUAL": f"needs {people}", None: "is judged by its risk"}
        return f"{self.glob}{condition} {wanted[self.approval]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDecision:
    """What the policy says of one call, or of a whole plan, and because of which rules."""

    approval: Verdict
    risk: Risk
    action_class: ActionClass
    requires: tuple[RequiredApprovers, ...] = ()
    expires_seconds: int | None = None
    compensation: str | None = None
    self_approval: bool = False
    fresh_login: bool = False
    signed: bool = False
    """Whether each yes is a signature of the person's own key (approvals/signatures.py)."""
    verify: Verify = "NONE"
    affected: Asking = ""
    affected_words: str = ""
    escalate: Escalation | None = None
    rules: tuple[dict[str, Any], ...] = ()
    why: str = ""

    @property
    def people(self) -> str:
        """Who has to answer, in words."""
        return " and ".join(map(str, self.requires)) or "1 person who may approve"

    def escalates(self, team: str | None) -> str:
        """Which team is asked, too, where nobody of `team` has decided in time; empty where none
        is, as where one of the rules that ask `team` does not escalate.
        """
        if self.escalate is None:
            return ""
        asking = (
            rule
            for rule in self.rules
            if team and any(need["group"] == team for need in rule.get("requires") or ())
        )
        return self.escalate.team if all(rule.get("escalate") for rule in asking) else ""

    def but_asked(self, why: str) -> "PolicyDecision":
        """The same, but people are asked where no rule asks them, as strictly as for its risk."""
        return replace(
            self,
            approval="MANUAL",
            requires=self.requires or (RequiredApprovers(None, 1),),
            fresh_login=self.risk == "critical",
            why=why,
        )

    def asked_by_order(self, breach: str) -> "PolicyDecision":
        """The same, but people are asked because of the order of the run, and are told so."""
        words = f"The order of its run asks: {breach}"
        rule = {"glob": "", "approval": "MANUAL", "words": words, **BY_ORDER}
        return replace(self.but_asked(f"{breach}; {self.why}"), rules=(*self.rules, rule))

    @property
    def is_asked_by_order(self) -> bool:
        return asked_by_order(self.rules)

    def with_one_more(self, why: str) -> "PolicyDecision":
        """The same, with one person more, who is never the one who asks."""
        if self.approval == "DENY":
            return self
        needs = [*self.requires]
        anybody = next((need for need in needs if need.team is None), None)
        if anybody is not None:
            needs.remove(anybody)
        needs.append(RequiredApprovers(None, (anybody.count if anybody else 0) + 1))
        return replace(
            self,
            approval="MANUAL",
            requires=tuple(needs),
            self_approval=False,
            fresh_login=self.risk == "critical",
            why=f"{self.why}; {why}" if self.approval == "MANUAL" else why,
        )

    def stricter_than(self, approved: "PolicyDecision") -> bool:
        """Whether this asks for more than `approved` did, so that people must be asked anew. Who
        answered for a team is one of those who may approve, too.
        """
        if VERDICTS.index(self.approval) > VERDICTS.index(approved.approval):
            return True
        if self.approval == "AUTO":
            return False
        if ASKING.index(self.affected) > ASKING.index(approved.affected):
            return True
        had = {need.team: need.count for need in approved.requires}
        of_teams = [need for need in self.requires if need.team]
        if any(need.count > had.get(need.team, 0) for need in of_teams):
            return True
        if sum(need.count for need in self.requires) > sum(had.values()):
            return True
        return (self.fresh_login and not approved.fresh_login) or (
            self.signed and not approved.signed
        )
