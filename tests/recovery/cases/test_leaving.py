"""A workspace leaves while there is work in it: what waits, and what opens nothing elsewhere."""

import json

import pytest
from django.core.management import CommandError, call_command

from connectors.models import Connection, Delivery
from ledger import sealer
from recovery.corrections import draft as draft_corrections
from recovery.corrections import link_of, publish
from recovery.engine import plan_lifecycle
from recovery.models import Correction, Plan
from tests.recovery.cases.cast import submitted

pytestmark = pytest.mark.django_db(transaction=True)


def deleted(tmp_path):
    receipt = tmp_path / "receipt.json"
    said = {"typed": "acme", "reason": "contract ended", "receipt": receipt}
    call_command("delete_workspace", "acme", **said)
    return receipt


def test_a_workspace_waits_for_its_running_plan_and_goes_once_it_is_stopped(
    raised, policy, acme, ada, shop_connection, tmp_path
):
    case = raised.case()
    plan = submitted(case, ada)

    with pytest.raises(CommandError, match="stop it, or see it through"):
        deleted(tmp_path)
    assert not Connection.objects.get().is_disabled
    plan_lifecycle.stop(plan, by=ada)

    told = json.loads(deleted(tmp_path).read_text())
    assert told["event"]["data"]["deleted"]["rows"]["recovery.Plan"] == 1
    assert not Plan.objects.exists()


def test_an_export_has_the_mail_to_a_person_and_not_the_link_in_it(
    raised, policy, acme, ada, tmp_path, capsys
):
    case = raised.case()
    draft_corrections(case)
    Correction.objects.update(contact="eve@customer.example")
    row = Correction.objects.get()
    row = publish(row, by=ada, seen=row.revision, ways=["mail"])
    sealer.seal_all()
    token = link_of(row).rstrip("/").rpartition("/")[2]
    assert token in str(Delivery.objects.get().message)

    call_command("export_workspace", "acme", tmp_path)

    [folder] = tmp_path.iterdir()
    everything = b"".join(path.read_bytes() for path in folder.glob("*.*"))
    assert b"eve@customer.example" in everything
    assert token.encode() not in everything
    assert row.token_digest.encode() not in everything
