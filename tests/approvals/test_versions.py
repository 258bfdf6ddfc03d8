"""Versions of the policy: saved by a person, put in force at once."""

import re
import shlex
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections, transaction
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from approvals import pauses, versions
from approvals.models import PolicyVersion
from approvals.policy import Invalid, ToolCall, active, active_policies, judge
from config.local.places import ROOT
from ledger.canonical import digest
from tests.approvals.cast import told
from tests.locks import waits
from tests.people import logged_in, person
from workspaces import keys
from workspaces.moves import CannotMove

ASKS_FINANCE = '{"policies": {"a": {"approval": "MANUAL", "requires": [{"group": "finance"}]}}}'


def test_a_version_put_in_force_is_judged_by_at_once_without_a_restart(acme, ada):
    assert judge(active(acme), ToolCall(tool="a")).approval == "AUTO"

    first = versions.save(acme, '{"policies": {"a": {"approval": "DENY"}}}', by=ada)
    assert judge(active(acme), ToolCall(tool="a")).approval == "AUTO"
    versions.activate(first, by=ada)
    assert judge(active(acme), ToolCall(tool="a")).approval == "DENY"

    second = versions.save(acme, "policies: {}", by=ada, note="too strict")
    versions.activate(second, by=ada)
    assert judge(active(acme), ToolCall(tool="a")).approval == "AUTO"
    assert [one["number"] for one in told(acme, "policy.activated")] == [1, 2]


def test_what_the_ledger_tells_of_changes_is_read_anew_only_after_another(acme, ada):
    """For each look at a case all that people did outside a run was read for it."""
    first, second = (versions.save(acme, f"policies: {{}} # {one}", by=ada) for one in "ab")
    before = [""]
    for version in (first, second, first):
        versions.activate(version, by=ada)
        with CaptureQueriesContext(connection) as sent:
            known = [active_policies.changes(acme.pk) for _ in range(3)]
        assert [digest for _, digest in known[2]] == before
        assert known[0] == known[1] == known[2]
        assert sum('"ledger_event"' in one["sql"] for one in sent) == 1
        before.append(version.digest)


def test_changes_are_not_kept_before_the_ledger_tells_of_the_last(acme, ada):
    version = versions.save(acme, "policies: {}", by=ada)
    versions.activate(version, by=ada)
    PolicyVersion.objects.filter(pk=version.pk).update(activated_at=Now())
    with CaptureQueriesContext(connection) as sent:
        active_policies.changes(acme.pk)
        active_policies.changes(acme.pk)
    assert sum('"ledger_event"' in one["sql"] for one in sent) == 2


@pytest.mark.django_db(transaction=True)
def test_of_two_who_put_one_in_force_at_once_the_second_looks_again(acme, operators):
    """Both have seen the first version in force."""
    olga = person("olga", operators)
    first, denies, asks = (
        versions.save(acme, f'{{"policies": {{"a": {{"approval": "{one}"}}}}}}', by=olga)
        for one in ("AUTO", "DENY", "MANUAL")
    )
    versions.activate(first, by=olga)
    client = logged_in(olga)

    def press():
        try:
            url = f"/w/acme/policies/{asks.number}/activate/"
            return client.post(url, {"seen": first.digest})
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as threads:
        with transaction.atomic():
            versions.activate(denies, by=None)
            late = threads.submit(press)
            waits(1, unless=late.done)
        answer = late.result(60)

    assert answer.status_code == 409
    assert "Another version was put in force since this page was drawn" in answer.text
    assert judge(active(acme), ToolCall(tool="a")).approval == "DENY"


def test_what_the_lower_floors_read_is_copied_onto_the_workspace(acme, ada):
    source = (
        '{"audit": {"mask": ["args.card.*"], "retention": "30d", "captureIntent": false},'
        ' "stuckAfter": "5m"}'
    )
    versions.activate(versions.save(acme, source, by=ada), by=ada)

    acme.refresh_from_db()
    assert (acme.mask, acme.retention_days) == (["args.card.*"], 30)
    assert (acme.stuck_after_seconds, acme.capture_intent) == (300, False)


def test_a_requirement_that_nobody_can_meet_is_refused_when_saved(acme, ada, finance):
    with pytest.raises(Invalid, match="nobody can meet this"):
        versions.save(acme, ASKS_FINANCE, by=ada)
    with pytest.raises(Invalid, match="no team"):
        versions.save(acme, ASKS_FINANCE.replace("finance", "lawyers"), by=ada)


def test_one_person_in_two_teams_cannot_meet_a_requirement_of_both(acme, ada, ben, leads):
    from workspaces import teams

    both = '{"policies": {"a": {"requires": [{"group": "finance"}, {"group": "leads"}]}}}'
    teams.add(leads, ben, by=None)
    with pytest.raises(Invalid, match="line 1"):
        versions.save(acme, both, by=ada)


def test_a_policy_is_loaded_from_a_file_by_command(acme, ada, ben, tmp_path, capsys):
    file = tmp_path / "policy.yaml"
    file.write_text("policies:\n  a: {approval: MANUAL, requires: [{group: finance}]}\n")

    call_command("load_policy", "acme", str(file), by="ada@example.com")
    assert judge(active(acme), ToolCall(tool="a")).requires[0].team == "finance"

    file.write_text("policies:\n  a: {aproval: MANUAL}\n")
    with pytest.raises(CommandError, match=r"line 2, column 7.*did you mean approval"):
        call_command("load_policy", "acme", str(file))


def test_the_commands_of_the_guide_rehearse_a_policy_and_then_put_it_in_force(
    acme, ada, monkeypatch, tmp_path, capsys
):
    guide = (ROOT / "docs" / "policy.md").read_text()
    [lines] = re.findall(r"```sh\n(.*?)\n```", guide, re.DOTALL)
    dry, real = (
        shlex.split(line.replace(" airline ", f" {acme.slug} ")) for line in lines.splitlines()
    )
    assert dry[:2] == real[:2] == [".venv/bin/python", "manage.py"]
    monkeypatch.chdir(tmp_path)
    twin = "twins:\n  a: {connection: nonesuch, operation: restore}\n"
    (tmp_path / "policy.yaml").write_text(f"policies:\n  a: {{approval: DENY}}\n{twin}")

    call_command(*dry[2:])

    assert judge(active(acme), ToolCall(tool="a")).approval == "AUTO"
    assert told(acme, "policy.saved") == []
    said = capsys.readouterr().out
    assert "Over 0 actions of the last 30 days it would have asked 0 times" in said
    assert "a names nonesuch.restore. There is no connection “nonesuch”." in said

    call_command(*real[2:])

    assert judge(active(acme), ToolCall(tool="a")).approval == "DENY"
    [saved] = told(acme, "policy.activated")
    assert saved["number"] == 1


def test_a_pause_stands_until_somebody_lifts_it_once(acme, ada):
    placed = pauses.pause(acme, "tool", "mail.*", by=ada, reason="wrong recipients")

    assert pauses.standing(acme.pk, tool="mail.send") == placed
    assert pauses.standing(acme.pk, tool="crm.read") is None
    with pytest.raises(CannotMove):
        pauses.pause(acme, "tool", "mail.*", by=ada, reason="again")
    pauses.lift(placed, by=ada)
    assert pauses.standing(acme.pk, tool="mail.send") is None
    with pytest.raises(CannotMove):
        pauses.lift(placed, by=ada)


def test_a_version_that_a_newer_desk_refuses_says_so_before_anybody_puts_it_in_force(
    client, acme, ada
):
    version = versions.save(acme, '{"policies": {"pay": {"approval": "DENY"}}}', by=ada)
    rule = {"when": "[args.to][0] == 'evil'", "approval": "DENY"}
    document = {"policies": {"pay": rule}}
    rows = PolicyVersion.objects.filter(pk=version.pk)
    rows.update(document=document, digest=digest(document), source="")
    _, token = keys.create_token(acme, by=ada, name="ci")

    shown = logged_in(ada).get(f"/w/acme/policies/{version.number}/").text
    said = client.get(
        f"/api/v1/policies/{version.number}/dry-run", headers={"authorization": f"Bearer {token}"}
    ).json()

    assert "It cannot be put in force as it stands." in shown
    assert "an argument is compared by its name" in shown
    assert "in force</button>" not in shown
    [problem] = said["problems"]
    assert (problem["path"], said["dry_run"]["judged"]) == ("policies.pay.when", 0)
