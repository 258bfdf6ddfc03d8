"""A grant is used only if the ledger tells of it, and nothing is granted or used over a log that
went back until an administrator has looked."""

import psycopg
import pytest
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext

from amends.protocol.vocabulary import EventType
from approvals import grants, inbox, pauses
from approvals.models import Approval, Decision, Pause
from approvals.policy import RequiredApprovers
from connectors import channels
from connectors.models import Delivery
from ledger import sealer
from ledger.models import Event, Leaf, LogKey, TreeHead, TreeNode
from tests.approvals.cast import forget_events, put_in_force, told
from tests.approvals.door import Agent as Trip
from tests.people import person, team
from tests.servers import as_runtime
from workspaces.access import NotAllowed


def granted(approval, *people):
    for one in people:
        inbox.grant(approval, by=one, seen=approval.digest)
    approval.refresh_from_db()
    assert approval.state == "granted"
    return approval


@pytest.mark.django_db(transaction=True)
def test_a_grant_that_was_written_past_the_desk_is_not_used(ask, ben):
    """Whoever has the runtime's connection writes an answer and a state, and tells nobody."""
    approval = ask()
    with psycopg.connect(as_runtime(settings.DATABASE_URL)) as runtime:
        runtime.execute(
            "INSERT INTO approvals_decision (approval_id, person_id, granted, reason, seen_digest,"
            " at, teams) VALUES (%s, %s, true, '', %s, now(), '{}')",
            [approval.pk, ben.pk, approval.digest],
        )
        runtime.execute("UPDATE approvals_approval SET was = 'waiting', state = 'granted'")

    assert grants.still_entitled(Approval.objects.get())
    assert not grants.use(approval.pk, approval.digest)
    assert Approval.objects.get().state == "granted"
    Approval.objects.update(was="granted", state="used")
    assert grants.lost(approval.pk, approval.calls[0]["digest"]) == grants.UNRECORDED


@pytest.mark.django_db
def test_a_recorded_grant_is_used_once(ask, ben):
    approval = granted(ask(), ben)

    assert grants.use(approval.pk, approval.digest)
    assert not grants.use(approval.pk, approval.digest)
    assert grants.lost(approval.pk, approval.calls[0]["digest"]) == ""


@pytest.mark.django_db
def test_a_plan_searches_the_ledger_for_a_yes_once_and_anew_when_an_answer_changes(ask, ben, cleo):
    approval = granted(ask(), ben)
    assert grants.use(approval.pk, approval.digest)
    call = approval.calls[0]["digest"]
    assert grants.lost(approval.pk, call) == ""

    with CaptureQueriesContext(connection) as asked:
        assert grants.lost(approval.pk, call) == ""
    assert not [one for one in asked if "ledger_event" in one["sql"]]

    Decision.objects.update(person=cleo)
    assert grants.lost(approval.pk, call) == grants.UNRECORDED
    assert grants.lost(approval.pk, call) == grants.UNRECORDED
    Decision.objects.update(person=ben)
    assert grants.lost(approval.pk, call) == ""


@pytest.mark.django_db
def test_each_yes_has_to_be_told_of_and_one_to_other_bytes_is_none(ask, ben, cleo):
    approval = granted(
        ask(RequiredApprovers("finance", 1), RequiredApprovers("leads", 1)), ben, cleo
    )
    forget_events(type="approval.granted", actor=str(cleo.pk))
    assert not grants.use(approval.pk, approval.digest)

    other = granted(ask(), ben)
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(
            'UPDATE ledger_event SET data = data || \'{"digest": "other"}\''
            " WHERE type = 'approval.granted'"
        )
        cursor.execute("SET session_replication_role = origin")
    assert not grants.use(other.pk, other.digest)


@pytest.mark.django_db(transaction=True)
def test_a_call_whose_yes_was_taken_out_of_the_ledger_is_put_to_people_anew(acme, ada, ben, key):
    """The agent hears what is so: not that it came too late."""
    put_in_force(acme, ada, {"policies": {"crm.*": {"approval": "MANUAL"}}})
    trip = Trip(key)
    first = Approval.objects.get(pk=trip.begin(attempt="a1").json()["approval"])
    granted(first, ben)
    forget_events(type="approval.granted")

    answer = trip.begin(attempt="a1").json()

    again = Approval.objects.get(pk=answer["approval"])
    assert (answer["answer"], again.state) == ("wait", "waiting")
    assert again.pk != first.pk
    first.refresh_from_db()
    assert (first.state, first.closing_reason) == (
        "withdrawn", "the ledger does not tell that people approved it",
    )  # fmt: skip


@pytest.mark.django_db
def test_an_approval_without_any_answer_is_not_used(ask):
    approval = ask()
    Approval.objects.update(was="waiting", state="granted")

    assert Decision.objects.count() == 0
    assert not grants.use(approval.pk, approval.digest)


@pytest.fixture
def gone_back(acme, ask, ben, ada, settings, tmp_path):
    """A log of which the newest entries were signed, and are no longer there."""
    settings.AMENDS_HEADS_FOLDER = str(tmp_path)
    sealer._last.clear()
    channels.create(
        acme,
        "pager",
        "mail",
        settings={"to": ["pager@example.com"]},
        by=ada,
        subjects=["ledger.*"],
    )
    waiting, given = ask(), granted(ask(), ben)
    sealer.seal(acme)
    before = TreeHead.objects.order_by("-size").first()
    sealer.remember(before.note, LogKeySigner(acme))
    desk_says(acme)
    last = TreeHead.objects.order_by("-size").first()
    sealer.remember(last.note, LogKeySigner(acme))
    assert last.size > before.size
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        Leaf.objects.filter(index__gte=before.size).delete()
        TreeNode.objects.filter(index__gte=0, level__gt=20).delete()
        TreeHead.objects.filter(pk=last.pk).delete()
        cursor.execute("SET session_replication_role = origin")
    return waiting, given


def LogKeySigner(workspace):  # noqa: N802 - reads as what it gives
    from ledger import logkeys

    return logkeys.signer(workspace)


def desk_says(workspace):
    from ledger import desk_events

    for number in range(3):
        desk_events.record(
            workspace, EventType.POLICY_SAVED, part="policy", data={"number": number}
        )
    sealer.seal(workspace)


@pytest.mark.django_db(transaction=True)
def test_a_log_that_went_back_holds_everything_until_an_administrator_has_looked(
    gone_back, acme, ada, ben, key, agent, client
):
    from ledger import desk_events

    waiting, given = gone_back
    olaf = person("olaf", team(acme, "only operators", "view", "recover"))
    put_in_force(acme, ada, {"policies": {"crm.*": {"approval": "AUTO"}}})
    desk_events.record(acme, EventType.POLICY_SAVED, part="policy", data={})
    sealer.seal(acme)

    [held] = Pause.objects.filter(lifted_at=None)
    assert (held.kind, held.paused_by) == ("workspace", None)
    assert "went back" in held.reason
    assert LogKey.objects.values("origin").distinct().count() == 2
    [alert] = told(acme, pauses.ALERT)
    assert alert["left"] < alert["size"]
    assert Delivery.objects.get(subject=pauses.WENT_BACK).message["title"] == (
        "The ledger of Acme went back"
    )
    answer = Trip(key).begin(attempt="a1").json()
    assert answer["answer"] == "denied"
    assert "the desk itself has paused everything here" in answer["reason"]
    with pytest.raises(inbox.NotEntitled, match="went back"):
        inbox.grant(waiting, by=ben, seen=waiting.digest)
    assert not grants.use(given.pk, given.digest)
    client.force_login(ben)
    page = client.get("/w/acme/queue/").content.decode()
    assert "The ledger went back" in page
    assert "Everything here is paused" in page
    with pytest.raises(NotAllowed):
        pauses.lift(held, by=olaf)
    client.force_login(olaf)
    assert client.post(f"/w/acme/policies/pauses/{held.pk}/lift/").status_code in {403, 404}
    assert Pause.objects.filter(lifted_at=None).exists()

    pauses.lift(held, by=ada)

    acknowledged = Event.objects.get(type="ledger.acknowledged")
    assert (acknowledged.actor_kind, acknowledged.actor) == ("person", str(ada.pk))
    sealer.seal(acme)
    assert not Pause.objects.filter(lifted_at=None).exists()
    assert grants.use(given.pk, given.digest)
    inbox.grant(waiting, by=ben, seen=waiting.digest)
    assert Trip(key).begin(action="a2", key="k2", attempt="a1").json()["answer"] == "proceed"
