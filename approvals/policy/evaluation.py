"""What the policy says of a call: the most specific rules that fit, and of those the strictest."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from amends.protocol.vocabulary import (
    CLASSES,
    RISK_OF_CLASS,
    RISKS,
    UNCATALOGUED,
    WITHOUT_EFFECT,
    ActionClass,
    Risk,
    glob_specificity,
)
from approvals.policy.conditions import Lookup
from approvals.policy.decisions import (
    ASKING,
    VERDICTS,
    VERIFIES,
    PolicyDecision,
    RequiredApprovers,
    Rule,
    ToolCall,
    Verdict,
    higher,
    verdict_by_risk,
)
from approvals.policy.document import Policy
from ledger.models import Action
from workspaces import formatting

Met = tuple[Rule, Risk, Verdict]


def judge(policy: Policy, call: ToolCall) -> PolicyDecision:
    """What the policy says of `call`. Never raises: what cannot be evaluated is read carefully."""
    action_class, base, facts = _seen(policy, call)
    met = _deciding(policy, call, base, facts)
    rules = [*met, *_always(policy, call, base, facts)]
    if met and not _is_unknown(policy, call):
        return _joined(policy, action_class, rules, facts)
    found = _by_class(policy, call, action_class, base)
    return strictest([found, _joined(policy, action_class, rules, facts)]) if rules else found


def verdict(policy: Policy, call: ToolCall) -> Verdict:
    """The `approval` of what `judge` says, for those who need no reasons."""
    _, base, facts = _seen(policy, call)
    found = [verdict for _, _, verdict in _deciding(policy, call, base, facts)]
    always = [verdict for _, _, verdict in _always(policy, call, base, facts)]
    if not found or _is_unknown(policy, call):
        found.append(_verdict_without_rule(policy, call, base))
    return higher(VERDICTS, *found, *always)


def lookups(policy: Policy, call: ToolCall) -> tuple[Lookup, ...]:
    """What must be looked up before `call` is judged; for most calls nothing."""
    conditions = policy.of_tool(call.tool).asking
    if all(when.is_remembered for when in conditions):
        facts: Mapping[str, Any] = {}  # they ask whatever the call says
    else:
        facts = _seen(policy, call)[2]
    found = {one.key: one for when in conditions for one in when.open(facts)}
    return tuple(found.values())


def fitting_rules(policy: Policy, call: ToolCall) -> tuple[list[Rule], dict[str, Any]]:
    """Every rule whose glob fits, the most specific first and those that hold always last, and the
    facts that their conditions see.
    """
    known = policy.of_tool(call.tool)
    return [*known.rules, *known.always], _seen(policy, call)[2]


def _seen(policy: Policy, call: ToolCall) -> tuple[ActionClass, Risk, dict[str, Any]]:
    """Class and risk of the call, and the facts that conditions see."""
    action_class = class_of(policy, call)
    base, facts = base_risk(policy, call, action_class), call.facts()
    tool = policy.tool(call.tool)
    sensitivity = tool.sensitivity_of(call.args) if tool else ""
    saga = saga_of(policy, call, action_class)
    facts |= {"class": action_class, "risk": base, "sensitivity": sensitivity, "saga": saga}
    return action_class, base, facts


def _is_unknown(policy: Policy, call: ToolCall) -> bool:
    """Whether this is a tool of which the workspace wants to be asked, as nobody has listed it."""
    is_asked = policy.asks_of_unknown and not call.is_step
    return is_asked and not policy.of_tool(call.tool).is_listed


def _verdict_without_rule(policy: Policy, call: ToolCall, risk: Risk) -> Verdict:
    return "MANUAL" if _is_unknown(policy, call) else verdict_by_risk(risk)


def class_of(policy: Policy, call: ToolCall | Action) -> ActionClass:
    """The catalogue's class, which the wire may only raise; without one, the wire's if believed."""
    said = ActionClass(call.action_class) if call.action_class in CLASSES else None
    tool = policy.tool(call.tool)
    if tool is not None and tool.action_class is not None:
        return higher(CLASSES, tool.action_class, said or tool.action_class)
    if said is None or (said in WITHOUT_EFFECT and not call.trusted):
        return UNCATALOGUED
    return said


def saga_of(policy: Policy, call: ToolCall, action_class: ActionClass) -> str:
    """What an agent's call is in the order of its run: what the agent says; where it says nothing,
    there is no way back and the policy keeps that order, the pivot.
    """
    if call.saga or call.is_step or policy.order_law == "WARN":
        return call.saga
    return "pivot" if action_class == ActionClass.EXTERNAL_IRREVERSIBLE else ""


def any_pivot(policy: Policy, calls: Iterable[ToolCall]) -> bool:
    """Whether one of these is the pivot of its run."""
    return any(saga_of(policy, one, class_of(policy, one)) == "pivot" for one in calls)


def base_risk(policy: Policy, call: ToolCall, action_class: ActionClass) -> Risk:
    """The catalogue's risk stands for the catalogue's class: a higher class has its own."""
    tool = policy.tool(call.tool)
    by_class = RISK_OF_CLASS[action_class]
    if tool is None or tool.risk is None:
        return higher(RISKS, by_class, *_said(call))
    raised = CLASSES.index(action_class) > CLASSES.index(tool.action_class or UNCATALOGUED)
    return higher(RISKS, tool.risk, *([by_class] if raised else []), *_said(call))


def _said(call: ToolCall) -> list[Risk]:
    return [Risk(call.risk)] if call.risk in RISKS else []


def _deciding(policy: Policy, call: ToolCall, base: Risk, facts: Mapping[str, Any]) -> list[Met]:
    """Of the rules that are met the most specific; also wider ones, which may deny, where of these
    it cannot be told.
    """
    found: list[Met] = []
    deciding = None
    for rule in policy.of_tool(call.tool).rules:
        place = glob_specificity(rule.glob)
        if deciding is not None and place != deciding:
            break
        risk = higher(RISKS, rule.risk, *_said(call)) if rule.risk else base
        verdict = rule.verdict(risk)
        if rule.met(facts, verdict):
            found.append((rule, risk, verdict))
            deciding = place if rule.is_told(facts) else deciding
    return found


def _always(policy: Policy, call: ToolCall, base: Risk, facts: Mapping[str, Any]) -> list[Met]:
    """Of the rules that hold beside those that decide, the ones that are met."""
    return [
        (rule, higher(RISKS, base, *([rule.risk] if rule.risk else [])), rule.verdict(base))
        for rule in policy.of_tool(call.tool).always
        if rule.met(facts, rule.verdict(base))
    ]


def _by_class(
    policy: Policy, call: ToolCall, action_class: ActionClass, risk: Risk
) -> PolicyDecision:
    verdict = _verdict_without_rule(policy, call, risk)
    asks, kind, tool = (
        verdict == "MANUAL",
        action_class.replace("_", " "),
        formatting.quoted(call.tool),
    )
    why = f"No rule fits {tool}; {kind} is {risk} risk"
    if _is_unknown(policy, call):
        why = f"No rule lists this tool, {tool}, and unknown tools ask; {kind} is {risk} risk"
    return PolicyDecision(
        approval=verdict,
        risk=risk,
        action_class=action_class,
        requires=(RequiredApprovers(None, 1),) if asks else (),
        self_approval=policy.self_approval,
        fresh_login=asks and risk == "critical",
        signed=policy.wants_signature(risk),
        verify=policy.verify,
        rules=({"glob": None, "class": action_class, "risk": risk, "words": why},),
        why=why,
    )


def _joined(
    policy: Policy, action_class: ActionClass, met: Sequence[Met], facts: Mapping[str, Any]
) -> PolicyDecision:
    """Rules of equal place, together: in each respect the strictest."""
    verdict = higher(VERDICTS, *(verdict for _, _, verdict in met))
    risk = higher(RISKS, *(risk for _, risk, _ in met))
    strictest_first = sorted(
        met,
        key=lambda one: (VERDICTS.index(one[2]), RISKS.index(one[1]), one[0].compensation or ""),
        reverse=True,
    )
    asking = [rule for rule, _, found in met if found == "MANUAL"]
    kinds = [rule.compensation for rule, _, _ in strictest_first if rule.compensation]
    rules = tuple(rule.as_json(facts) for rule, _, _ in strictest_first)
    whys = zip(rules, strictest_first, strict=True)
    return PolicyDecision(
        approval=verdict,
        risk=risk,
        action_class=action_class,
        requires=needs(rule.requires for rule in asking) if verdict == "MANUAL" else (),
        expires_seconds=min(
            (rule.expires_seconds for rule in asking if rule.expires_seconds), default=None
        ),
        compensation=kinds[0] if kinds else None,
        self_approval=all(
            policy.self_approval if rule.self_approval is None else rule.self_approval
            for rule in asking or [rule for rule, _, _ in met]
        ),
        fresh_login=verdict == "MANUAL" and risk == "critical",
        signed=policy.wants_signature(risk),
        verify=higher(VERIFIES, *(rule.verify or policy.verify for rule, _, _ in met)),
        affected=higher(ASKING, "", *(rule.affected for rule in asking)),
        affected_words=next((rule.affected_words for rule in asking if rule.affected_words), ""),
        escalate=min((rule.escalate for rule in asking if rule.escalate), default=None),
        rules=rules,
        why="; ".join(told["words"] for told, (_, _, found) in whys if found == verdict),
    )


def needs(asked: Iterable[Sequence[RequiredApprovers]]) -> tuple[RequiredApprovers, ...]:
    """What satisfies each of them: per team the greatest count, and never fewer people in all.

    Without any requirement it is one person who may approve.
    """
    most: dict[str | None, int] = {}
    people = 0
    for group in asked:
        totals: dict[str | None, int] = {}
        for need in group or (RequiredApprovers(None, 1),):
            totals[need.team] = totals.get(need.team, 0) + need.count
        people = max(people, sum(totals.values()))
        for team, count in totals.items():
            most[team] = max(most.get(team, 0), count)
    most.pop(None, None)
    found = [RequiredApprovers(team, count) for team, count in sorted(most.items(), key=str)]
    missing = people - sum(need.count for need in found)
    return (*found, RequiredApprovers(None, missing)) if missing > 0 else tuple(found)


def strictest(judgements: Iterable[PolicyDecision]) -> PolicyDecision:
    """One judgement over a whole plan: in each respect the strictest of its steps."""
    all_of_them = list(judgements)
    if not all_of_them:
        raise ValueError("a plan without steps asks for no judgement")
    asking = [one for one in all_of_them if one.approval == "MANUAL"]
    verdict = higher(VERDICTS, *(one.approval for one in all_of_them))
    rules = {str(sorted(rule.items(), key=str)): rule for one in all_of_them for rule in one.rules}
    whys = list(dict.fromkeys(one.why for one in asking or all_of_them))
    return PolicyDecision(
        approval=verdict,
        risk=higher(RISKS, *(one.risk for one in all_of_them)),
        action_class=higher(CLASSES, *(one.action_class for one in all_of_them)),
        requires=needs(one.requires for one in asking) if verdict == "MANUAL" else (),
        expires_seconds=min(
            (one.expires_seconds for one in asking if one.expires_seconds), default=None
        ),
        self_approval=all(one.self_approval for one in asking or all_of_them),
        fresh_login=verdict == "MANUAL" and any(one.fresh_login for one in asking),
        signed=any(one.signed for one in all_of_them),
        verify=higher(VERIFIES, *(one.verify for one in all_of_them)),
        affected=higher(ASKING, "", *(one.affected for one in asking)),
        affected_words=next((one.affected_words for one in asking if one.affected_words), ""),
        escalate=min((one.escalate for one in asking if one.escalate), default=None),
        rules=tuple(rules[key] for key in sorted(rules)),
        why="; ".join(whys),
    )
