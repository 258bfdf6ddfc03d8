"""What this floor holds of people, and what of it somebody still works with."""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from django.db.models import CharField, Exists, F, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Cast, Concat, Now

from amends.protocol.vocabulary import EventType
from approvals.models import Approval, NotificationRecord, ToolShape
from connectors.personal_data import UNSAID
from ledger.models import Action, Effect, Event, Run
from ledger.wire import PLAN_RUN
from recovery import search
from recovery.engine import steps
from recovery.models import (
    BulkItem,
    BulkJob,
    Case,
    CaseState,
    Comment,
    Correction,
    CorrectionDelivery,
    CorrectionState,
    Directive,
    Plan,
    Residue,
    SavedView,
    Step,
)
from recovery.models.plans import LIVING
from workspaces.erasure_registry import (
    ERASED,
    OURS,
    Rows,
    Scope,
    Told,
    among,
    belongs,
    holds,
    keeps,
    lingers,
    mirrors,
    names,
    of_runs,
    rests,
    stays,
)
from workspaces.models import Act, Workspace
from workspaces.pages import is_number

ASKING = (EventType.CASE_BULK_STARTED, EventType.DATA_EXPORTED)
COPYING = (
    EventType.CASE_CLOSED, EventType.PLAN_SUBMITTED, EventType.APPROVAL_REQUESTED,
    EventType.RESUME_DIRECTED,
)  # fmt: skip
"""What tells the reason of a job again, in the run of each of its cases."""
NAMES_MAX = 100
PART_CHARACTERS_MIN = 3
NOTHING_TOLD: dict[str, Any] = {
    "version": 1, "items": [], "unchanged": [], "why": ERASED, "reviewed": {},
}  # fmt: skip


def of_cases(path: str) -> Rows:
    """Rows of the runs' cases; of somebody else's run too, if something of it is forgotten."""

    def rows(scope: Scope) -> Q:
        return among(path, [*scope.runs, *scope.touched])

    return rows


def corrections(scope: Scope) -> Q:
    """The person's own, wherever; where whole runs are let go, everybody's."""
    if scope.person:
        return Q(workspace=scope.workspace, person_id=scope.person)
    return among("case__run", scope.runs)


def deliveries(scope: Scope) -> Q:
    found = Correction.objects.filter(corrections(scope))
    return Q(correction__in=found.values("pk"))


def messages(scope: Scope) -> Q:
    sent = CorrectionDelivery.objects.filter(deliveries(scope)).exclude(message_key="")
    return Q(workspace=scope.workspace, key__in=sent.values("message_key"))


def causes(scope: Scope) -> Q:
    """Causes that were met in these runs and in none that is not forgotten; and those that a case
    had before it was known better, for nobody can tell whose it was.
    """
    here = [*scope.runs, *scope.touched]
    of_cases = Case.objects.filter(cause=OuterRef("pk"), run__forgotten_at=None)
    return Q(workspace=scope.workspace) & ~Q(Exists(of_cases.exclude(run__in=here)))


def naming(model: type[BulkJob | SavedView], *paths: str) -> Rows:
    """Rows in which one of these texts names the person, by their id or as their runs call them, or
    whose query looks for them by a part of such a name.
    """

    def rows(scope: Scope) -> Q:
        if not scope.person:
            return Q(pk__in=[])
        called = _called(scope)
        texts = model.objects.filter(workspace=scope.workspace).values_list("pk", "query", *paths)
        found = [
            pk
            for pk, query, *told in texts
            if _looks_for(query, called) or _is_named(told, {scope.person, *called})
        ]
        return Q(workspace=scope.workspace, pk__in=found)

    return rows


def shapes_naming(scope: Scope) -> Q:
    """Shapes of tools in which the person stands: as one of the values that an argument takes, or
    in words beside it.
    """
    if not scope.person:
        return Q(pk__in=[])
    called = {scope.person, *_called(scope)}
    shapes = ToolShape.objects.filter(agent__workspace=scope.workspace)
    known = shapes.values_list("pk", "schema").iterator()
    return Q(pk__in=[pk for pk, schema in known if _is_named(list(_texts(schema)), called)])


def _texts(found: Any) -> Iterator[str]:
    if isinstance(found, str):
        yield found
    elif isinstance(found, dict | list):
        for one in [*found, *found.values()] if isinstance(found, dict) else found:
            yield from _texts(one)


def acts(rows: QuerySet[Any], scope: Scope) -> Iterator[Any]:
    """Events or acts, each a job on many cases or a list taken as a file, whose query, filter or
    reason names the person.
    """
    if not scope.person:
        return
    called = _called(scope)
    for one in rows.filter(workspace=scope.workspace, type__in=ASKING).iterator():
        asked = [one.data[name] for name in ("query", "filter") if one.data.get(name)]
        parts = [part.removeprefix("q: ") for text in asked for part in text.split(", ")]
        is_named = _is_named([*asked, one.data.get("reason", "")], {scope.person, *called})
        if is_named or any(_looks_for(part, called) for part in parts):
            yield one


@names
def acts_on_a_query(scope: Scope) -> Iterator[Told]:
    told = Event.objects.filter(actor_kind="person").exclude(data=None)
    return ((one.place, one.received_at, one.event_id) for one in acts(told, scope))


def copied(scope: Scope) -> QuerySet[BulkItem]:
    """Items of jobs whose reason names the person: with it cases of others were closed, and plans
    of theirs submitted.
    """
    if not scope.person:
        return BulkItem.objects.none()
    called = {scope.person, *_called(scope)}
    jobs = BulkJob.objects.filter(workspace=scope.workspace).exclude(reason="")
    named = [pk for pk, why in jobs.values_list("pk", "reason") if _is_named([why], called)]
    return BulkItem.objects.filter(job__in=named)


def copied_plans(scope: Scope) -> Q:
    return Q(pk__in=copied(scope).values("plan_id"))


def copied_approvals(scope: Scope) -> Q:
    return Q(workspace=scope.workspace, plan_id__in=copied(scope).values("plan_id"))


def copied_messages(scope: Scope) -> Q:
    asked = Approval.objects.filter(copied_approvals(scope))
    return Q(pk__in=NotificationRecord.objects.filter(approval__in=asked).values("delivery"))


@names
def copied_reasons(scope: Scope) -> Iterator[Told]:
    told = Event.objects.filter(workspace=scope.workspace, type__in=COPYING).exclude(data=None)
    for run, reason in copied(scope).values_list("case__run__run", "job__reason"):
        yield from told.filter(run=run, data__reason=reason).values_list(
            "place", "received_at", "event_id"
        )


def acts_taken_in(scope: Scope) -> Q:
    return Q(pk__in=[one.pk for one in acts(Act.objects.all(), scope)])


def _is_named(texts: Collection[str], names: Collection[str]) -> bool:
    """Whether one of the names stands in one of the texts, and not as a part of an English word:
    somebody called Eve is not named by “never”. Scripts that part no words are looked through.
    """
    wanted = [rf"(?<![a-z0-9_]){re.escape(name)}(?![a-z0-9_])" for name in names]
    return any(re.search(one, text, re.IGNORECASE) for one in wanted for text in texts)


def _looks_for(query: str, names: Collection[str]) -> bool:
    """Whether a word of a query, or of its customers, begins a word of one of the names; one of
    two letters only where it is the whole.
    """
    try:
        terms = search.parse(query).terms
    except search.QueryError:
        return False
    words = {one.text for one in terms if isinstance(one, search.TextTerm)}
    for one in terms:
        if isinstance(one, search.FieldTerm) and one.key == "customer":
            words |= {part for value in one.values for part in value.text.split("*")}
    wanted = [re.escape(one) + r"\b" * (len(one) < PART_CHARACTERS_MIN) for one in words if one[1:]]
    return any(re.search(rf"\b{one}", name, re.IGNORECASE) for one in wanted for name in names)


def _called(scope: Scope) -> set[str]:
    """The person's names in what is being forgotten; a single letter would be found in too much."""
    own = Run.objects.filter(pk__in=scope.runs, customer=scope.person)
    found = set(own.values_list("customer_name", flat=True).distinct()[:NAMES_MAX])
    affecting = Effect.objects.filter(
        Q(action__run__in=scope.runs) | Q(action__in=scope.actions), affects__id=scope.person
    )
    found |= set(affecting.values_list("affects__name", flat=True).distinct()[:NAMES_MAX])
    return {one for one in found if one and len(one) > 1 and one != ERASED}


# Before the corrections themselves, by which they are found.
holds("connectors.Delivery", "recipient", "last_error", rows=messages, **UNSAID)
holds("recovery.CorrectionDelivery", "address", "last_error", rows=deliveries)
holds("recovery.Contest", "text", "answer", rows=deliveries)
keeps("recovery.Contest", "receipt", because="a number by which a person asks after their contest")
keeps(
    "recovery.CorrectionSettings", "sentences", "internal",
    because="words of an administrator for everybody, and kinds of targets",
)  # fmt: skip
holds(
    "recovery.Correction", "person_name", "contact", "title", "lead", "wording", "facts_salt",
    "still_wrong_text", "token_sealed", rows=corrections,
    facts=NOTHING_TOLD, token_digest="", language="", person_id=F("reference"),
    revision=F("revision") + 1,
)  # fmt: skip
holds("recovery.Cause", "message", rows=causes)
holds(
    "recovery.Case", "evidence", "headline", "headline_in_full", "brief", "failed_target",
    "suggestion_reason", "suggestion_text", "closing_reason", "search", rows=of_cases("run"),
)  # fmt: skip
holds("recovery.Case", "customer", "customer_name", "request", rows=of_runs("run"))
holds("recovery.Report", "text", rows=of_cases("case__run"))
holds("recovery.Comment", "text", rows=of_cases("case__run"))
holds("recovery.Residue", "text", "done_note", rows=of_cases("case__run"))
# Digests over calls have no salt: whoever tries every address would find hers.
holds("recovery.BulkItem", "detail", "digest", "restores", rows=of_cases("case__run"))
holds("recovery.Readback", "detail", rows=of_runs("action__run", "action"))
holds("recovery.Directive", "steps", rows=of_runs("run"))
holds("recovery.Plan", "headline", "reason", "digest", rows=of_cases("case__run"))
holds(
    "recovery.Step", "target_id", "before", "expected", "fingerprint", "post_condition", "preview",
    "note", "drift", "evidence", "digest", "key",
    rows=of_runs("effect__action__run", "effect__action"),
    args={},
)  # fmt: skip
# What is erased is undone no more, so nobody asks for a key of before.
holds("recovery.StepAttempt", "detail", "evidence", "key",
      rows=of_runs("step__effect__action__run", "step__effect__action"))  # fmt: skip
# Before the jobs, whose reason they repeat.
holds("recovery.Case", "closing_reason", rows=lambda scope: Q(
    pk__in=copied(scope).filter(case__closing_reason=F("job__reason")).values("case")))  # fmt: skip
holds("recovery.Plan", "reason", rows=copied_plans)
holds("approvals.Approval", "reason", rows=copied_approvals)
holds("connectors.Delivery", "recipient", "last_error", rows=copied_messages, **UNSAID)
# Its digest has no salt: whoever tries every name would find hers.
holds("approvals.ToolShape", rows=shapes_naming, schema={},
      digest=Concat(Value(ERASED), Cast("pk", CharField()), output_field=CharField()))  # fmt: skip
holds("recovery.BulkJob", "query", "reason", rows=naming(BulkJob, "query", "reason"))
holds("workspaces.Act", rows=acts_taken_in, data={})
# The address is made of the name, and addresses differ.
holds("recovery.SavedView", "name", "query", rows=naming(SavedView, "name", "query"),
      slug=Concat(Value("erased-"), Cast("pk", CharField()), output_field=CharField()))  # fmt: skip

keeps("recovery.Cause", "fingerprint", "tool", "error_type", because=OURS)
keeps("recovery.Case", "run_ref", "model", "was", "reasons", "answered", "tools", "failed_tool",
      "needs_approval", "currency", because=OURS)  # fmt: skip
keeps("recovery.Readback", "state", because=OURS)
keeps("recovery.BulkJob", "verb", "ending", "resume_from", because=OURS)
keeps("recovery.BulkItem", "state", because=OURS)
keeps("recovery.Correction", "reference", "event_id", because=OURS)
keeps("recovery.CorrectionDelivery", "channel", "message_key", "state", because=OURS)
keeps("recovery.Plan", "was", "basis", "policy_digest", "accounts", because=OURS)
keeps("recovery.Step", "connection_digest", "connector_version", "operation", "target_type",
      "rules", "was", because=OURS)  # fmt: skip
keeps("recovery.StepAttempt", "outcome", because=OURS)


_TOUCHED = (
    Q(without_effects=False)
    | ~Q(claimed_by=None)
    | ~Q(closed_by=None)
    | Q(Exists(Comment.objects.filter(case=OuterRef("pk"))))
    | Q(Exists(Directive.objects.filter(run=OuterRef("run"))))
)
"""Of a run that failed and did nothing a case stands by itself: until a person takes it up, it
keeps the run no longer than a run without a case.
"""


@rests
def worked_on(workspace: Workspace, runs: Sequence[int]) -> set[int]:
    """Runs of open cases and of living plans, and the desk's own runs of their plans."""
    is_open = Q(_TOUCHED) & ~Q(state=CaseState.CLOSED)
    living = Exists(Plan.objects.filter(case=OuterRef("pk"), state__in=LIVING))
    return _with_plans(Case.objects.filter(is_open | Q(living), workspace=workspace), runs)


@lingers
def told_or_left_to_do(workspace: Workspace, runs: Sequence[int]) -> set[int]:
    """Runs whose correction its person can still read, or of which something could not be undone
    and its owner has not said that it is done.
    """
    readable = Correction.objects.filter(
        case=OuterRef("pk"), state=CorrectionState.PUBLISHED, expires_at__gt=Now()
    )
    left = Residue.objects.filter(case=OuterRef("pk"), done_at=None)
    either = Q(Exists(readable)) | Q(Exists(left))
    return _with_plans(Case.objects.filter(either, workspace=workspace), runs)


@stays
def had_a_case(workspace: Workspace, runs: Sequence[int]) -> set[int]:
    return _with_plans(Case.objects.filter(_TOUCHED, workspace=workspace), runs)


def _with_plans(cases: QuerySet[Case], runs: Sequence[int]) -> set[int]:
    """Those of the runs that are of such a case, or as which the desk recorded its plans."""
    recorded = {}
    ours = Run.objects.filter(among("pk", runs), run__startswith=PLAN_RUN)
    for pk, name in ours.values_list("pk", "run"):
        number = name.removeprefix(PLAN_RUN)
        if is_number(number):
            recorded[int(number)] = pk
    found = set(cases.filter(among("run", runs)).values_list("run", flat=True))
    plans = cases.filter(plans__in=list(recorded)).values_list("plans", flat=True)
    return found | {recorded[plan] for plan in plans if plan in recorded}


def _as_recorded(cases: QuerySet[Case]) -> QuerySet[Any]:
    """The ids of the runs as which the desk recorded the plans of these cases (steps.run_of)."""
    name = Concat(Value(PLAN_RUN), Cast("pk", CharField()), output_field=CharField())
    return Plan.objects.filter(case__in=cases.values("pk")).values_list(name, flat=True)


@belongs
def recorded_plans(workspace: Workspace, runs: Sequence[int]) -> QuerySet[Any]:
    cases = Case.objects.filter(workspace=workspace, run__in=runs)
    return Run.objects.filter(workspace=workspace, run__in=_as_recorded(cases)).values("pk")


@mirrors
def undone_by(workspace: Workspace, actions: Sequence[int]) -> set[int]:
    """The desk's own actions that undid these: they say what stood there before and after."""
    found = Step.objects.filter(workspace=workspace, effect__action__in=actions)
    steps_of = {
        (steps.run_of(one.plan), steps.action_of(one)) for one in found.select_related("plan")
    }
    recorded = Action.objects.filter(
        workspace=workspace,
        run__run__in={run for run, _ in steps_of},
        action__in={action for _, action in steps_of},
    ).values_list("pk", "run__run", "action")
    return {pk for pk, *name in recorded if tuple(name) in steps_of}
