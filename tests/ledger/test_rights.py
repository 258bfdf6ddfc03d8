"""What the runtime's role may do, tried as that role: what it needs, and nothing beside."""

from datetime import timedelta

import psycopg
import pytest
from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models.functions import Now
from django.utils import timezone

from approvals import inbox, pauses
from approvals.models import Approval, Decision, GateKey, Pause
from ledger.models import Event, EventKey
from tests.approvals.conftest import (  # noqa: F401 - fixtures
    acme,
    ada,
    agent,
    ask,
    ben,
    cleo,
    finance,
    leads,
    operators,
)
from tests.servers import as_runtime
from workspaces.forms import WorkspaceForm

pytestmark = pytest.mark.django_db(transaction=True)

REFUSED = (psycopg.errors.InsufficientPrivilege, psycopg.errors.RestrictViolation)

FOR_TOMORROW = "UPDATE approvals_approval SET not_before = now() + interval '1 day'"


@pytest.fixture
def asked(ask, ben, agent):  # noqa: F811
    approval = ask()
    inbox.grant(approval, by=ben, seen=approval.digest)
    GateKey.objects.create(agent=agent, key="k", attempt="a1", denied="",
                           met_at=timezone.now() - timedelta(hours=1))  # fmt: skip
    pauses.pause(approval.workspace, "tool", "payments.*", by=ben, reason="Look first")
    return approval


REFUSED_CHANGES = [
    "DELETE FROM ledger_eventkey",
    "UPDATE ledger_eventkey SET content = ''",
    "TRUNCATE ledger_eventkey",
    "DELETE FROM ledger_eventconflict",
    "DELETE FROM approvals_gatekey",
    "TRUNCATE approvals_gatekey",
    # As though it were old, as though it had come just now, or as though it were another.
    "UPDATE approvals_gatekey SET met_at = '2020-01-01'; DELETE FROM approvals_gatekey",
    "UPDATE approvals_gatekey SET met_at = clock_timestamp(); DELETE FROM approvals_gatekey",
    "UPDATE approvals_gatekey SET key = 'other'",
    "UPDATE approvals_approval SET digest = repeat('0', 64)",
    "UPDATE approvals_approval SET calls = '[]'",
    "UPDATE approvals_approval SET self_approval = true",
    "UPDATE approvals_approval SET requested_by_id = NULL, agent_owner_id = NULL",
    "UPDATE approvals_approval SET expires_at = now() + interval '1 year'",
    "DELETE FROM approvals_approval",
    "UPDATE approvals_decision SET granted = true",
    "UPDATE approvals_decision SET person_id = 1",
    "DELETE FROM approvals_decision",
    "DELETE FROM approvals_requirement",
    "UPDATE approvals_requirement SET count = 0",
    # Another team than the rule names, or before its time.
    "UPDATE approvals_requirement SET escalated_to_id = (SELECT min(id) FROM workspaces_team)",
    "UPDATE approvals_approval SET escalate_at = now()",
    f"{FOR_TOMORROW}; UPDATE approvals_approval SET not_before = now()",
    f"{FOR_TOMORROW}; UPDATE approvals_approval SET not_before = NULL",
    "DELETE FROM approvals_pause",
    "UPDATE approvals_pause SET kind = 'tool', name = 'nothing'",
    "UPDATE approvals_pause SET lifted_at = now(), lifted_by_id = paused_by_id",
    "UPDATE approvals_policyversion SET document = '{}'",
    "UPDATE approvals_policyversion SET digest = repeat('0', 64)",
    "DELETE FROM approvals_policyversion",
    "DELETE FROM ledger_logkey",
    "UPDATE ledger_logkey SET public_key = decode(repeat('00', 32), 'hex')",
    "UPDATE ledger_logkey SET origin = 'elsewhere'",
    "DELETE FROM django_migrations",
    "INSERT INTO ledger_erasure DEFAULT VALUES",
    "UPDATE ledger_erasure SET event_count = 1000000",
    "DELETE FROM ledger_thinning",
    "DELETE FROM workspaces_workspace",
    *(
        f"UPDATE workspaces_workspace SET {column} = {column}"
        for column in ("id", "slug", "created_at", "founder_id", "masking_key")
    ),
]


def test_the_runtime_role_may_not(asked, subtests):
    keys = EventKey.objects.count()
    assert keys
    for change in REFUSED_CHANGES:
        with subtests.test(change=change):
            with psycopg.connect(as_runtime(settings.DATABASE_URL)) as runtime:
                runtime.execute("SET CONSTRAINTS ALL IMMEDIATE")
                with pytest.raises(REFUSED):
                    runtime.execute(change)
            assert EventKey.objects.count() == keys
            assert (Decision.objects.count(), GateKey.objects.count()) == (1, 1)
            assert Approval.objects.get().digest == asked.digest


def test_a_pause_is_lifted_by_whose_word_is_on_the_record_and_stays_lifted(asked, ada, ben):  # noqa: F811
    [standing] = Pause.objects.all()
    other = pauses.pause(standing.workspace, "tool", "mail.*", by=ben, reason="Look first")

    for row, said, why in (
        (
            other,
            {"lifted_at": Now(), "lifted_by": ada},
            "on the record",
        ),  # told of one, not of both
        (standing, {"lifted_by": ben}, "stays so"),
        (standing, {"lifted_at": None}, "stays so"),
    ):
        with pytest.raises(DatabaseError, match=why):
            _lifted_and(standing, ada, row, said)
    assert Pause.objects.filter(lifted_at=None).count() == 2

    pauses.lift(standing, by=ada)

    told = Event.objects.get(type="pause.lifted")
    assert (told.actor, told.data["pause"]) == (str(ada.pk), standing.pk)


@transaction.atomic
def _lifted_and(standing, person, row, said):
    pauses.lift(standing, by=person)
    Pause.objects.filter(pk=row.pk).update(**said)


def test_a_transaction_that_was_begun_before_takes_no_key_back_that_another_brought(asked, agent):  # noqa: F811
    with psycopg.connect(as_runtime(settings.DATABASE_URL)) as runtime:
        runtime.execute("SELECT transaction_timestamp()")
        GateKey.objects.create(agent=agent, key="later", attempt="a1", denied="", met_at=Now())
        with pytest.raises(REFUSED):
            runtime.execute("DELETE FROM approvals_gatekey WHERE key = 'later'")
    assert GateKey.objects.filter(key="later").exists()


def test_the_runtime_role_moves_an_approval_keeps_settings_and_takes_back_a_new_key(asked, agent):  # noqa: F811
    with psycopg.connect(as_runtime(settings.DATABASE_URL)) as runtime:
        runtime.execute("SELECT FROM approvals_approval FOR UPDATE")
        runtime.execute("UPDATE approvals_approval SET was = 'granted', state = 'used'")
        runtime.execute("UPDATE approvals_decision SET requirement_id = requirement_id")
        for name in WorkspaceForm.Meta.fields:
            runtime.execute(f"UPDATE workspaces_workspace SET {name} = {name}")
        runtime.execute(
            "INSERT INTO approvals_gatekey (agent_id, key, attempt, denied, met_at)"
            " VALUES (%s, 'new', 'a', '', clock_timestamp())", [agent.pk],
        )  # fmt: skip
        runtime.execute("DELETE FROM approvals_gatekey WHERE key = 'new'")
    assert Approval.objects.get().state == "used"
    assert GateKey.objects.get().key == "k"
