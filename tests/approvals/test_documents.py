"""Approvals of ours as documents of others: what their own library and its command say of them."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import aais
import pytest
from django.test import Client
from django.utils import timezone

from approvals import grants, inbox
from approvals.approval_requests import void
from approvals.models import Approval
from approvals.policy import RequiredApprovers
from tests.approvals.cast import refund
from tests.people import logged_in, person, team
from workspaces import keys
from workspaces.models import Act

pytestmark = pytest.mark.django_db

VALIDATE = Path(sys.executable).parent / "aais-validate"
SECRET = "4111 1111 1111 1111"


def read(who, approval, name):
    browser = logged_in(who)
    return browser.get(f"/w/acme/approvals/{approval.pk}/{name}.json")


def test_what_was_asked_and_decided_goes_out_and_its_own_command_finds_it_valid(ask, ben, tmp_path):
    approval = ask()
    page = f"/w/acme/approvals/{approval.pk}/"
    assert read(ben, approval, "decided").status_code == 404
    inbox.grant(approval, by=ben, seen=approval.digest, reason="checked", login_at=timezone.now())
    assert read(ben, approval, "decided").status_code == 200
    assert read(ben, approval, "resolved").status_code == 404, "it may still be taken back"
    assert grants.use(approval.pk, approval.digest)

    browser = logged_in(ben)
    card = browser.get(page).content.decode()
    told = {}
    for name in ("requested", "decided", "resolved"):
        assert f'href="{page}{name}.json" download' in card
        answer = read(ben, approval, name)
        assert f"approval-{approval.pk}-{name}.json" in answer["Content-Disposition"]
        file = tmp_path / name
        file.write_bytes(answer.content)
        said = subprocess.run([VALIDATE, file], capture_output=True, text=True, check=False)
        assert (said.returncode, said.stdout) == (0, "valid\n"), said.stderr
        told[name] = answer.json()
    [call] = told["requested"]["request"]["action"]["arguments"]["calls"]
    assert call["args"] == {"charge": "ch_1", "amount": 100}
    assert told["decided"]["decision"]["actor"]["display_name"] == "Ben"
    store = aais.ApprovalStore()
    store.add(told["requested"])
    end = store.decide(told["decided"])["resolution"]
    mine = told["resolved"]["resolution"]
    assert {end[name] == mine[name] for name in ("outcome", "decision_id", "action_digest")} == {
        True
    }
    [extension] = mine["extensions"].values()
    assert extension["digest"] == approval.digest


def test_only_the_rules_that_ask_people_are_reasons_of_the_risk(ask, ben):
    """Of a plan it said *put back without asking*, too."""
    approval = ask()
    rules = [{"words": "rows go back unasked", "approval": "AUTO"}]
    asking = {"words": "one of finance looks", "approval": "MANUAL"}
    told = []
    for more in ({"rules": [*rules, asking]}, {"rules": rules, "reason": "she asked for it"}):
        Approval.objects.filter(pk=approval.pk).update(**more)
        document = aais.validate(read(ben, approval, "requested").json())
        told.append(document["request"]["risk"]["reasons"])

    assert told == [["one of finance looks"], ["People have to decide it."]]


def test_one_yes_of_two_is_no_decision(ask, ben, cleo):
    approval = ask(RequiredApprovers(None, 2))
    inbox.grant(approval, by=ben, seen=approval.digest, reason="fine", login_at=timezone.now())
    assert read(ben, approval, "requested").status_code == 200
    assert read(ben, approval, "decided").status_code == 404
    assert read(ben, approval, "resolved").status_code == 404

    inbox.grant(approval, by=cleo, seen=approval.digest, reason="fine", login_at=timezone.now())
    decided = aais.validate(read(ben, approval, "decided").json())["decision"]
    [extension] = decided["extensions"].values()
    assert extension["agreed"] == ["Ben", "Cleo"]


def test_each_end_is_told_as_what_it_was(ask, ben, ada):
    no, back, late = ask(), ask(), ask()
    inbox.reject(no, by=ben, seen=no.digest, reason="the wrong card")
    void(back, why="the run is over")
    Approval.objects.filter(pk=late.pk).update(state="expired", was="waiting")

    ends = {one: aais.validate(read(ben, one, "resolved").json())["resolution"]
            for one in (no, back, late)}  # fmt: skip
    assert [one["outcome"] for one in ends.values()] == ["denied", "cancelled", "expired"]
    assert "the wrong card" in ends[no]["message"]
    assert aais.validate(read(ben, no, "decided").json())["decision"]["decision"] == "deny"
    assert {read(ben, one, "decided").status_code for one in (back, late)} == {404}


def test_a_neighbours_documents_are_nobodys_elses(globex, ask):
    approval = ask()
    neighbour = person("gus", team(globex, "all", "view", "view_sensitive", "approve"))
    token = keys.create_token(globex, by=neighbour, name="t")[1]
    for name in ("", "/requested"):
        there = f"/api/v1/approvals/{approval.pk}/documents{name}"
        answer = Client().get(there, headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == 404


def test_values_stay_hidden_from_whoever_may_not_see_them(acme, ask, ben, dev):
    odd = replace(
        refund(), args={"to": "eve", "wide": 2**70, "password": "hunter2"}, target_id=f"{SECRET}"
    )
    approval = ask(calls=[odd])
    onlooker = person("eve", team(acme, "onlookers", "view"))
    script = keys.create_token(acme, by=onlooker, name="t")[1]
    trusted = person("fay", team(acme, "auditors", "view", "view_sensitive"))
    full = keys.create_token(acme, by=trusted, name="t")[1]

    def by_script(token, name="requested"):
        there = f"/api/v1/approvals/{approval.pk}/documents/{name}"
        return Client().get(there, headers={"authorization": f"Bearer {token}"})

    for answer in (read(onlooker, approval, "requested"), by_script(script)):
        document = aais.validate(answer.json())
        action = document["request"]["action"]
        assert action["arguments"] == {}
        assert action["presentation"]["redacted"] is True
        assert SECRET not in json.dumps(document)
    for answer in (read(ben, approval, "requested"), by_script(full)):
        [call] = aais.validate(answer.json())["request"]["action"]["arguments"]["calls"]
        assert (call["args"]["to"], call["args"]["wide"]) == ("eve", str(2**70))
        assert "hunter2" not in json.dumps(call["args"]), "a secret is masked for everybody"
    revealed = Act.objects.get(type="payload.revealed")
    assert revealed.data == {"approval": approval.pk, "run": ""}
    names = Client().get(f"/api/v1/approvals/{approval.pk}/documents",
                         headers={"authorization": f"Bearer {full}"})  # fmt: skip
    assert names.json() == {"documents": ["requested"]}
    assert by_script(full, "decided").status_code == 404
    nobody = keys.create_token(acme, by=person("gil", team(acme, "guests")), name="t")[1]
    assert by_script(nobody).status_code == 403
    assert read(dev, approval, "requested").status_code == 404
