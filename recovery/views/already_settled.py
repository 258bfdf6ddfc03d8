"""A second answer to what somebody has settled already: who said what, and how it stands now."""

from django.http import HttpRequest

from ledger.models import Action, Event
from recovery.engine import steps
from recovery.models import Case, Step
from workspaces import formatting
from workspaces.models import User
from workspaces.pages import is_number


class TooLate(Exception):
    """We stopped because it was answered before. Show how it stands, and keep what was typed."""


def subject_of(request: HttpRequest, case: Case) -> Action | Step | None:
    """What the form was about, though nobody asks for a word on it any more."""
    said = request.POST
    if is_number(said.get("step", "")):
        found = Step.objects.filter(plan__case=case, pk=said["step"])
        return found.select_related(*steps.RECORDED).first()
    if is_number(said.get("action", "")):
        return Action.objects.filter(run=case.run_id, pk=said["action"]).first()
    return None


def words(case: Case, subject: Action | Step) -> str:
    """“Ben answered it 2 min ago: “T-182 reads normal”. It is verified now.”"""
    if isinstance(subject, Step):
        run, action = steps.run_of(subject.plan), steps.action_of(subject)
    else:
        run, action = case.run.run, subject.action
    told = Event.objects.filter(
        workspace=case.workspace_id, run=run, action=action, actor_kind="person"
    )
    last = told.order_by("-place").first()
    now = f"It is {subject.get_state_display().lower()} now."
    if last is None:
        return f"It is in doubt no longer. {now}"
    person = User.objects.filter(pk=last.actor).first() if is_number(last.actor) else None
    said = _said(last)
    return f"{person or 'Somebody'} answered it {formatting.ago(last.received_at)}{said}. {now}"


def _said(event: Event) -> str:
    data = event.data or {}
    evidence = data.get("evidence")
    text = (evidence.get("text") if isinstance(evidence, dict) else "") or data.get("note") or ""
    return f": {formatting.quoted(text)}" if text else ""
