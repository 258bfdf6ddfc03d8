"""Eve is forgotten after her case: nothing of her is left on any floor, and every page opens."""

import json
from itertools import chain

import pytest

from amends.protocol.proofs import LogKey, verify
from connectors import channels
from connectors.models import Delivery
from ledger import audit, erasure, logkeys, proofs, retention, sealer
from ledger.models import Run
from recovery import corrections
from recovery.corrections import publishing
from recovery.models import BulkJob, Case, CaseState, Correction, SavedView
from recovery.planning import plans
from tests.ledger.test_erasure import tables_that_say
from tests.ledger.test_retention import LATER, SOON
from tests.recovery.engine import by_hand

# Her name, her address, and who stands in the snapshot of her ticket.
CANARIES = ("Eve Adams", "eve@example.com", "Nora")


@pytest.fixture
def told(raised, ada):
    """Her case, compensated, closed, and the correction mailed to her; and the link to it."""
    case = raised.case()
    draft = plans.draft(case)
    plan = plans.submit(
        case, digest=draft.digest, revision=draft.case.revision, by=ada, reason="Eve Adams asked"
    )
    by_hand.advance(plan.pk)
    assert publishing.draft_due() == 1
    correction = Correction.objects.get()
    found = corrections.publish(
        correction, by=ada, seen=correction.revision, ways=(publishing.LINK, publishing.MAIL)
    )
    Run.objects.update(lease_until=None)
    link = corrections.link_of(found).removeprefix("http://localhost")
    sealer.seal(case.workspace)
    return Case.objects.get(), link


def test_the_canary_sings_before(told):
    for word in CANARIES:
        assert len(tables_that_say(word)) >= 3, word
    _, link = told
    assert Delivery.objects.filter(recipient="eve@example.com").exists()
    assert tables_that_say(link.split("/")[2]) == {"connectors_delivery": 1}


def test_nothing_of_her_is_left_on_any_floor(told, ada, client, acme):
    case, link = told
    assert client.get(link).status_code == 200

    erasure.erase(case.workspace, person="eve", by=ada)

    assert {word: tables_that_say(word) for word in CANARIES} == {word: {} for word in CANARIES}
    assert tables_that_say(link.split("/")[2]) == {}
    assert client.get(link).status_code == 404
    client.force_login(ada)
    root = f"/w/{acme.slug}"
    for page in (
        f"{root}/cases/{case.pk}/", f"{root}/queue/?q=is:closed", f"{root}/runs/",
        f"{root}/runs/{case.run.run}/", f"{root}/corrections/", f"{root}/ledger/",
        f"{root}/corrections/{Correction.objects.get().pk}/", f"{root}/audit/",
        f"{root}/approvals/history/", f"{root}/tools/",
    ):  # fmt: skip
        assert client.get(page).status_code == 200, page


def test_lists_that_name_her_and_messages_to_programs_forget_her_and_a_neighbours_stay(
    told, ada, acme, globex, dev
):
    """By her id, by her name, or only by the run that was hers."""
    case, _ = told
    secret = {"url": "https://hooks.example/", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
    for workspace, who in ((acme, ada), (globex, dev)):
        hook = {"secret": secret, "subjects": ["case.*"], "by": who}
        channels.create(workspace, "crm", "webhook", **hook)
        said = channels.Message(
            "Canary", "Canary waits", facts={"run": case.run.run, "to": "Canary"}
        )
        channels.announce(workspace, "case.critical", said, key="case 1")
        named = {"workspace": workspace, "owner": who}
        SavedView.objects.create(
            **named, name="Canary: Eve Adams", slug="eve-adams", query="risk:low"
        )
        SavedView.objects.create(**named, name="Canary", slug="hers", query="customer:eve")
        SavedView.objects.create(**named, name="Others", slug="others", query="customer:mia")
        BulkJob.objects.create(
            workspace=workspace, verb="close", query="customer:eve Canary", started_by=who
        )

    erasure.erase(acme, person="eve", by=ada)

    left = {"connectors_delivery": 1, "recovery_savedview": 2, "recovery_bulkjob": 1}
    assert tables_that_say("Canary") == left
    for one in (Delivery, SavedView, BulkJob):
        found = one.objects.exclude(workspace=acme)
        assert str(list(found.values())).count("Canary") >= left[one._meta.db_table]
    hers = SavedView.objects.filter(workspace=acme).exclude(slug="others")
    assert {one.slug for one in hers} == {f"erased-{one.pk}" for one in hers}
    assert SavedView.objects.filter(name="Others", query="customer:mia").count() == 2


def test_what_she_downloaded_before_still_proves_what_it_says(told, ada, client):
    case, link = told
    record = client.get(f"{link}record.json").text
    keys = [LogKey.parse(text) for text in logkeys.published(case.workspace)]
    assert verify(record, keys).event["type"] == "correction.published"

    erasure.erase(case.workspace, person="eve", by=ada)
    sealer.seal(case.workspace)

    assert verify(record, keys).event["type"] == "correction.published"
    new = proofs.proof_of(case.workspace, json.loads(record)["event"]["id"])
    assert verify(new, keys).leaf["type"] == "correction.published"
    assert all(finding.ok for finding in audit.audit(case.workspace))


def test_an_open_case_is_not_erased_under_the_hands_of_its_operator(raised, ada):
    case = raised.case()
    Run.objects.update(lease_until=None)
    with pytest.raises(erasure.StillWorkedOn):
        erasure.erase(case.workspace, person="eve", by=ada)


def test_retention_waits_for_an_open_case_and_for_a_correction_that_can_be_read(told, ada):
    case, _ = told
    assert [*chain(*retention.over(case.workspace, SOON))] == []

    correction = Correction.objects.get()
    corrections.revoke(correction, by=ada, seen=correction.revision)
    retention.keep_to_time(SOON)

    assert tables_that_say("Nora") == tables_that_say("eve@example.com") == {}
    case.refresh_from_db()
    assert (case.state, case.run.request) == (CaseState.CLOSED, "⟦erased⟧")
    retention.keep_to_time(LATER)
    assert Case.objects.count() == 1  # what happened stays, without the words
    assert all(finding.ok for finding in audit.audit(case.workspace))


def test_retention_keeps_what_an_open_case_rests_on(raised):
    case = raised.case()
    Run.objects.update(lease_until=None)

    retention.keep_to_time(SOON)

    assert [*chain(*retention.over(case.workspace, SOON))] == []
    draft = plans.draft(case)
    assert draft.digest
    assert tables_that_say("Nora").keys() >= {"ledger_event", "ledger_effect"}
