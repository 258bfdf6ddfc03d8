"""Events are sealed in order, proven offline by the client's own verifier, and heads never fork."""

import io
import itertools
import json
import resource
from functools import partial
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from amends.protocol.proofs import LogKey as PublicKey
from amends.protocol.proofs import NotProven, leaf_hash, verify
from amends.protocol.vocabulary import EventType
from approvals.models import Pause
from bench.sizing import is_consistent
from ledger import audit, desk_events, logkeys, merkle, proofs, sealer
from ledger.append.events import RecordedBatch
from ledger.drivers import plain_connection
from ledger.merkle import ParsedHead
from ledger.models import Event, Leaf, LogKey, TreeHead, Unsealed
from tests.ledger.conftest import event, record_events
from tests.ledger.test_pages import member
from tests.worlds import kept


def public_keys(workspace):
    return [PublicKey.parse(text) for text in logkeys.published(workspace)]


def seal(workspace):
    return sealer.seal(workspace)


@pytest.fixture
@kept(in_turn=True)
def said(actor, northwind):
    """Forty events sealed in three batches."""
    events = [event("run.started", run=f"run_{n}", data={"request": f"Nº {n}"}) for n in range(40)]
    for since, until in ((0, 1), (1, 24), (24, 40)):
        record_events(actor, *events[since:until])
        assert seal(northwind) == until - since
    return events


def test_a_stranger_verifies_every_proof_offline(northwind, said):
    keys = public_keys(northwind)
    for n, one in enumerate(said):
        text = proofs.proof_of(northwind, one["id"])
        found = verify(text, keys)
        assert (found.index, found.size) == (n, 40)
        assert (found.leaf["event"], found.leaf["actor"]) == (one["id"], "agent:trip-desk")
        assert found.leaf["workspace"] == "northwind"


def test_a_download_proves_the_facts_and_one_changed_letter_does_not(northwind, said):
    document = proofs.download_of(northwind, said[7]["id"])
    assert verify(json.dumps(document), public_keys(northwind)).event["data"] == {"request": "Nº 7"}

    document["event"]["data"]["request"] = "Nº 8"
    with pytest.raises(NotProven):
        verify(json.dumps(document), public_keys(northwind))


def test_an_event_waits_unproven_until_it_is_sealed(actor, northwind):
    one = event("run.started")
    record_events(actor, one)
    assert proofs.proof_of(northwind, one["id"]) is None
    assert proofs.proof_of(northwind, "no-such-event") is None

    seal(northwind)
    assert not Unsealed.objects.exists()
    assert verify(proofs.proof_of(northwind, one["id"]), public_keys(northwind)).size == 1
    assert seal(northwind) == 0


def test_every_head_grew_out_of_the_one_before(northwind, said):
    heads = list(TreeHead.objects.order_by("size"))
    assert [head.size for head in heads] == [1, 24, 40]
    for old, new in itertools.pairwise(heads):
        proof = proofs.consistency(northwind, old.size, new.size)
        assert is_consistent(
            old.size, new.size, proof, bytes(old.root), bytes(new.root))  # fmt: skip


def test_a_key_is_rotated_and_old_proofs_stay_good(actor, northwind, said, ada):
    old = proofs.proof_of(northwind, said[0]["id"])
    logkeys.rotate(northwind, by=ada)
    seal(northwind)
    new = proofs.proof_of(northwind, said[0]["id"])

    new_key, old_key = public_keys(northwind)
    assert verify(old, [old_key]).size == 40
    assert verify(new, [new_key]).size == 41  # the rotation is on the record
    for proof, wrong in ((old, new_key), (new, old_key)):
        with pytest.raises(NotProven):
            verify(proof, [wrong])
    first, last = TreeHead.objects.earliest("size"), TreeHead.objects.latest("size")
    assert first.origin == last.origin  # one log, two keys
    path = proofs.consistency(northwind, first.size, last.size)
    assert is_consistent(
        first.size, last.size, path, bytes(first.root), bytes(last.root))  # fmt: skip
    assert all(finding.ok for finding in audit.audit(northwind))


def test_a_changed_row_gets_no_proof(northwind, said):
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ledger_event DISABLE TRIGGER USER")
        cursor.execute("UPDATE ledger_event SET digest = sha256('x') WHERE run = 'run_3'")
        cursor.execute("ALTER TABLE ledger_event ENABLE TRIGGER USER")
    with pytest.raises(proofs.Tampered):
        proofs.proof_of(northwind, said[3]["id"])


@pytest.fixture
def remembering(tmp_path, settings):
    settings.AMENDS_HEADS_FOLDER = str(tmp_path / "heads")
    sealer._last.clear()


def sealed_and_committed(workspace, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        seal(workspace)


def test_a_log_that_went_back_starts_a_new_origin(
    actor, northwind, remembering, django_capture_on_commit_callbacks
):
    record_events(actor, *(event("run.started", run=f"r{n}") for n in range(5)))
    sealed_and_committed(northwind, django_capture_on_commit_callbacks)
    last_good = TreeHead.objects.get()
    forget_the_last(northwind, 2)  # a standby that lagged was promoted
    sealer._last.clear()

    record_events(actor, event("run.completed", run="r0"))
    sealed_and_committed(northwind, django_capture_on_commit_callbacks)

    head = TreeHead.objects.latest("pk")
    assert head.origin == f"{last_good.origin}/2"
    assert f"after {last_good.origin} 5 " in head.note
    assert LogKey.objects.filter(retired_at=None).count() == 1
    sealed_and_committed(northwind, django_capture_on_commit_callbacks)  # what says so
    assert proofs.newest_head(northwind).size == 6  # and that everything is held
    assert ParsedHead.of(proofs.newest_head(northwind).note).origin == head.origin


def test_a_log_that_began_anew_and_was_forgotten_is_not_signed_over_either(
    actor, northwind, remembering, django_capture_on_commit_callbacks
):
    """The desk was restored twice from one backup: two logs had one name, and whoever had read the
    first up to a number went on behind it in the second.
    """
    record_events(actor, *(event("run.started", run=f"r{n}") for n in range(5)))
    sealed_and_committed(northwind, django_capture_on_commit_callbacks)
    last_good = TreeHead.objects.get()
    forgotten = sealer._path(f"{last_good.origin}/2")
    forgotten.write_text("what the first of them had signed")
    forget_the_last(northwind, 2)
    sealer._last.clear()

    sealer.look_back()

    assert TreeHead.objects.latest("pk").origin == f"{last_good.origin}/3"
    assert forgotten.read_text() == "what the first of them had signed"


def test_a_log_that_went_back_is_noticed_before_anything_is_sealed(
    actor, northwind, remembering, django_capture_on_commit_callbacks
):
    """The first act over an older database is no longer the one by which that is noticed."""
    record_events(actor, *(event("run.started", run=f"r{n}") for n in range(5)))
    sealed_and_committed(northwind, django_capture_on_commit_callbacks)
    last_good = TreeHead.objects.get()
    assert sealer.look_back() == 0
    forget_the_last(northwind, 2)
    sealer._last.clear()

    with django_capture_on_commit_callbacks(execute=True):
        assert sealer.look_back() == 1

    head = TreeHead.objects.latest("pk")
    assert (head.origin, head.size) == (f"{last_good.origin}/2", 5), "three, and two that say so"
    assert f"after {last_good.origin} 5 " in head.note
    assert "2 of 5 signed entries" in Pause.objects.get(workspace=northwind).reason
    assert sealer.look_back() == 0, "once"


@pytest.mark.parametrize("left", [0, 25])
def test_a_head_outside_that_nobody_can_read_holds_everything(
    actor, northwind, remembering, django_capture_on_commit_callbacks, left
):
    record_events(actor, event("run.started"))
    sealed_and_committed(northwind, django_capture_on_commit_callbacks)
    [kept] = Path(settings.AMENDS_HEADS_FOLDER).iterdir()
    kept.write_text(kept.read_text()[:left])
    assert sealer.look_back() == 0, "whoever signed it remembers it"
    sealer._last.clear()

    with django_capture_on_commit_callbacks(execute=True):
        assert sealer.look_back() == 1

    assert "cannot be read" in Pause.objects.get(workspace=northwind).reason
    assert TreeHead.objects.latest("pk").origin.endswith("/2")
    assert sealer.look_back() == 0, "once"


def test_a_head_for_which_there_is_no_room_outside_is_missed_until_it_is_kept(
    actor, northwind, remembering, django_capture_on_commit_callbacks
):
    record_events(actor, event("run.started"))
    sealed_and_committed(northwind, django_capture_on_commit_callbacks)
    [kept] = Path(settings.AMENDS_HEADS_FOLDER).iterdir()
    note = kept.read_text()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    record_events(actor, event("run.completed"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        sealed_and_committed(northwind, django_capture_on_commit_callbacks)
        for _ in range(2):  # nothing is sealed meanwhile, and /statusz tells of it all the same
            with pytest.raises(sealer.NotKept, match="AMENDS_HEADS_FOLDER: File too large"):
                sealer.look_back()
        with pytest.raises(CommandError, match=r"FOLDER: File too large\. Make room there"):
            call_command("prepare", stderr=io.StringIO())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [one.read_text() for one in Path(settings.AMENDS_HEADS_FOLDER).iterdir()] == [note]

    assert sealer.look_back() == 0
    assert kept.read_text() == proofs.newest_head(northwind).note


def forget_the_last(workspace, count):
    size = sealer.tree_size(workspace)
    Leaf.objects.filter(workspace=workspace, index__gte=size - count).delete()
    TreeHead.objects.filter(workspace=workspace).delete()


def test_the_desk_and_people_are_named_in_the_leaf(northwind, ada):
    by_engine = desk_events.record(northwind, EventType.CASE_OPENED, data={"case": 1})
    by_ada = desk_events.record(northwind, EventType.CASE_CLOSED, data={"case": 1}, by=ada)
    seal(northwind)
    keys = public_keys(northwind)
    assert verify(proofs.proof_of(northwind, by_engine), keys).leaf["actor"] == "desk:engine"
    assert verify(proofs.proof_of(northwind, by_ada), keys).leaf["actor"] == f"person:{ada.pk}"


def test_the_keys_are_printed_and_rotated_by_command(northwind, said, capsys):
    call_command("log_keys", "northwind")
    (before,) = capsys.readouterr().out.split()
    call_command("log_keys", "northwind", "--rotate")
    assert capsys.readouterr().out.split()[1:] == [before]


def test_an_administrator_rotates_the_key_on_the_page(client, northwind, said):
    alma = member(northwind, "alma", "view", "administer")
    vic = member(northwind, "vic", "view")
    page = "/w/northwind/ledger/verify/"
    client.force_login(vic)
    assert client.post(page, {"check": "rotate"}).status_code == 403

    client.force_login(alma)
    assert client.post(page, {"check": "rotate"}).status_code == 302
    assert len(logkeys.published(northwind)) == 2
    told = Event.objects.get(type="ledger.key_rotated")
    assert told.actor == str(alma.pk)
    assert told.data["public"] == logkeys.published(northwind)[0]


def test_a_tail_cut_off_while_nobody_looked_is_not_signed_over(actor, northwind, said, settings):
    """Whoever cuts leaves off and starts the sealer anew: the heads in the database remember."""
    settings.AMENDS_HEADS_FOLDER = ""
    last_good = TreeHead.objects.latest("size")
    Leaf.objects.filter(workspace=northwind, index__gte=35).delete()
    sealer._last.clear()

    record_events(actor, event("run.completed", run="run_0"))
    seal(northwind)

    head = TreeHead.objects.latest("pk")
    assert (head.origin, head.size) == (f"{last_good.origin}/2", 36)
    assert f"after {last_good.origin} 40 " in head.note
    bad, unlogged = (one for one in audit.audit(northwind) if not one.ok)
    assert bad.name == "One log from its beginning"
    assert last_good.origin in bad.words
    assert unlogged.words.startswith("5 are in none and wait for none: ")


def test_leaves_cut_off_below_nodes_that_stayed_are_not_signed_over(
    actor, northwind, said, settings
):
    """Of 48 leaves the inner nodes alone lead to the signed root: only the size tells."""
    settings.AMENDS_HEADS_FOLDER = ""
    record_events(actor, *(event("run.completed", run=f"run_{n}") for n in range(8)))
    seal(northwind)
    last_good = TreeHead.objects.latest("size")
    Leaf.objects.filter(workspace=northwind, index__gte=35).delete()
    sealer._last.clear()

    record_events(actor, event("run.completed", run="run_9"))
    seal(northwind)

    head = TreeHead.objects.latest("pk")
    assert (last_good.size, head.origin, head.size) == (48, f"{last_good.origin}/2", 36)


def test_of_a_long_backlog_only_what_is_sealed_next_is_read(actor, northwind):
    record_events(actor, *[event("run.started", run=f"run_{n}") for n in range(50)])
    with transaction.atomic():
        sealer.take_lock(northwind)
        cursor = plain_connection().execute(
            f"EXPLAIN {sealer.WAITING_EVENTS}", [northwind.pk, sealer.EVENTS_AT_A_TIME]
        )
        plan = "\n".join(line for (line,) in cursor.fetchall())

    assert "Index Scan using ledger_unsealed_pkey" in plan
    assert "Sort" not in plan


def rewritten(workspace, index):
    """The whole tree made anew with another leaf at one place, as who owns the database can."""
    rows = Leaf.objects.filter(workspace=workspace).order_by("index")
    hashes = [bytes(one.hash) for one in rows]
    hashes[index] = leaf_hash(b"what nobody said")
    growth = merkle.Growth(0, [])
    for one in hashes:
        growth.add(one)
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(
            "UPDATE ledger_leaf SET hash = %s WHERE workspace_id = %s AND index = %s",
            [hashes[index], workspace.pk, index],
        )
        for level, place, found in growth.fresh:
            cursor.execute(
                "UPDATE ledger_treenode SET hash = %s"
                " WHERE workspace_id = %s AND level = %s AND index = %s",
                [found, workspace.pk, level, place],
            )
        cursor.execute("SET session_replication_role = origin")
    return growth.root


@pytest.mark.parametrize("index", [0, 17, 39])
def test_a_tree_that_was_rewritten_in_itself_is_not_signed_over(actor, northwind, said, index):
    """Every node fits its leaves; only the head that was signed before does not."""
    witnessed = proofs.newest_head(northwind)
    assert rewritten(northwind, index) != bytes(witnessed.root)

    record_events(actor, event("run.started", run="next"))
    seal(northwind)

    head = proofs.newest_head(northwind)
    assert head.origin != witnessed.origin
    root = merkle.base64_text(bytes(witnessed.root))
    assert f"after {witnessed.origin} {witnessed.size} {root}" in head.note
    heads = TreeHead.objects.filter(origin=witnessed.origin).order_by("-size")
    assert heads.first() == witnessed
    assert not all(one.ok for one in audit.audit(northwind))


def past_every_guard(statement, *given):
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(statement, given)
        cursor.execute("SET session_replication_role = origin")


def found_wrong(workspace):
    return [one.name for one in audit.audit(workspace) if not one.ok]


def test_an_older_head_that_forks_off_is_named(northwind, said):
    past_every_guard("UPDATE ledger_treehead SET root = sha256('x') WHERE size = 24")

    assert found_wrong(northwind) == ["Older heads", "Every head is of this tree"]


def test_a_head_that_no_key_of_the_log_has_signed_is_named(northwind, said):
    head = proofs.newest_head(northwind)
    text = head.note.partition("\n\n")[0] + "\n"
    forged = merkle.Signer(head.origin, Ed25519PrivateKey.generate()).sign(text)
    past_every_guard("UPDATE ledger_treehead SET note = %s WHERE size = 40", forged)

    assert found_wrong(northwind) == ["Signature of the newest head"]


def test_a_head_under_the_signature_of_another_is_named(northwind, said):
    signed = TreeHead.objects.get(workspace=northwind, size=24).note
    past_every_guard("UPDATE ledger_treehead SET note = %s WHERE size = 40", signed)

    assert found_wrong(northwind) == ["Signature of the newest head"]


def test_a_tail_of_which_only_the_file_knows_is_missed(northwind, said, remembering):
    """Cut off with its head: what is left is a whole log, and every part of it fits."""
    sealer.remember(proofs.newest_head(northwind).note, logkeys.signer(northwind))
    past_every_guard("DELETE FROM ledger_leaf WHERE index >= 24")
    past_every_guard("DELETE FROM ledger_treehead WHERE size = 40")

    assert found_wrong(northwind) == ["Nothing cut off the end", "Every event is in the log"]


def test_what_is_sealed_while_the_check_looks_is_not_missed(actor, northwind, said, remembering):
    sealed: list[RecordedBatch] = []

    def seal_behind_it(execute, sql, params, many, context):
        found = execute(sql, params, many, context)
        if not sealed and "FROM ledger_leaf WHERE workspace_id" in sql:
            sealed.append(record_events(actor, event("run.started", run="late")))
            seal(northwind)
            sealer.remember(proofs.newest_head(northwind).note, logkeys.signer(northwind))
        return found

    with connection.execute_wrapper(seal_behind_it):
        assert found_wrong(northwind) == []

    assert sealed


def test_of_two_sealers_the_slower_one_keeps_no_older_head(actor, northwind, said, remembering):
    """A head is written down after its commit, when another sealer may have signed the next."""
    signer, slower = logkeys.signer(northwind), proofs.newest_head(northwind).note
    record_events(actor, event("run.started", run="late"))
    seal(northwind)
    sealer.remember(proofs.newest_head(northwind).note, signer)

    sealer.remember(slower, signer)

    assert sealer.remembered(signer.origin).size == 41


def test_a_salt_that_was_taken_away_from_a_payload_is_found(northwind, said):
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(
            "UPDATE ledger_event SET salt = NULL, data = %s WHERE event_id = %s",
            [json.dumps({"request": "Nº 8"}), said[7]["id"]],
        )
        cursor.execute("SET session_replication_role = origin")

    assert not proofs.is_as_digested(proofs.event_of(northwind, said[7]["id"]))
    bad = [one for one in audit.audit(northwind) if not one.ok]
    assert [one.name for one in bad] == ["Every payload is as it was digested"]
    assert proofs.download_of(northwind, said[7]["id"]) is None


def test_a_leaf_says_with_which_key_it_came_and_whether_that_was_trusted(northwind, said):
    leaf = verify(proofs.proof_of(northwind, said[3]["id"]), public_keys(northwind)).leaf

    assert (leaf["v"], leaf["key"], leaf["trusted"]) == (2, "0123456789", False)


@pytest.mark.parametrize("change", ["trusted = true", "key_prefix = 'another'"])
def test_who_makes_an_event_trusted_afterwards_is_found_out(northwind, said, change):
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(
            f"UPDATE ledger_event SET {change} WHERE event_id = %s",
            [said[3]["id"]],
        )
        cursor.execute("SET session_replication_role = origin")

    with pytest.raises(proofs.Tampered):
        proofs.proof_of(northwind, said[3]["id"])
    bad = [one for one in audit.audit_all(northwind) if not one.ok]
    assert [one.name for one in bad] == ["Every entry is as it was sealed"]


def test_leaves_and_proofs_of_an_older_desk_go_on_verifying(
    actor, northwind, monkeypatch, tmp_path
):
    """An older desk sealed the first, this one the second; the saved proof is older than both."""
    old, new = event("run.started", run="old"), event("run.started", run="new")
    record_events(actor, old)
    monkeypatch.setattr(sealer, "leaf_bytes", partial(proofs.leaf_bytes, version=1))
    seal(northwind)
    monkeypatch.undo()
    saved = proofs.proof_of(northwind, old["id"])
    downloaded = json.dumps(proofs.download_of(northwind, old["id"]))
    record_events(actor, new)
    seal(northwind)

    keys = public_keys(northwind)
    assert verify(saved, keys).leaf["v"] == 1
    assert set(verify(saved, keys).leaf) == {
        "v", "workspace", "event", "type", "received", "actor", "digest",
    }  # fmt: skip
    assert verify(downloaded, keys).event["run"] == "old"
    for one, version in ((old, 1), (new, 2)):
        assert verify(proofs.proof_of(northwind, one["id"]), keys).leaf["v"] == version
    for look in (audit.audit, audit.audit_all):
        assert all(one.ok for one in look(northwind)), look(northwind)
