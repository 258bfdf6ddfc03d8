"""What the desk proposes of the policy, out of what became of calls: less asking where that was
earned, more where it was lost.

A proposal is a document, its reason and its dry run. A person saves it as a version, and puts that
in force as any other: nothing loosens, and nothing tightens, by itself. Loosening rests on calls
that people approved, that were read back and never overturned, all of them; it never goes beyond
what was seen, and leaves every denial and every cap. One failure of a call that nobody was asked
about is enough to propose asking.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models.functions import Now

from amends.protocol.masking import holds_mask
from amends.protocol.vocabulary import Risk
from approvals import dry_run, health, versions
from approvals.argument_fields import leaves_of, spelled
from approvals.call_context import is_of_current_try
from approvals.models import Approval, ApprovalState, SubjectKind
from approvals.policy import Invalid, Policy, editing, judge, load_new
from approvals.policy.conditions import COUNTING
from ledger.models import Action
from ledger.models.runs import Compensated, Verified
from workspaces import formatting
from workspaces.models import Workspace

EARNED_MIN = 10
"""Calls of one tool in the time, every one of them good, before less asking is proposed."""
APPROVALS_MAX = health.APPROVALS_MAX
FAILURES_MAX = 500
SHOWN_MAX = 20
BOUNDS_MAX = 12
FIXED_CHARACTERS_MAX = 100
NAMES = re.compile(r"args(?:\.[A-Za-z_][A-Za-z0-9_]*)+")

LOOSER, TIGHTER = "looser", "tighter"


@dataclass(frozen=True, slots=True)
class Proposal:
    """One change of the rules of one tool. `source` is the whole document with it; `lost` are the
    comments in it that do not survive.
    """

    kind: str
    tool: str
    words: str
    source: str
    lost: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.tool}"


def of(workspace: Workspace, policy: Policy) -> list[Proposal]:
    """What is proposed now, tightening first; `policy` is the one in force."""
    source = versions.source_of(versions.in_force(workspace))
    lost = _lost(workspace, policy)
    found = [_tighter(source, tool, why) for tool, why in sorted(lost.items())]
    for tool, calls in sorted(_earned(workspace).items()):
        if tool not in lost and (looser := _looser(source, policy, tool, calls)):
            found.append(looser)
    return [one for one in found if _is_policy(one.source)][:SHOWN_MAX]


def find(workspace: Workspace, policy: Policy, key: str) -> Proposal | None:
    return next((one for one in of(workspace, policy) if one.key == key), None)


def _is_policy(source: str) -> bool:
    try:
        load_new(source)
    except Invalid:
        return False
    return True


# Lost: calls that nobody was asked about, and that came to no good.


def _lost(workspace: Workspace, policy: Policy) -> dict[str, str]:
    """Per tool of which the policy asks nobody: what failed of it, in words."""
    recent = Action.objects.filter(
        workspace=workspace,
        agent__isnull=False,
        planned_at__gte=Now() - timedelta(days=dry_run.DAYS),
    ).exclude(tool="")
    bad = recent.filter(verified=Verified.FAILED) | recent.exclude(compensated=Compensated.NONE)
    read = (*dry_run.CALL_COLUMNS, "verified", "compensated")
    newest = bad.select_related("agent", "run").only(*read).order_by("-id")[:FAILURES_MAX]
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for action in newest:
        if judge(policy, dry_run.call_of(action)).approval == "AUTO":
            counts[action.tool][0] += action.verified == Verified.FAILED
            counts[action.tool][1] += action.compensated != Compensated.NONE
    return {tool: _failures(*count) for tool, count in counts.items()}


def _failures(unproven: int, undone: int) -> str:
    told = [
        f"{unproven} did not leave what the agent said" if unproven else "",
        f"{undone} had to be undone" if undone else "",
    ]
    return " and ".join(filter(None, told))


def _tighter(source: str, tool: str, why: str) -> Proposal:
    words = f"Of the calls of {tool} that nobody is asked about, {why}"
    rule = {"approval": "MANUAL", "words": words[:400]}
    # Beside the rules that decide: under the tool's own glob it would take the place of wider ones.
    edited = editing.added(source, tool, rule, editing.ALWAYS)
    told = (
        f"Ask a person before {formatting.quoted(tool)}: of the calls that nobody was asked about,"
        f" {why}."
    )
    return Proposal(TIGHTER, tool, told, edited.source, edited.lost)


# Earned: calls that people approved each time, that were read back, and that stand.


def _earned(workspace: Workspace) -> dict[str, list[Approval]]:
    """Per tool: its approved calls, where all that were asked about came to good."""
    asked = Approval.objects.filter(
        workspace=workspace,
        subject_kind=SubjectKind.ACTION,
        asked_at__gte=Now() - timedelta(days=dry_run.DAYS),
    ).exclude(state=ApprovalState.WAITING)
    newest = asked.select_related("action").order_by("-id")[:APPROVALS_MAX]
    good: dict[str, list[Approval]] = defaultdict(list)
    spoilt: set[str] = set()
    for one in newest:
        if one.action is None or not one.calls:
            continue
        tool = str(one.calls[0]["operation"])  # as people saw it: of an action its agent says more
        if _is_good(one):
            good[tool].append(one)
        else:
            spoilt.add(tool)
    return {
        tool: approvals
        for tool, approvals in good.items()
        if tool not in spoilt and len(approvals) >= EARNED_MIN
    }


def _is_good(one: Approval) -> bool:
    """Approved as it was asked, made, read back, standing; and nothing that is never let go."""
    action = one.action
    return (
        action is not None
        and one.state == ApprovalState.USED
        and action.verified == Verified.OK
        and action.compensated == Compensated.NONE
        and is_of_current_try(one)
        and one.replaces_id is None
        and not (one.signed or one.affected or one.risk == Risk.CRITICAL)
    )


def _looser(
    source: str, policy: Policy, tool: str, approvals: Sequence[Approval]
) -> Proposal | None:
    within = _within([one.calls[0] for one in approvals])
    own = [entry for glob, _, entry in editing.entries(source) if glob == tool]
    if not within or _is_held_elsewhere(policy, tool, own):
        return None
    kept = _kept(policy, tool, approvals)
    is_kept = [_is_denial(entry) or _spaced(entry.get("when")) in kept for entry in own]
    if own and all(is_kept):
        return None
    asking = [
        entry if stays else _but(entry, within) for entry, stays in zip(own, is_kept, strict=True)
    ]
    rule = {
        "when": within,
        "approval": "AUTO",
        "words": f"{len(approvals)} such calls were approved, read back and never overturned",
    }
    edited = editing.with_rules(source, tool, [*asking, rule])
    told = (
        f"Ask nobody about {formatting.quoted(tool)} where {within}: people approved all"
        f" {len(approvals)} that were asked about, each was read back, and none was overturned."
    )
    return Proposal(LOOSER, tool, told, edited.source, edited.lost)


def _is_denial(entry: Mapping[str, Any]) -> bool:
    return str(entry.get("approval", "")).upper() == "DENY"


def _is_held_elsewhere(policy: Policy, tool: str, own: Sequence[Mapping[str, Any]]) -> bool:
    """Whether rules of another place hold calls of the tool of which not all were seen: a rule of
    the tool alone would take the place of wider ones, and of what these deny or count.
    """
    known = policy.of_tool(tool)
    decides_alone = any(not entry.get("when") for entry in own)
    wider = [one for one in known.rules if one.glob != tool and not decides_alone]
    return bool(known.always) or any(
        one.approval == "DENY" or (one.when is not None and one.approval != "AUTO") for one in wider
    )


def _kept(policy: Policy, tool: str, approvals: Sequence[Approval]) -> set[str]:
    """The conditions of its own rules that stay as they are: those that count, and those that not
    each of these calls was asked about for.
    """
    asked = [{rule.get("when") for rule in one.rules} for one in approvals]
    return {
        _spaced(one.when.source)
        for one in policy.of_tool(tool).rules
        if one.when is not None
        and one.glob == tool
        and (
            any(lookup.function in COUNTING for lookup in one.when.lookups)
            or not all(one.when.source in whens for whens in asked)
        )
    }


def _spaced(when: Any) -> str:
    """A condition however the document breaks its lines."""
    return " ".join(str(when or "").split())


def _but(entry: Mapping[str, Any], within: str) -> dict[str, Any]:
    """The same rule for all that is not within what was seen."""
    before = f"({entry['when']}) && " if entry.get("when") else ""
    return dict(entry) | {"when": f"{before}!({within})"}


def _within(calls: Sequence[Mapping[str, Any]]) -> str:
    """The condition that holds for what was seen: a target that is known, each number between those
    that were seen, and what was always the same. Empty where that cannot be said.
    """
    seen = [dict(_values(call.get("args"))) for call in calls]
    everywhere = set.intersection(*(set(one) for one in seen))
    bounds = []
    for path in sorted({name for one in seen for name in one}):
        values = [one[path] for one in seen if path in one]
        if any(map(_is_number, values)):
            is_bound = path in everywhere and all(map(_is_number, values)) and NAMES.fullmatch(path)
            if not is_bound:
                return ""
            low, high = min(values), max(values)
            bounds += [f"{path} >= {low}", f"{path} <= {high}"]
        elif path in everywhere and _is_fixed(path, values):
            bounds.append(f"{path} == {json.dumps(values[0], ensure_ascii=False)}")
    if len(bounds) > BOUNDS_MAX or not all(call.get("targets") for call in calls):
        return ""
    return " && ".join([*bounds, "known(target)"])


def _values(args: Any) -> Iterable[tuple[str, Any]]:
    """The values in arguments, as conditions name them; what is empty has none."""
    for path, value in leaves_of(args, ("args",)):
        if not isinstance(value, dict | list):
            yield spelled(path), value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_fixed(path: str, values: Sequence[Any]) -> bool:
    """Whether it was the same each time, and can be written into a condition."""
    first = values[0]
    is_short = not isinstance(first, str) or len(first) <= FIXED_CHARACTERS_MAX
    is_plain = is_short and not (isinstance(first, str) and holds_mask(first))
    return is_plain and NAMES.fullmatch(path) is not None and all(one == first for one in values)
