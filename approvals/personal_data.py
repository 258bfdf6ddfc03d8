"""What this floor holds of people: what was to be decided, and the words of those who decided."""

from collections.abc import Sequence
from typing import Any

from django.db.models import CharField, Q, Subquery, Value
from django.db.models.functions import Cast, Concat

from approvals.interchange.aap_requests import RUN, SEALED
from approvals.models import LIVING, Approval, ConsentRequest, NotificationRecord, SubjectKind
from approvals.notifications import SUMMARY_SUBJECT
from connectors.personal_data import UNSAID
from ledger.models import Action, Run
from workspaces.erasure_registry import (
    ERASED,
    OURS,
    Scope,
    among,
    drops,
    holds,
    keeps,
    rests,
    stays,
)
from workspaces.models import Workspace


def asked(scope: Scope, path: str = "") -> Q:
    """Approvals of an action, or of a plan for a run; of somebody else's run, those that touch."""
    of_actions = Q(**{f"{path}action__in": scope.actions})
    runs = [*scope.names, *scope.touched_names]
    here = {f"{path}workspace": scope.workspace, f"{path}run_ref__in": runs}
    return of_actions | (Q(**here) & ~Q(**{f"{path}run_ref": ""}))  # as the index says


def consents(scope: Scope) -> Q:
    mine = Q(approval__workspace=scope.workspace, person_ref=scope.person)
    return asked(scope, "approval__") | mine if scope.person else asked(scope, "approval__")


def denied(scope: Scope) -> Q:
    return Q(workspace=scope.workspace, run_ref__in=scope.names)


def sealed_requests(scope: Scope) -> Q:
    """Requests of other protocols, which lie sealed and unmasked until their run is over."""
    ids = [name.removeprefix(RUN) for name in scope.names if name.startswith(RUN)]
    return Q(workspace=scope.workspace, name__in=[f"{SEALED}{one}" for one in ids])


def sighted(scope: Scope) -> Q:
    """What rules remember of calls: digests without a salt, which tell who tries every address."""
    touched = Action.objects.filter(pk__in=scope.actions).values_list("run__run", "action")
    here = Q(run_ref__in=scope.names)
    for run, action in touched:
        here |= Q(run_ref=run, action=action)
    return Q(workspace=scope.workspace) & here


def messages(scope: Scope) -> Q:
    """What was sent about an approval: its text need not name the run, but it tells of the call.
    Summaries since it was asked may tell of it, too.
    """
    messages = NotificationRecord.objects.filter(asked(scope, "approval__")).exclude(delivery=None)
    mine = ConsentRequest.objects.filter(consents(scope)).values("approval")
    answers = NotificationRecord.objects.filter(approval__in=mine, person=None).exclude(
        delivery=None
    )
    since = Approval.objects.filter(asked(scope)).order_by("asked_at").values("asked_at")[:1]
    return Q(workspace=scope.workspace) & (
        Q(pk__in=messages.values("delivery"))
        | Q(pk__in=answers.values("delivery"))
        | Q(subject=SUMMARY_SUBJECT, created_at__gte=Subquery(since))
    )


# What stands in a column whose values must differ.
ANYBODY = Concat(Value(ERASED), Cast("pk", CharField()), output_field=CharField())

holds("approvals.Approval", "subject", "targets", "headline", "previews", "agent_text", "reason",
      "closing_reason", "digest", rows=asked, calls=[])  # fmt: skip
holds("approvals.Clarification", "question", "answer",
      rows=lambda scope: asked(scope, "approval__"))  # fmt: skip
# Before the rows by which they are found.
holds("connectors.Delivery", "recipient", "last_error", rows=messages, **UNSAID)
holds("approvals.NotificationRecord", "to",
      rows=lambda scope: asked(scope, "approval__") & Q(person=None))  # fmt: skip
holds("approvals.ConsentRequest", "name", "contact", "question", "note", rows=consents,
      person_ref=ANYBODY, token_digest=ANYBODY, token_sealed=b"")  # fmt: skip
holds(
    "approvals.Decision",
    "reason",
    "shown",
    "seen_digest",
    "signature",
    rows=lambda scope: asked(scope, "approval__"),
)

holds("approvals.BrokenGlass", "review", rows=lambda scope: asked(scope, "approval__"))

drops("workspaces.Secret", rows=sealed_requests)
holds("approvals.Denial", "deed", rows=denied)
holds("approvals.Sighting", "value", "shape", "person", rows=sighted)

keeps("approvals.Approval", "subject_key", "run_ref", "case_ref", "rules", "currency",
      "was", "used_by", because=OURS)  # fmt: skip
keeps("approvals.Decision", "teams", because=OURS)
keeps("approvals.SigningKey", "credential", "label", "event", because="keys of members")
keeps("approvals.Denial", "key", "run_ref", because=OURS)
keeps("approvals.ToolShape", "tool", because="what an agent calls its tool")
keeps("approvals.GrantUse", "key", "run_ref", "action", because="ids of calls under a grant")
keeps("approvals.GateKey", "key", "attempt", "denied", because="guards against a second effect")
keeps("approvals.Pause", "name", "reason", because="words of an operator about a tool")
for _model, _columns in {
    "Tally": ("meter", "subject", "buckets"),
    "Reservation": ("key", "run_ref", "action"),
    "Sighting": ("field", "run_ref", "action"),
}.items():
    keeps(f"approvals.{_model}", *_columns, because="digests and ids, let go by age")
keeps("approvals.Review", "run_ref", "action", "glob", "words", because=OURS)
keeps("approvals.NamedList", "name", "kind", "digest", because=OURS)
keeps("approvals.ListEntry", "key", "mark", "shown", "label",
      because="what operators keep on a list until they take it off")  # fmt: skip
keeps("approvals.ListChange", "digest", "note", because="who changed a list, and why")
keeps("approvals.PolicyVersion", "document", "source", "digest", "note", "unmet", because=OURS)


@rests
def undecided(workspace: Workspace, runs: Sequence[int]) -> set[int]:
    """What is asked about these runs. A bounded grant, which may live for weeks, waits for nobody:
    without its terms it lets nothing pass.
    """
    kinds = [SubjectKind.ACTION, SubjectKind.PLAN]
    return _asked_in(workspace, runs, state__in=LIVING, subject_kind__in=kinds)


@stays
def decided(workspace: Workspace, runs: Sequence[int]) -> set[int]:
    """Who decided what stays on the record, without the words."""
    return _asked_in(workspace, runs)


def _asked_in(workspace: Workspace, runs: Sequence[int], **more: Any) -> set[int]:
    """Those of the runs in which something was put to people."""
    names = dict(Run.objects.filter(among("pk", runs)).values_list("run", "pk"))
    asked = Approval.objects.filter(workspace=workspace, run_ref__in=list(names), **more)
    asked = asked.exclude(run_ref="")  # as the index says
    return {names[one] for one in asked.values_list("run_ref", flat=True)}
