"""The audit page: people's acts from the ledger, and nobody else's."""

import pytest

from amends.protocol.vocabulary import EventType
from ledger import desk_events
from workspaces import entrance
from workspaces.models import User

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(db):
    return User.objects.create_user("ada@example.com", "a long enough secret", name="Ada Nilsson")


@pytest.fixture
def airline(ada):
    return entrance.open_workspace("Airline desk", "airline", by=ada)


def test_an_act_of_a_person_is_listed_with_its_entry_and_the_desks_own_words_are_not(
    client, ada, airline
):
    desk_events.record(airline, EventType.POLICY_ACTIVATED, by=ada, data={"number": 3})
    desk_events.record(airline, EventType.CASE_OPENED, part="triage", data={"reason": "machine"})
    client.force_login(ada)

    page = client.get("/w/airline/audit/")

    assert "Policy activated" in page.text
    assert "Version" in page.text
    assert "Ada Nilsson" in page.text
    assert "Case opened" not in page.text
    assert client.get(page.context["acts"][0]["entry_url"]).status_code == 200


def test_details_are_words_and_not_what_machines_read(client, ada, airline):
    facts = {
        "risk": "high",
        "rules": [{"glob": "mail.*", "words": "a person reads it"}, {"glob": "*"}],
        "seen": "01a20498-b96d-74eb-86ef-0a289fd3618d",
        "evidence": {"text": "seen at the bank"},
        "subject": {"id": 29, "case": "30", "kind": "plan", "digest": "ab" * 32},
        "expires_at": "2026-11-23T18:57:47.433+00:00",
        "case": 7,
        "public_key": "MFkw" * 60,
        "alg": -7,
        "person": "5",
    }
    desk_events.record(airline, EventType.CASE_COMMENTED, by=ada, data=facts)
    client.force_login(ada)

    act, *_ = client.get("/w/airline/audit/").context["acts"]

    assert act["words"] == "Case commented: 7"
    assert [str(one) for one in act["fields"]] == [
        "Risk: high", "Rules: 2", "Evidence: seen at the bank", "Until: 2026-11-23 18:57:47 UTC",
        "About: plan, case 30",
    ]  # fmt: skip


def test_what_was_changed_is_told_by_labels_with_what_was_before(client, ada, airline):
    here = {"connection": "ledger", "connector": "sql", "revision": 2, "concurrency": 8}
    more = {"settings_digest": "ab" * 32, "changed": ["host"], "was": {"concurrency": 4}}
    desk_events.record(airline, EventType.CONNECTION_UPDATED, by=ada, data=here | more)
    previous = {"number": 2, "previous": {"number": 1, "digest": "cd" * 32}, "note": ""}
    desk_events.record(airline, EventType.POLICY_ACTIVATED, by=ada, data=previous)
    client.force_login(ada)
    client.post("/w/airline/settings/", {"name": "Flight desk", "timezone": airline.timezone})
    desk_events.take_in()

    page = client.get("/w/airline/audit/?kind=rules")
    renamed, policy, connection = page.context["acts"][:3]

    assert connection["words"] == "Connection updated: ledger"
    assert [str(one) for one in connection["fields"]] == [
        "Calls at once: 4 → 8", "Kind: sql", "Settings changed: host",
    ]  # fmt: skip
    assert [str(one) for one in policy["fields"]] == ["Version: 1 → 2"]
    assert [str(one) for one in renamed["fields"]] == ["Name: Airline desk → Flight desk"]
    assert "revision" not in page.text
    assert "<del>4</del>" in page.text
    sheet = b"".join(client.get("/w/airline/audit/?kind=rules&format=csv")).decode()
    assert "Calls at once: 4 → 8" in sheet


def test_the_audit_goes_on_page_by_page(client, ada, airline):
    for number in range(51):  # and the first version, saved and put in force
        desk_events.record(airline, EventType.POLICY_ACTIVATED, by=ada, data={"number": number})
    client.force_login(ada)

    first = client.get("/w/airline/audit/?kind=rules")
    older = client.get("/w/airline/audit/" + first.context["pager"]["next"])

    assert len(first.context["acts"]) == 50
    assert len(older.context["acts"]) == 3
    assert older.context["pager"]["next"] == ""
