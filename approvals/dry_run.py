"""What a policy would have said of what really happened: a dry run over the last days.

It judges the newest actions of the ledger, the calls that a rule denied at the gate, and the
questions that are open now, and looks whether its twins could be called. Nothing is written.

Runs that happened elsewhere and were imported passed no gate, so nothing is held against them. What
it would have asked people for, or denied, is listed instead.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain

from django.db.models import Q
from django.db.models.functions import Now

from approvals import grants, plan_sums
from approvals.models import Approval, ApprovalState, Denial, SubjectKind
from approvals.policy import Policy, ToolCall, judge, lookups, strictest
from approvals.rules import VERDICT_WORDS
from connectors import calls
from ledger.models import Action, ActionState, Run
from ledger.schemas import IMPORTED
from workspaces.models import Workspace

DAYS = 30
ACTIONS_MAX = 20_000  # half a second of judging
DENIALS_MAX = 2_000
EXAMPLES_MAX = 20
OPEN_MAX = 200


@dataclass(frozen=True, slots=True)
class Example:
    """One action that the two policies judge differently."""

    run: str
    action: str
    tool: str
    was: str
    becomes: str
    why: str

    @property
    def answers(self) -> list[tuple[str, str]]:
        """What it was and what it becomes: tone and words of each."""
        return [VERDICT_WORDS[one] for one in (self.was, self.becomes)]


@dataclass(slots=True)
class PolicyDryRun:
    """How often each answer would have been given; by tool and in sum, and where it changes."""

    days: int
    since: datetime | None = None
    judged: int = 0
    capped: bool = False
    sums: Counter[str] = field(default_factory=Counter)
    before: Counter[str] = field(default_factory=Counter)
    by_tool: Counter[tuple[str, str]] = field(default_factory=Counter)
    untold: int = 0
    """Of how many a rule asks what only the gate looks up."""
    examples: list[Example] = field(default_factory=list)
    open_changes: list[str] = field(default_factory=list)
    cannot_run: list[str] = field(default_factory=list)
    """The twins and probes that cannot be called as the connections stand."""

    def words(self) -> str:
        asked, denied = self.sums["MANUAL"], self.sums["DENY"]
        times = "time" if asked == 1 else "times"
        was = f"the policy in force: asked {self.before['MANUAL']}, denied {self.before['DENY']}"
        newest = " (the newest)" if self.capped else ""
        over = f"of the last {self.days} days" if self.since is None else "since it is in shadow"
        return (
            f"Over {self.judged} actions{newest} {over} it would have asked "
            f"{asked} {times} and denied {denied} ({was}).{self._untold()}"
        )

    def _untold(self) -> str:
        if not self.untold:
            return ""
        return (
            f" For {self.untold} of them a rule asks about the request, the run or the past, which"
            " is not looked up here: where it asks or denies, it is taken to be met."
        )

    def top_tools(self) -> list[tuple[str, int]]:
        """What would be asked for most often."""
        asked = [(tool, n) for (tool, answer), n in self.by_tool.items() if answer == "MANUAL"]
        return sorted(asked, key=lambda one: -one[1])[:EXAMPLES_MAX]


CALL_COLUMNS = (
    "tool", "args", "targets", "action_class", "risk", "agent__name", "run__labels", "saga",
    "trusted", "before",
)  # fmt: skip
"""All that `call_of` reads: results and search words are larger than the rest."""


def call_of(action: Action) -> ToolCall:
    """An action of the ledger, as the policy judges it."""
    return ToolCall(
        tool=action.tool,
        args=action.args,
        targets=action.targets,
        action_class=action.action_class,
        risk=action.risk,
        agent=action.agent.name if action.agent else "",
        labels=action.run.labels,
        saga=action.saga,
        trusted=action.trusted,
        before=action.before,
    )


def rehearse(
    workspace: Workspace,
    new: Policy,
    current: Policy,
    *,
    days: int = DAYS,
    since: datetime | None = None,
) -> PolicyDryRun:
    """The dry run over the last `days`; with `since`, over what came in its time in the shadow."""
    found = PolicyDryRun(days, since=since)
    for run, name, call in chain(_history(workspace, days, since), _denied(workspace, days, since)):
        was, becomes = judge(current, call), judge(new, call)
        found.judged += 1
        found.untold += bool(lookups(new, call))
        found.sums[becomes.approval] += 1
        found.before[was.approval] += 1
        found.by_tool[call.tool, becomes.approval] += 1
        if was.approval != becomes.approval and len(found.examples) < EXAMPLES_MAX:
            answers = was.approval, becomes.approval
            found.examples.append(Example(run, name, call.tool, *answers, becomes.why))
    found.capped = found.judged >= ACTIONS_MAX
    found.open_changes = list(_open(workspace, new))
    found.cannot_run = list(_cannot_run(workspace, new))
    return found


Tried = tuple[str, str, ToolCall]
"""Run, action (nothing where it was denied before it became one), and what was judged."""


def _history(workspace: Workspace, days: int, since: datetime | None) -> Iterator[Tried]:
    rows = Action.objects.filter(
        workspace=workspace,
        agent__isnull=False,
        planned_at__gte=since or Now() - timedelta(days=days),
    ).exclude(tool="")
    newest = (
        rows.select_related("agent", "run")
        .only(*CALL_COLUMNS, "action", "run__run")
        .order_by("-id")[:ACTIONS_MAX]
    )
    return ((one.run.run, one.action, call_of(one)) for one in newest.iterator())


def _denied(workspace: Workspace, days: int, since: datetime | None) -> Iterator[Tried]:
    """The newest first; those whose words were erased are not among them."""
    kept = Denial.objects.filter(
        workspace=workspace, denied_at__gte=since or Now() - timedelta(days=days)
    )
    newest = kept.exclude(deed={}).order_by("-id")[:DENIALS_MAX]
    return ((one.run_ref, "", ToolCall(**one.deed)) for one in newest.iterator())


def _open(workspace: Workspace, new: Policy) -> Iterator[str]:
    """What the new policy means for what people are asked now, and said yes to without its use. A
    bounded grant is no call that could be judged, and of what is erased nothing can be said.
    """
    rows = (
        Approval.objects.living()
        .filter(workspace=workspace)
        .exclude(Q(subject_kind=SubjectKind.GRANT) | Q(calls=[]))
        .select_related("action__agent", "action__run")
        .prefetch_related("requirements__team")
    )
    for approval in rows.order_by("expires_at")[:OPEN_MAX]:
        judgement = strictest(judge(new, call) for call in _calls_of(approval))
        if judgement.approval == "AUTO" and _is_granted(approval):
            continue
        if judgement.approval == "AUTO":
            yield (
                f"“{approval.headline}” would go on without people once it is asked anew;"
                " the question that waits stays open until then"
            )
        elif judgement.approval == "DENY":
            say = "have said" if _is_granted(approval) else "answer"
            yield f"“{approval.headline}” would be denied, whatever people {say}"
        elif not grants.suffices(approval, judgement):
            wanted = " and ".join(map(str, judgement.requires))
            already = ", though it is approved" if _is_granted(approval) else ""
            yield f"“{approval.headline}” would be asked anew, of {wanted}{already}"


def _cannot_run(workspace: Workspace, new: Policy) -> Iterator[str]:
    """No mistake of the document, for a connection may be made later; until then nothing is
    undone by it.
    """
    named = [
        (twin.tool, one.connection, one.operation)
        for twin in new.twins
        for one in (twin, twin.probe)
        if one is not None
    ]
    why = calls.missing(workspace, [(name, operation) for _, name, operation in named])
    for tool, name, operation in named:
        if (name, operation) in why:
            yield f"{tool} names {name}.{operation}. {why[name, operation]}"


def _is_granted(approval: Approval) -> bool:
    return approval.state == ApprovalState.GRANTED


def _calls_of(approval: Approval) -> list[ToolCall]:
    """What an open approval is about: one action, or each call of a plan as the policy sees it."""
    if approval.action is not None:
        return [call_of(approval.action)]
    return plan_sums.steps_of(approval)


RUNS_MAX = 500
REPORTED_MAX = 5_000
ROWS_MAX = 200
MISSING = "args_missing"
NOT_RUN = (ActionState.PLANNED, ActionState.APPROVED, ActionState.FAILED)


@dataclass(frozen=True, slots=True)
class StoppedCall:
    """One imported call that the gate would have stopped."""

    run: str
    action: str
    tool: str
    answer: str
    why: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class StoppedCalls:
    """The newest of them, and how many of how many calls; `capped` says that there are more."""

    rows: Sequence[StoppedCall]
    runs: int
    judged: int
    asked: int
    denied: int
    capped: bool


def would_have_asked(workspace: Workspace, policy: Policy) -> StoppedCalls:
    """The newest imported runs, judged by the policy as it is now."""
    imported = Run.objects.filter(workspace=workspace, flags__contains=[IMPORTED])
    runs = list(imported.order_by("-id").values_list("pk", flat=True)[:RUNS_MAX])
    actions = (
        Action.objects.filter(run__in=runs)
        .exclude(state__in=NOT_RUN)
        .exclude(tool="")
        .select_related("run", "agent")
        .only(*CALL_COLUMNS, "action", "run__run", "flags", "started_at", "finished_at")
        .order_by("-id")[:REPORTED_MAX]
    )
    rows: list[StoppedCall] = []
    judged, answers = 0, {"MANUAL": 0, "DENY": 0}
    for action in actions:
        judgement = judge(policy, call_of(action))
        judged += 1
        if judgement.approval not in answers:
            continue
        answers[judgement.approval] += 1
        if len(rows) < ROWS_MAX:
            at = action.started_at or action.finished_at
            why = judgement.why + "; its arguments were not told" * (MISSING in action.flags)
            told = (action.tool, judgement.approval, why, at)
            rows.append(StoppedCall(action.run.run, action.action, *told))
    capped = len(runs) == RUNS_MAX or judged == REPORTED_MAX
    return StoppedCalls(rows, len(runs), judged, answers["MANUAL"], answers["DENY"], capped)
