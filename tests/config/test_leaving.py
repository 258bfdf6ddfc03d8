"""Leaving: a workspace as files that prove themselves without the desk."""

import errno
import hashlib
import itertools
import json
import os
import resource
import stat
import threading

import httpx
import pytest
from django.apps import apps
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import DatabaseError, IntegrityError, connections

from amends.__main__ import main
from amends.protocol import proofs
from amends.protocol.canonical import canonical
from config import leaving, providers
from config.backups import MOMENT_GLOB, new_folder
from connectors import channels
from connectors.channels import Message
from ledger import audit, entries, erasure
from ledger.models import Event, Run
from ledger.partitions import owner_alias
from ledger.sealer import seal_all
from tests import people
from tests.approvals.door import Agent, planned
from tests.ledger.conftest import event
from workspaces import entrance, keys, teams
from workspaces.models import Agent as AgentRow
from workspaces.models import APIKey, Invitation, LoginProvider, Workspace

pytestmark = pytest.mark.django_db(transaction=True)
UNAUTHORIZED = 401
acme, leads, operators = people.acme, people.leads, people.operators


@pytest.fixture
def ada(operators):
    return people.person("ada", operators)


@pytest.fixture
def agent(acme, ada):
    row = AgentRow.objects.create(workspace=acme, name="handy", owner=ada)
    return Agent(keys.create_key(row, by=ada, name="laptop")[1])


@pytest.fixture
def acted(agent):
    """Two calls were made, and everything is sealed."""
    for number in ("1", "2"):
        agent.begin(planned(run=f"run_{number}", action=f"act_{number}", key=f"k-{number}"))
    seal_all()


def exported(tmp_path, capsys):
    call_command("export_workspace", "acme", tmp_path)
    folder = capsys.readouterr().out.splitlines()[0]
    return tmp_path / folder.rpartition("/")[2]


def verified(folder, capsys):
    """What `amends verify` ends with, and says."""
    code = main(["verify", str(folder), "--key", str(folder / "log.pub")])
    return code, capsys.readouterr().out


def test_an_export_has_all_of_a_workspace_and_is_proven_without_the_desk(
    acted, acme, tmp_path, capsys
):
    other = Workspace.objects.create(slug="other", name="Other")
    AgentRow.objects.create(workspace=other, name="elsewhere")

    folder = exported(tmp_path, capsys)

    code, said = verified(folder, capsys)
    assert (code, said[:7]) == (0, "Proven:"), said
    note = json.loads((folder / "export.json").read_text())
    assert note["workspace"] == "acme"
    assert note["rows"]["ledger.run.ndjson"] == 2
    agents = (folder / "workspaces.agent.ndjson").read_text()
    assert "handy" in agents
    assert "elsewhere" not in agents
    assert '"ada@' in (folder / "people.ndjson").read_text()
    assert not list(tmp_path.glob("*.partial"))


def test_what_opens_something_stays(acted, acme, tmp_path, capsys):
    key = APIKey.objects.get()
    folder = exported(tmp_path, capsys)

    everything = b"".join(path.read_bytes() for path in folder.glob("*.*"))
    assert key.prefix.encode() in everything
    assert bytes(key.digest).hex().encode() not in everything
    assert b"password" not in everything
    assert bytes(acme.masking_key).hex().encode() not in everything


def test_no_link_that_opens_something_leaves_wherever_in_a_message_it_stands(
    acted, acme, tmp_path, capsys
):
    root = "https://desk.example"
    opening = [f"{root}/{one}/tok3n" for one in ("c", "ask", "join", "setup", "summary/stop")]
    text = "\n".join(f"Here: {one}." for one in [*opening, f"{root}/w/acme/approvals/"])
    facts = {"link": opening[0]}
    said = Message(
        "1 question", text, opening[1], facts, stop_url=f"{root}/summary/stop/1.4:tok3n/"
    )
    channels.write_to(acme, "ben@example.com", "approval.summary", said, key="today")

    folder = exported(tmp_path, capsys)

    left = json.loads((folder / "connectors.delivery.ndjson").read_text())["message"]
    assert "tok3n" not in str(left)
    assert (left["url"], left["stop_url"], left["facts"]) == ("", "", {"link": ""})
    assert f"{root}/w/acme/approvals/" in left["text"]


def test_what_was_changed_afterwards_is_not_proven(acted, tmp_path, capsys):
    folder = exported(tmp_path, capsys)
    for file, old, new in (
        ("log.ndjson", b"crm.update", b"crm.delete"),
        ("ledger.run.ndjson", b"run_1", b"run_9"),
        ("head.txt", b"\n", b"\n\n"),
    ):
        written = (folder / file).read_bytes()
        (folder / file).write_bytes(written.replace(old, new, 1))

        said = f"NOT PROVEN: {file} is not the file that was written\n"
        assert verified(folder, capsys) == (1, said)
        (folder / file).write_bytes(written)


WRITTEN_ANEW = {
    "do not lead to the signed head": lambda lines: lines[:-1],
    "entry 1 is missing": lambda lines: [lines[0], *lines[2:]],
    "do not lead": lambda lines: [lines[0].replace(b'"actor":"', b'"actor":"x'), *lines[1:]],
    "the event of": lambda lines: [one.replace(b"crm.up", b"crm.de") for one in lines],
    "entry 0 cannot be read": lambda lines: [b'{"index":0,"leaf":["x"]}\n', *lines[1:]],
    "entry 0 has an event that nothing proves": lambda lines: [_let_go(lines[0]), *lines[1:]],
    "stands twice": lambda lines: [b'{"event":"made up",' + lines[0][1:], *lines[1:]],
}


def test_a_log_that_was_written_anew_does_not_lead_to_the_head(acted, tmp_path, capsys):
    """Whoever changes the log and the list of files still lacks the desk's signature."""
    folder = exported(tmp_path, capsys)
    lines = (folder / "log.ndjson").read_bytes().splitlines(keepends=True)
    note = json.loads((folder / "export.json").read_text())
    for says, change in WRITTEN_ANEW.items():
        (folder / "log.ndjson").write_bytes(b"".join(change(lines)))
        digest = hashlib.sha256((folder / "log.ndjson").read_bytes()).hexdigest()
        note["files"]["log.ndjson"] = f"sha256:{digest}"
        (folder / "export.json").write_text(json.dumps(note))

        code, said = verified(folder, capsys)
        assert (code, says in said) == (1, True), (says, said)


def _let_go(line):
    """As an entry whose event was let go, but with one that was made up."""
    told = json.loads(line)
    hash_ = proofs.leaf_hash(canonical(told["leaf"])).hex()
    return canonical({"index": told["index"], "hash": hash_, "event": "made up"}) + b"\n"


def test_an_export_that_broke_off_is_begun_anew(acted, tmp_path, capsys):
    left = tmp_path / "acme-20200101T000000Z.partial"
    (left / "blobs").mkdir(parents=True)

    folder = exported(tmp_path, capsys)

    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_an_export_leaves_others_that_are_being_written_alone_and_is_read_by_nobody_else(
    acted, tmp_path, capsys
):
    """Somebody else's short name goes on as ours does, and theirs is just being written."""
    theirs = tmp_path / "acme-eu-20261125T100000Z.partial"
    theirs.mkdir()

    with new_folder(tmp_path / "acme-20261125T100000Z", f"acme-{MOMENT_GLOB}") as ours:
        folder = exported(tmp_path, capsys)
        assert ours.is_dir()

    assert theirs.is_dir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_an_export_is_whole_also_where_folders_cannot_be_told_to_reach_the_disk(
    acted, tmp_path, capsys, monkeypatch
):
    """As on SMB, and on many file systems in user space."""
    known = os.fsync

    def fsync(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        known(handle)

    monkeypatch.setattr(os, "fsync", fsync)

    assert (exported(tmp_path, capsys) / "export.json").is_file()


def test_an_event_that_was_altered_in_the_desk_is_told_and_never_passes_for_let_go(
    acted, acme, tmp_path, capsys
):
    with connections[owner_alias()].cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute("UPDATE ledger_event SET actor = 'mallory' WHERE run = 'run_2'")
        cursor.execute("SET session_replication_role = origin")

    folder = exported(tmp_path, capsys)
    told = [entries.streamed(one) for one in entries.read(acme, 0, 1_000)]

    altered = [one["index"] for one in told if one.get("altered")]
    assert altered
    said = f"NOT PROVEN: entry {altered[0]} had been altered in the desk when it was exported\n"
    assert verified(folder, capsys) == (1, said)
    assert "mallory" not in json.dumps([told[number] for number in altered])


def test_every_table_of_ours_is_exported_or_said_why_not():
    floors = map(apps.get_app_config, settings.FLOORS)
    ours = {model._meta.label for floor in floors for model in floor.get_models()}
    known = {one.model._meta.label for one in leaving.tables()} | {"workspaces.Workspace"}

    assert ours - known - leaving.NOT_EXPORTED.keys() == set()
    assert leaving.NOT_EXPORTED.keys() - ours == set()


def deleted(tmp_path, **said):
    given = {"typed": "acme", "reason": "contract ended", "receipt": tmp_path / "receipt.json"}
    call_command("delete_workspace", "acme", **given | said)
    return tmp_path / "receipt.json"


def test_a_deleted_workspace_leaves_a_receipt_and_a_log_without_payloads(
    acted, acme, ada, client, agent, tmp_path, capsys
):
    other = Workspace.objects.create(slug="other", name="Other")
    AgentRow.objects.create(workspace=other, name="elsewhere")

    receipt = deleted(tmp_path)

    key = tmp_path / "log.pub"
    key.write_text("\n".join(json.loads(receipt.read_text())["keys"]))
    assert main(["verify", str(receipt), "--key", str(key)]) == 0
    said = json.loads(receipt.read_text())["event"]["data"]
    assert said["deleted"]["rows"]["ledger.Run"] == 2
    client.force_login(ada)
    assert client.get("/w/acme/queue/").status_code == 404
    assert agent.begin(planned(key="k-9")).status_code == 401
    assert Workspace.objects.filter(slug="other").exists()
    findings = audit.audit_all(Workspace.objects.get(slug="acme"))
    assert [one for one in findings if not one.ok] == []


def test_nothing_of_it_is_left_but_what_is_kept_for_a_reason(acted, acme, tmp_path, capsys):
    deleted(tmp_path)

    left = {
        one.model._meta.label
        for one in leaving.tables()
        if one.model._default_manager.filter(**{one.path: acme}).exists()
    }
    assert left <= leaving.KEPT
    assert not Event.objects.filter(workspace=acme, data__isnull=False).exclude(
        type="workspace.changed"
    )
    everything = exported(tmp_path, capsys)
    text = b"".join(path.read_bytes() for path in everything.glob("*.*"))
    assert b"crm.update" not in text
    assert b"Ada" not in text


def test_an_agent_that_goes_on_talking_leaves_nothing_behind(acme, agent, processes, tmp_path):
    """A web process knows its key for a moment longer than there is one."""
    headers = {"authorization": f"Bearer {agent.token}"}
    url, is_known = processes.kept_web().url, threading.Event()

    def talks():
        with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
            for number in itertools.count():
                said = event("run.started", run=f"run_{number}", data={"request": "Mia"})
                answer = client.post("/api/v1/events", json=[said])
                is_known.set()
                if answer.status_code == UNAUTHORIZED:
                    return

    agent.send("run.started", "run_first")
    seal_all()
    talking = threading.Thread(target=talks)
    talking.start()
    is_known.wait(60)

    deleted(tmp_path)
    talking.join()

    assert not Run.objects.filter(workspace=acme).exists()
    told = Event.objects.filter(workspace=acme, data__isnull=False)
    assert [one.type for one in told] == ["workspace.changed"]


def test_a_deletion_that_broke_off_leaves_no_receipt_and_the_same_command_goes_on(
    acted, acme, ada, tmp_path, settings
):
    """A table of the operator's own holds a run fast."""
    teams.add(people.team(acme, "bosses", "view", "administer"), ada, by=None)
    entrance.invite(acme, "eli@example.com", acme.teams.all(), by=ada)
    company = LoginProvider.objects.create(workspace=acme, issuer="https://id.example", set_by=ada)
    assert providers.provider_of(company.provider_id) is not None
    settings.OIDC_TEAMS = ["deciders=acme/bosses"]
    with pytest.raises(CommandError, match="AMENDS_OIDC_TEAMS"):
        deleted(tmp_path)
    settings.OIDC_TEAMS = []
    with connections[owner_alias()].cursor() as cursor:
        cursor.execute("CREATE TABLE kept_by_us AS SELECT id FROM ledger_run LIMIT 1")
        cursor.execute("ALTER TABLE kept_by_us ADD FOREIGN KEY (id) REFERENCES ledger_run")
        try:
            with pytest.raises(IntegrityError):
                deleted(tmp_path)
            assert not (tmp_path / "receipt.json").exists()
            assert providers.provider_of(company.provider_id) is None, "it would let people in"
            assert not Invitation.objects.filter(withdrawn_at=None).exists()
        finally:
            cursor.execute("DROP TABLE kept_by_us")

    assert deleted(tmp_path).exists()


@pytest.fixture
def held_fast(acme):
    """The last event cannot be emptied, and the others go one by one."""
    last = Event.objects.filter(workspace=acme).order_by("-place").values_list("place", flat=True)
    with connections[owner_alias()].cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION holds_fast() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'held fast'; END $$"
        )
        cursor.execute(
            "CREATE TRIGGER held_fast BEFORE UPDATE ON ledger_event FOR EACH ROW"
            f" WHEN (OLD.place = {last[0]}) EXECUTE FUNCTION holds_fast()"
        )
        yield lambda: cursor.execute("DROP FUNCTION IF EXISTS holds_fast() CASCADE")
        cursor.execute("DROP FUNCTION IF EXISTS holds_fast() CASCADE")


def test_of_a_deletion_that_broke_off_among_the_events_every_emptied_one_is_accounted_for(
    acted, acme, held_fast, tmp_path, monkeypatch
):
    """The log of the workspace was never well again, and the receipt left out what went first."""
    monkeypatch.setattr(erasure, "EVENTS_AT_A_TIME", 1)
    count = Event.objects.filter(workspace=acme).count()
    with pytest.raises(DatabaseError, match="held fast"):
        deleted(tmp_path)
    assert Event.objects.filter(workspace=acme, data__isnull=True).exists()
    assert [one for one in audit.audit_all(acme) if not one.ok] == []

    held_fast()
    receipt = json.loads(deleted(tmp_path).read_text())

    assert [one for one in audit.audit_all(acme) if not one.ok] == []
    told = receipt["event"]["data"]["deleted"]
    assert told["events"] >= count
    assert told["rows"]["ledger.Run"] == 2, "that went at the first try"


def test_who_types_another_name_deletes_nothing(acted, acme, tmp_path):
    with pytest.raises(CommandError, match="Type “acme”"):
        deleted(tmp_path, typed="acme2")

    assert acme.agents.filter(keys__revoked_at=None).exists()
    assert not (tmp_path / "receipt.json").exists()


def test_a_receipt_for_which_there_is_no_room_is_not_left_half_written_and_can_be_had_again(
    acted, acme, tmp_path
):
    """It was found too late, as the file was closed; and the command then refused to write it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(CommandError, match=r"It is deleted, .*The same command .* large"):
            deleted(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []

    assert "keys" in json.loads(deleted(tmp_path).read_text())


def test_who_deletes_it_once_more_gets_the_same_receipt(acted, acme, tmp_path, capsys):
    first = json.loads(deleted(tmp_path).read_text())
    capsys.readouterr()

    deleted(tmp_path, receipt=tmp_path / "again.json", reason="once more")

    assert json.loads((tmp_path / "again.json").read_text())["event"] == first["event"]
    assert "earlier deletion" in capsys.readouterr().out
    assert Event.objects.filter(workspace=acme, data__has_key="deleted").count() == 1
