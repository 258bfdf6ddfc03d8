"""A snapshot above 64 KiB is compared like any other, or said to be too large, with a link."""

import hashlib
import json

import pytest

from ledger import disclosure, snapshots
from ledger.models import Blob
from recovery.planning import plans
from recovery.run_facts.runs import facts_of
from tests import people
from workspaces import keys, teams
from workspaces.models import Act


@pytest.fixture
def sees(acme, ada):
    """Ada may see payloads."""
    teams.add(people.team(acme, "auditors", "view", "view_sensitive"), ada, by=None)


def kept(workspace, state):
    content = json.dumps(state).encode()
    sha256 = hashlib.sha256(content).hexdigest()
    Blob.objects.create(
        workspace=workspace, sha256=sha256, content=content, byte_count=len(content)
    )
    return {"ref": f"sha256:{sha256}"}


def changed(begin_run, acme, size):
    before = {"body": "x" * size, "priority": "normal"}
    run = begin_run()
    target = ("ticket", "main/T-182")
    run.does(
        "tickets.update", (*target, kept(acme, before), kept(acme, before | {"priority": "high"}))
    )
    run.ends("failed")
    return run.case()


def test_what_differs_in_two_large_snapshots_is_shown_field_by_field(begin_run, acme, desk, sees):
    case = changed(begin_run, acme, 100_000)

    [item] = desk.get(f"/w/acme/cases/{case.pk}/").context["story"]["items"]

    assert [(row["field"], row["was"], row["now"]) for row in item["diff"]] == [
        ("priority", "normal", "high")
    ]
    assert "changed priority on ticket" in case.headline
    replay = desk.post("/w/acme/reveal/run_1/").content.decode()
    assert "priority" in replay
    assert "sha256:" not in replay.split("Step by step")[0].split("<table>", 1)[1]


def test_one_that_is_too_large_says_so_and_is_linked(begin_run, acme, globex, desk, sees, dev):
    case = changed(begin_run, acme, snapshots.BYTES_EACH_MAX)

    page = desk.get(f"/w/acme/cases/{case.pk}/").content.decode()

    assert "too large to compare here" in page
    first = Blob.objects.order_by("pk")[0]
    address = f"/w/acme/ledger/snapshots/{first.sha256}/"
    assert f'href="{address}"' in page
    assert json.loads(desk.get(address).content)["priority"] == "normal"
    assert Act.objects.get(type="payload.revealed").data == {"snapshot": first.sha256}
    desk.force_login(dev)
    assert desk.get(address).status_code == 404
    assert desk.get(f"/w/globex/ledger/snapshots/{first.sha256}/").status_code in (403, 404)


def test_over_the_api_it_has_an_address_of_its_own(begin_run, acme, ada, sees, client, settings):
    changed(begin_run, acme, snapshots.BYTES_EACH_MAX)
    _, token = keys.create_token(acme, by=ada, name="script")
    first = Blob.objects.order_by("pk")[0]

    def ask(path):
        return client.get(path, headers={"authorization": f"Bearer {token}"})

    [action] = ask("/api/v1/runs/run_1").json()["actions"]

    named = action["effects"][0]["before"]
    assert named == {
        "ref": f"sha256:{first.sha256}",
        "url": f"{settings.AMENDS_URL}/api/v1/ledger/snapshots/{first.sha256}",
    }
    path = named["url"].removeprefix(settings.AMENDS_URL)
    assert ask(path).json()["priority"] == "normal"
    assert Act.objects.filter(type="payload.revealed", data={"snapshot": first.sha256}).exists()
    assert ask(path[:-1] + "0" if path[-1] != "0" else path[:-1] + "1").status_code == 404
    teams.remove(acme.teams.get(name="auditors"), ada, by=None)
    assert ask(path).status_code == 403


def test_who_may_not_see_payloads_gets_neither_values_nor_links(begin_run, acme, desk):
    case = changed(begin_run, acme, snapshots.BYTES_EACH_MAX)
    first = Blob.objects.order_by("pk")[0]

    page = desk.get(f"/w/acme/cases/{case.pk}/").content.decode()

    assert first.sha256 not in page
    assert disclosure.HIDDEN in page
    assert desk.get(f"/w/acme/ledger/snapshots/{first.sha256}/").status_code == 403


def test_an_erased_snapshot_is_not_found_again_in_another_workspace(begin_run, acme, globex):
    case = changed(begin_run, acme, 1_000)
    for one in Blob.objects.filter(workspace=acme):
        Blob.objects.create(
            workspace=globex, sha256=one.sha256, content=one.content, byte_count=one.byte_count
        )
    Blob.objects.filter(workspace=acme).update(content=None)

    [(_, effect)] = facts_of(case.run).standing()

    assert snapshots.is_ref(effect.before)


def test_one_that_somebody_wrote_over_is_neither_shown_nor_written_back(
    begin_run, acme, desk, sees, shop, ticket, policy
):
    """Its event names it by its digest, so what stands there now is not what the agent saw."""
    run = begin_run()
    target = ("ticket", "main/T-182")
    was, left = ({**ticket, "priority": one} for one in ("normal", "high"))
    run.does("tickets.update", (*target, kept(acme, was), kept(acme, left)))
    run.ends("failed")
    first = Blob.objects.order_by("pk")[0]
    Blob.objects.filter(pk=first.pk).update(content=json.dumps(was | {"priority": "low"}).encode())

    draft = plans.draft(run.case())

    assert [one.code for one in draft.cannot] == ["snapshot_gone"]
    assert desk.get(f"/w/acme/ledger/snapshots/{first.sha256}/").status_code == 404
    assert facts_of(run.row).effects[run.row.actions.get().pk][0].before == {
        "ref": f"sha256:{first.sha256}"
    }


def test_a_row_whose_only_field_is_called_ref_is_no_reference(begin_run, shop, ticket, policy):
    run = begin_run()
    target = ("ticket", "main/T-182")
    run.does("tickets.update", (*target, {"ref": "PO-77"}, {"ref": "sha256:PO-78"}))
    run.ends("failed")

    draft = plans.draft(run.case())

    assert [one.step.args["to"] for one in draft.steps] == [{"ref": "PO-77"}]
