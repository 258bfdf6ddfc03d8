"""What people did is taken in, and a log that grows is looked at without reading more each time."""

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from ledger import audit, desk_events, logkeys, sealer
from ledger.models import AuditRound, Event, LogKey
from tests.ledger.conftest import event, record_events
from workspaces import encryption, keys, teams
from workspaces.models import Act, Secret, User, Workspace


def test_what_people_did_is_taken_in_once(trip_desk, ada):
    keys.create_key(trip_desk, by=ada, name="laptop")

    assert desk_events.take_in() == 1
    assert desk_events.take_in() == 0

    taken = Event.objects.get(type="key.created")
    assert (taken.actor_kind, taken.actor) == ("person", str(ada.pk))
    assert Act.objects.filter(taken_in_at=None).count() == 0


def test_acts_of_one_transaction_are_taken_in_together_in_their_order_and_each_by_its_own_name(
    trip_desk, ada, django_capture_on_commit_callbacks
):
    bo = User.objects.create_user("bo@northwind.example", name="Bo")
    people = [ada, ada, bo, ada]
    with django_capture_on_commit_callbacks() as waiting:
        made = [keys.create_key(trip_desk, by=person, name="laptop")[0] for person in people]

    assert waiting.count(desk_events.take_in) == 1
    assert desk_events.take_in() == len(people)

    taken = Event.objects.filter(type="key.created").order_by("place")
    assert [event.actor for event in taken] == [str(person.pk) for person in people]
    assert [event.data["key"] for event in taken] == [key.prefix for key in made]


def test_a_workspace_whose_acts_cannot_be_taken_in_keeps_no_others_waiting(trip_desk, ada):
    """What a person did is what others' rights rest on: a deputy's yes counts once it is told."""
    keys.create_key(trip_desk, by=ada, name="laptop")
    Workspace.objects.filter(pk=trip_desk.workspace_id).update(masking_key=b"of a key that is lost")
    elsewhere = Workspace.objects.create(slug="elsewhere", name="Elsewhere")
    teams.create(elsewhere, "operators", by=ada)

    with pytest.raises(encryption.CannotOpen):
        desk_events.take_in()

    assert Event.objects.get(type="team.created").workspace == elsewhere
    waiting = Act.objects.filter(taken_in_at=None)
    assert set(waiting.values_list("workspace", flat=True)) == {trip_desk.workspace_id}


def test_a_short_log_is_read_once_a_turn_and_its_older_heads_together(northwind, actor):
    """What was found in it while it was longer is told until somebody has looked at all of it."""

    def asked():
        with CaptureQueriesContext(connection) as heard:
            assert audit.look() == 0
        return [one["sql"] for one in heard]

    def grows(times):
        for _ in range(times):
            record_events(actor, event("run.started"))
            sealer.seal(northwind)

    AuditRound.objects.create(workspace=northwind, wrong="Of when it was longer", wrong_from=9_999)
    grows(3)
    with pytest.raises(audit.NotAsSigned, match="when it was longer"):
        audit.look()
    audit.all_is_well(northwind)
    few = asked()
    grows(9)

    assert sum('FROM "ledger_event" WHERE' in sql for sql in few) == 1
    assert len(asked()) <= len(few)
    assert not AuditRound.objects.exists()


def test_the_key_of_a_log_is_found_without_reading_those_of_other_logs(northwind):
    secret = Secret.objects.seal(northwind, "seed", {})
    others = Workspace.objects.bulk_create(Workspace(slug=f"w{n}", name="W") for n in range(900))
    LogKey.objects.bulk_create(
        LogKey(workspace=one, origin=one.slug, public_key=b"p" * 32, secret=secret)
        for one in others
    )
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("ANALYZE ledger_logkey")
        assert sealer.take_lock(others[0])  # from here on nothing is sorted
        with CaptureQueriesContext(connection) as heard:
            assert logkeys.living(others[0]).origin == "w0"
        cursor.execute(f"EXPLAIN {heard.captured_queries[0]['sql']}")
        plan = " ".join(line for (line,) in cursor.fetchall())

    assert "Index Cond: (workspace_id = " in plan
