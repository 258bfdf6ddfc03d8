"""Events are sealed in order, proven offline by the client's own verifier, and heads never fork."""

import itertools
import json

import pytest
from django.core.management import call_command
from django.db import connection, transaction

from amends.proofs import LogKey as PublicKey
from amends.proofs import NotProven, verify
from ledger import audit, desk, logkeys, merkle, proofs, sealer, witness
from ledger.desk import plain_connection
from ledger.models import Event, Leaf, LogKey, TreeHead, Unsealed
from ledger.notes import Head
from tests.ledger.conftest import event, tell
from tests.ledger.test_pages import member


def public_keys(workspace):
    return [PublicKey.parse(text) for text in logkeys.published(workspace)]


def seal(workspace):
    return sealer.seal(workspace)


@pytest.fixture
def said(speaker, northwind):
    """Forty events sealed in three batches."""
    events = [event("run.started", run=f"run_{n}", data={"request": f"Nº {n}"}) for n in range(40)]
    for since, until in ((0, 1), (1, 24), (24, 40)):
        tell(speaker, *events[since:until])
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


def test_an_event_waits_unproven_until_it_is_sealed(speaker, northwind):
    one = event("run.started")
    tell(speaker, one)
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
        assert merkle.is_consistent(
            old.size, new.size, proof, bytes(old.root), bytes(new.root))  # fmt: skip


def test_a_key_is_rotated_and_old_proofs_stay_good(speaker, northwind, said, ada):
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
    assert merkle.is_consistent(
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
    witness._last.clear()


def sealed_and_committed(workspace, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        seal(workspace)


def test_a_log_that_went_back_starts_a_new_origin(
    speaker, northwind, remembering, django_capture_on_commit_callbacks
):
    tell(speaker, *(event("run.started", run=f"r{n}") for n in range(5)))
    sealed_and_committed(northwind, django_capture_on_commit_callbacks)
    last_good = TreeHead.objects.get()
    forget_the_last(northwind, 2)  # a standby that lagged was promoted
    witness._last.clear()

    tell(speaker, event("run.completed", run="r0"))
    sealed_and_committed(northwind, django_capture_on_commit_callbacks)

    head = TreeHead.objects.latest("pk")
    assert head.origin == f"{last_good.origin}/2"
    assert f"after {last_good.origin} 5 " in head.note
    assert LogKey.objects.filter(retired_at=None).count() == 1
    sealed_and_committed(northwind, django_capture_on_commit_callbacks)  # the event that says so
    assert proofs.newest_head(northwind).size == 5
    assert Head.of(proofs.newest_head(northwind).note).origin == head.origin


def forget_the_last(workspace, count):
    size = sealer.tree_size(workspace)
    Leaf.objects.filter(workspace=workspace, index__gte=size - count).delete()
    TreeHead.objects.filter(workspace=workspace).delete()


def test_the_desk_and_people_are_named_in_the_leaf(northwind, ada):
    by_engine = desk.say(northwind, "case.opened", data={"case": 1})
    by_ada = desk.say(northwind, "case.closed", data={"case": 1}, by=ada)
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


def test_a_tail_cut_off_while_nobody_looked_is_not_signed_over(speaker, northwind, said, settings):
    """Whoever cuts leaves off and starts the sealer anew: the heads in the database remember."""
    settings.AMENDS_HEADS_FOLDER = ""
    last_good = TreeHead.objects.latest("size")
    Leaf.objects.filter(workspace=northwind, index__gte=35).delete()
    witness._last.clear()

    tell(speaker, event("run.completed", run="run_0"))
    seal(northwind)

    head = TreeHead.objects.latest("pk")
    assert (head.origin, head.size) == (f"{last_good.origin}/2", 36)
    assert f"after {last_good.origin} 40 " in head.note
    (bad,) = (one for one in audit.audit(northwind) if not one.ok)
    assert bad.name == "One log from its beginning"
    assert last_good.origin in bad.words


def test_of_a_long_backlog_only_what_is_sealed_next_is_read(speaker, northwind):
    tell(speaker, *[event("run.started", run=f"run_{n}") for n in range(50)])
    with transaction.atomic():
        sealer.take_lock(northwind)
        cursor = plain_connection().execute(
            f"EXPLAIN {sealer.WAITING_EVENTS}", [northwind.pk, sealer.EVENTS_AT_A_TIME]
        )
        plan = "\n".join(line for (line,) in cursor.fetchall())

    assert "Index Scan using ledger_unsealed_pkey" in plan
    assert "Sort" not in plan
