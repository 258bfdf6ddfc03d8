"""What the stories about approvals are told with."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from django.db import connection

from approvals import inbox, versions
from approvals.approval_requests import ask_for_plan
from approvals.digests import CallFacts
from approvals.gate import changed_arguments
from approvals.models import Approval, ApprovalState
from approvals.policy import PolicyDecision, RequiredApprovers
from config.local.postgres import RUNTIME
from ledger.models import Event
from tests.approvals.door import Agent
from tests.people import person
from tests.worlds import kept
from workspaces.models import User, Workspace

# Where Ben is one of the leads, as Cleo is, and both may decide what the agent asks for.


@pytest.fixture
@kept
def ben(leads):
    return person("ben", leads)


@pytest.fixture
@kept
def trip(key, ben, cleo):
    return Agent(key)


def refund(amount: int = 100) -> CallFacts:
    return CallFacts(
        connection="payments",
        connection_digest="c" * 64,
        connector_version="1.0",
        operation="refund",
        args={"charge": "ch_1", "amount": amount},
        fingerprint="f" * 64,
        target_type="charge",
        target_id="ch_1",
    )


def asker(workspace: Workspace, ada: User) -> Callable[..., Approval]:
    """Asks for a plan of one refund, the way recovery does."""
    numbers = count(1)

    def ask(*requires: RequiredApprovers, calls=None, by=ada, **judged) -> Approval:
        said = {"approval": "MANUAL", "risk": "high", "action_class": "external_irreversible"}
        return ask_for_plan(
            workspace,
            next(numbers),
            case_ref="12",
            calls=calls or [refund()],
            judgement=PolicyDecision(
                **(said | {"requires": requires or (RequiredApprovers(None, 1),)} | judged)
            ),
            headline="Refund 1.00 EUR to the card ending 4421",
            previews=[{"kind": "money", "title": "Refund 1.00 EUR"}],
            by=by,
            reason="charged twice",
        )

    return ask


def now() -> datetime:
    return datetime.now(UTC)


def told(workspace: Workspace, event_type: str) -> list[Any]:
    """What the ledger says of this type, oldest first."""
    events = Event.objects.filter(workspace=workspace, type=event_type).order_by("place")
    return [event.data for event in events]


def put_in_force(workspace: Workspace, by: User, document: dict[str, Any]) -> None:
    """The document, saved and activated as the policy page does."""
    versions.activate(versions.save(workspace, json.dumps(document), by=by), by=by)


@contextmanager
def as_the_desk() -> Iterator[None]:
    """What is done within is done by the role as which a desk runs, not by the tables' owner."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET ROLE {RUNTIME}")
        yield
        cursor.execute("RESET ROLE")


# A call whose arguments an approver corrects.

ASKED = {"amount": 100, "to": "Eve", "note": "for contact7", "card": "4111 1111 1111 1111"}


def ask(trip, attempt="a1", **more):
    told = {"tool": "pay.refund", "args": ASKED, "accepts_changed_arguments": True}
    told["targets"] = [{"type": "contact", "id": "contact7"}]
    return trip.begin(attempt=attempt, **(told | more))


def waiting():
    return Approval.objects.get(state=ApprovalState.WAITING)


def change(by, approval=None, reason="it was 80", **typed):
    """Type these texts into the fields of the card."""
    approval = approval or waiting()
    numbers = {one.name: one.number for one in changed_arguments.fields_of(approval)}
    texts = {numbers[name]: text for name, text in typed.items()}
    return changed_arguments.change(
        approval, by=by, seen=approval.digest, typed=texts, reason=reason
    )


def agree(by, approval=None):
    approval = approval or waiting()
    return inbox.grant(approval, by=by, seen=approval.digest, reason="fine")


def forget_events(**which: str) -> None:
    """As a database does that was rewritten past its guards."""
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        places = list(Event.objects.filter(**which).values_list("place", flat=True))
        cursor.execute("DELETE FROM ledger_event WHERE place = ANY(%s)", [places])
        cursor.execute("SET session_replication_role = origin")


def retell_granted(approval: Approval) -> None:
    """As if people had said yes to the approval as its row is now."""
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(
            "UPDATE ledger_event SET data = data || jsonb_build_object('digest', %s::text)"
            " WHERE type = 'approval.granted' AND data ->> 'approval' = %s",
            [approval.digest, str(approval.pk)],
        )
        cursor.execute("SET session_replication_role = origin")
