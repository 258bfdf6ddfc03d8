"""Eve asks to be forgotten: her payloads go for good, the log and every proof of it stay."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import msgspec.inspect as mi
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from amends.protocol.proofs import LogKey, NotProven, verify
from ledger import audit, erasure, logkeys, proofs, schemas, sealer
from ledger.desk_events import take_in
from ledger.models import (
    Action,
    Blob,
    Checkpoint,
    Effect,
    Erasure,
    Event,
    EventConflict,
    EventKey,
    Run,
)
from ledger.parsed_events import Actor
from ledger.replaying import rebuild
from tests.ledger.conftest import event, record_events
from tests.ledger.test_pages import member
from tests.worlds import kept
from workspaces import erasure_registry
from workspaces.models import Act, Agent, Workspace

CANARY = "Eve Canary"
EVE = {"id": "cust_eve", "name": CANARY, "contact": "eve.canary@example.com"}
BOB = {"id": "cust_bob", "name": "Bob"}


def act(run, action, person=None, **data):
    target = {"type": "seat", "id": f"{CANARY} 12A"}
    effect = {"target": target, "before": {"who": CANARY}, "after": {"who": CANARY, "n": 2},
              "summary": f"moved {CANARY}", "reversibility": "exact"}  # fmt: skip
    effect |= {"affects": person} if person else {}
    return [
        event("action.planned", run=run, action=action, n=1, data={
            "tool": "move", "targets": [target], "args": {"to": CANARY}, "key": f"key-{action}",
            "intent": {"reason": CANARY}, "before": [{"who": CANARY}]}),
        event("action.succeeded", run=run, action=action, n=1,
              data={"attempt": "t1", "result": {"for": CANARY}, "effects": [effect]}),
    ]  # fmt: skip


@pytest.fixture
@kept(in_turn=True)
def said(actor, northwind):
    """Eve's own run; Bob's run, of which one action is on what is Eve's; Carl's."""
    events = [
        event("run.started", run="eve", data={"request": f"{CANARY} moves", "on_behalf_of": EVE}),
        *act("eve", "a1"),
        event("run.checkpoint", run="eve", data={"name": "moved", "state": {"who": CANARY}}),
        event("run.failed", run="eve", data={"error": {"type": "E", "message": CANARY}}),
        event("run.started", run="bob", data={"request": "Bob moves", "on_behalf_of": BOB}),
        *act("bob", "b1", EVE),
        event("action.planned", run="bob", action="b2", n=2, data={"tool": "pay", "args": 7}),
        event("run.completed", run="bob", data={"summary": "done"}),
    ]
    record_events(actor, *events)
    Run.objects.update(lease_until=None)
    sealer.seal(northwind)
    return events


def keys(workspace):
    return [LogKey.parse(text) for text in logkeys.published(workspace)]


def tables_that_say(word):
    """Every table of the database with a row in which the word stands."""
    found = {}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT format('%I', relname) FROM pg_class WHERE relkind IN ('r', 'p') AND NOT"
            " relispartition AND relnamespace = 'public'::regnamespace"
        )
        for (table,) in cursor.fetchall():
            cursor.execute(f"SELECT count(*) FROM {table} t WHERE t::text LIKE %s", [f"%{word}%"])
            if count := cursor.fetchone()[0]:
                found[table] = count
    return found


def test_nothing_of_her_is_left_and_others_keep_theirs(said, northwind, ada):
    assert {"ledger_event", "ledger_run", "ledger_effect"} <= tables_that_say("Canary").keys()

    done = erasure.erase(northwind, person="cust_eve", by=ada, reason="she asked on 22 November")

    assert tables_that_say("Canary") == tables_that_say("cust_eve") == {}
    assert (done.run_count, done.event_count) == (1, 7)
    eve, bob = Run.objects.get(run="eve"), Run.objects.get(run="bob")
    assert (eve.request, eve.customer, eve.state) == ("⟦erased⟧", "⟦erased⟧", "failed")
    assert eve.forgotten_at
    assert (bob.request, bob.customer, bob.forgotten_at) == ("Bob moves", "cust_bob", None)
    assert Action.objects.get(action="b2").args == 7
    moved = Action.objects.get(action="b1")
    assert (moved.tool, moved.state, moved.args) == ("move", "succeeded", None)
    assert Act.objects.get(type="ledger.erased").person == ada
    assert erasure.erased_before(northwind, "cust_eve") == [done]
    assert erasure.erased_before(northwind, "cust_bob") == []


def test_no_digest_is_left_by_which_her_words_could_be_guessed(said, northwind, actor):
    """A leaf has a salt, which goes; the digest that knows a repeated event again has none."""
    hers = EventKey.objects.filter(event_id__in=[one["id"] for one in said if one["run"] == "eve"])
    bobs = EventKey.objects.filter(event_id=said[-1]["id"])
    other = [one | {"data": {"summary": "otherwise"}} for one in (said[0], said[-1])]
    record_events(actor, *other)
    assert all(len(bytes(one.content)) == 32 for one in (*hers, *bobs))

    erasure.erase(northwind, person="cust_eve", by=None)

    assert {bytes(one.content) for one in hers.all()} == {b""}
    left = {one.event_id: bytes(one.content) for one in EventConflict.objects.all()}
    assert [len(left[one["id"]]) for one in other] == [0, 32]
    assert len(bytes(bobs.get().content)) == 32


def test_an_emptied_snapshot_is_never_taken_for_a_thing_that_was_not_there(said, northwind):
    erasure.erase(northwind, person="cust_eve", by=None)
    assert not Effect.objects.filter(has_before=True).exists()
    assert not Effect.objects.filter(has_after=True).exists()


def test_old_and_new_proofs_verify_offline_after_it(said, northwind, actor):
    old = {one["id"]: proofs.proof_of(northwind, one["id"]) for one in said}
    saved = json.dumps(proofs.download_of(northwind, said[0]["id"]))
    heads = proofs.newest_head(northwind).size

    erasure.erase(northwind, person="cust_eve", by=None)
    record_events(actor, event("run.started", run="later"))
    sealer.seal(northwind)

    for one in said:
        assert verify(old[one["id"]], keys(northwind)).size == heads
        new = proofs.proof_of(northwind, one["id"])
        assert verify(new, keys(northwind)).leaf == verify(old[one["id"]], keys(northwind)).leaf
    assert verify(saved, keys(northwind)).event["data"]["on_behalf_of"] == EVE  # what she kept
    assert proofs.download_of(northwind, said[0]["id"]) is None
    assert proofs.consistency(northwind, heads, heads + 1)
    assert all(finding.ok for finding in audit.audit(northwind)), audit.audit(northwind)


def test_who_invents_a_payload_for_an_emptied_event_is_found_out(said, northwind):
    document = proofs.download_of(northwind, said[0]["id"])
    erasure.erase(northwind, person="cust_eve", by=None)
    document["event"]["data"]["request"] = "I asked for a refund"
    with pytest.raises(NotProven):
        verify(json.dumps(document), keys(northwind))


def test_who_empties_a_payload_without_an_erasure_is_found_out(said, northwind):
    erasure.erase(northwind, person="cust_eve", by=None)
    assert all(finding.ok for finding in audit.audit_all(northwind)), audit.audit_all(northwind)

    with connection.cursor() as cursor:  # by the owner of the tables, past every guard
        cursor.execute("SET amends.erasing = 'yes'")
        cursor.execute("UPDATE ledger_event SET data = NULL, salt = NULL WHERE action = 'b2'")
        cursor.execute("RESET amends.erasing")

    for look in (audit.audit, audit.audit_all):
        (bad,) = (finding for finding in look(northwind) if not finding.ok)
        assert bad.name == "Every emptied payload was erased by somebody"


def test_what_was_erased_before_its_seal_is_sealed_all_the_same(actor, northwind):
    one = event("run.started", run="eve", data={"on_behalf_of": EVE})
    record_events(actor, one)
    Run.objects.update(lease_until=None)
    erasure.erase(northwind, person="cust_eve", by=None)
    sealer.seal(northwind)

    assert verify(proofs.proof_of(northwind, one["id"]), keys(northwind)).leaf["event"] == one["id"]


def test_nothing_comes_back(said, northwind, actor):
    erasure.erase(northwind, person="cust_eve", by=None)
    before = Action.objects.filter(action="b1").values().get()

    (late,) = record_events(
        actor, event("run.completed", run="eve", data={"summary": CANARY})
    ).results
    assert (late.status, late.problem.status) == ("rejected", 410)
    of_bobs_run = next(one for one in said if one.get("action") == "b1")
    for one in (said[0], of_bobs_run):
        (again,) = record_events(actor, one).results
        assert (again.status, again.problem.status) == ("rejected", 410)
    assert not EventConflict.objects.exists(), "a digest without a salt"
    told = {"ok": False, "checks": [{"name": CANARY, "expected": 1, "actual": 2, "ok": False}]}
    about_her = event("action.verified", run="bob", action="b1", data=told)
    other = event("action.verified", run="bob", action="b2", data={"ok": True})
    of_hers, of_bobs = record_events(actor, about_her, other).results
    assert (of_hers.status, of_hers.problem.status) == ("rejected", 410)
    assert of_bobs.status == "accepted"
    assert not EventKey.objects.filter(event_id=about_her["id"]).exists()
    assert tables_that_say("Canary") == {}
    sum(rebuild(northwind.pk))

    assert Action.objects.filter(action="b1").values().get() == before
    assert Run.objects.get(run="eve").request == "⟦erased⟧"
    for nobody in ("cust_eve", erasure_registry.ERASED):
        with pytest.raises(erasure.NothingFound):
            erasure.ask(northwind, person=nobody, by=None)


def test_a_snapshot_that_came_first_is_emptied_and_others_stay(actor, northwind):
    """Another one of the workspace, and the same one of another workspace."""
    elsewhere = Workspace.objects.create(slug="southwind", name="Southwind")
    for workspace, letter in ((northwind, "a"), (northwind, "b"), (elsewhere, "a")):
        Blob.objects.create(
            workspace=workspace, sha256=letter * 64, content=b"Canary", byte_count=6
        )
    record_events(actor, event("run.started", run="eve", data={"on_behalf_of": EVE}),
         event("action.planned", run="eve", action="a", data={
             "tool": "t", "before": [{"ref": f"sha256:{'a' * 64}"}]}))  # fmt: skip
    Run.objects.update(lease_until=None)

    erasure.erase(northwind, person="cust_eve", by=None)

    left = [one.content and bytes(one.content) for one in Blob.objects.order_by("pk")]
    assert left == [None, b"Canary", b"Canary"]


@pytest.mark.parametrize("where", ["planned", "before", "after"])
def test_a_snapshot_by_which_somebody_else_is_undone_stays_until_they_go(actor, northwind, where):
    Blob.objects.create(workspace=northwind, sha256="a" * 64, content=b"shared", byte_count=6)
    ref, target = {"ref": f"sha256:{'a' * 64}"}, {"type": "list", "id": "1"}
    for who, run, place in ((EVE, "eve", "after"), (BOB, "bob", where)):
        planned = {"tool": "t", "target": target} | ({"before": ref} if place == "planned" else {})
        effect = {"target": target} | ({} if place == "planned" else {place: ref})
        record_events(
            actor,
            event("run.started", run=run, data={"on_behalf_of": who}),
            event("action.planned", run=run, action="a", data=planned),
            event("action.succeeded", run=run, action="a", data={"effects": [effect]}),
        )
    Run.objects.update(lease_until=None)

    erasure.erase(northwind, person="cust_eve", by=None)
    assert bytes(Blob.objects.get().content) == b"shared"
    erasure.erase(northwind, person="cust_bob", by=None)
    assert Blob.objects.get().content is None


def test_what_is_called_a_reference_may_be_of_any_length(actor, northwind):
    """An index takes no more than a third of a page."""
    digests = (hashlib.sha256(bytes([number])).hexdigest() for number in range(200))
    long = {"ref": f"sha256:{''.join(digests)}"}
    effect = {"target": {"type": "list", "id": "1"}, "before": long, "after": long}
    record_events(
        actor,
        event("run.started"),
        event("action.planned", action="a", data={"tool": "t"}),
        event("action.succeeded", action="a", data={"effects": [effect]}),
    )
    assert Effect.objects.get().before == long


def test_a_run_whose_agent_still_works_is_left_alone(actor, northwind):
    record_events(actor, event("run.started", run="eve", data={"on_behalf_of": EVE}))
    with pytest.raises(erasure.StillWorkedOn, match="eve"):
        erasure.erase(northwind, person="cust_eve", by=None)
    assert Event.objects.get().data is not None
    assert not Erasure.objects.exists()


def test_the_command_shows_first_and_then_does_it(said, capsys, northwind):
    call_command("erase", "northwind", "--person", "cust_eve")
    assert "1 runs and 1 actions" in capsys.readouterr().out
    assert not Erasure.objects.exists()

    call_command("erase", "northwind", "--person", "cust_eve", "--yes")
    assert Erasure.objects.get().event_count == 7
    with pytest.raises(CommandError, match="Nothing here"):
        call_command("erase", "northwind", "--person", "cust_eve", "--yes")
    with pytest.raises(CommandError, match="no workspace"):
        call_command("erase", "southwind", "--person", "cust_eve")


@pytest.fixture
@kept
def alma(northwind):
    return member(northwind, "alma", "view", "administer")


@pytest.mark.usefixtures("as_the_owner")
def test_an_administrator_looks_then_erases_and_the_registry_tells(said, client, alma, northwind):
    client.force_login(alma)
    page = "/w/northwind/settings/kept/"
    assert "Nobody was erased" in client.get(page).text

    shown = client.post(page, {"person": "cust_eve", "act": "look"})
    assert "Erase for good" in shown.text
    assert not Erasure.objects.exists()
    done = client.post(page, {"person": "cust_eve", "reason": "her letter", "act": "erase"})
    assert "7 events of 1 run are empty" in done.text
    assert "her letter" in client.get(page).text

    again = client.post(page, {"person": "cust_eve", "act": "look"})
    assert "was erased before" in again.text
    assert client.post(page, {"person": "cust_eve", "act": "erase"}).status_code == 409
    assert client.post(page, {"person": ""}).status_code == 422
    take_in()
    assert "Ledger erased" in client.get("/w/northwind/audit/", {"kind": "kept"}).text


def test_only_administrators_see_it(said, client, northwind):
    vic = member(northwind, "vic", "view", "view_sensitive", "recover", "approve")
    client.force_login(vic)
    assert client.get("/w/northwind/settings/kept/").status_code == 403
    assert client.post("/w/northwind/settings/kept/", {"person": "cust_eve"}).status_code == 403


def test_a_line_of_the_audit_leads_to_its_entry(said, client, alma, northwind):
    erasure.erase(northwind, person="cust_eve", by=alma)
    take_in()
    client.force_login(alma)
    (line,) = client.get("/w/northwind/audit/").context["acts"]
    assert client.get(line["entry_url"]).status_code == 200


# What an agent sends as a name of its own, by which its runs and calls go on being found.
IDS = frozenset({
    "agent", "model", "tool", "key", "op", "attempt", "failed_action", "from", "trace", "type",
})  # fmt: skip


def filled(kind):
    """A value of a type of the wire with the canary wherever a sender is free to write."""
    if isinstance(kind, mi.StructType):
        return {
            one.encode_name: value
            for one in kind.fields
            if one.encode_name not in IDS | {"on_behalf_of", "affects", "directive"}
            and (value := filled(one.type)) is not None
        } | {one.encode_name: "t" for one in kind.fields if one.required and one.name in IDS}
    if isinstance(kind, mi.UnionType):
        return next((filled(one) for one in kind.types if not isinstance(one, mi.NoneType)), None)
    write: dict[type[Any], Callable[[], Any]] = {
        mi.ListType: lambda: [filled(kind.item_type)],
        mi.DictType: lambda: {CANARY: CANARY},
        mi.LiteralType: lambda: kind.values[-1],
        mi.AnyType: lambda: {"who": CANARY},
        mi.StrType: lambda: CANARY,
        mi.BoolType: lambda: True,
    }
    how = write.get(type(kind))
    return how() if how else None


def test_whatever_an_agent_may_write_of_her_goes(actor, northwind):
    """Every member of every event, as the wire declares them; what is added later, too."""
    at = {"run.started": {"on_behalf_of": EVE}, "action.succeeded": {"attempt": "t1"}}
    for type_, schema in schemas.AGENT_TYPES.items():
        data = filled(mi.type_info(schema)) | at.get(type_, {})
        data = {
            name: one for name, one in data.items() if name not in schemas.RESERVED.get(type_, ())
        }
        data |= {"attempt": "t2"} if type_ == "action.failed" else {}
        of: dict[str, Any] = {"action": "a1", "n": 1} if type_.startswith("action.") else {}
        (answer,) = record_events(actor, event(type_, run="eve", data=data, **of)).results
        assert answer.status == "accepted", (type_, answer)
    Run.objects.update(lease_until=None, state="failed")
    before = tables_that_say("Canary")
    assert {"ledger_run", "ledger_checkpoint", "ledger_action", "ledger_effect"} <= before.keys()
    assert Checkpoint.objects.get().name == CANARY

    erasure.erase(northwind, person="cust_eve", by=None)

    assert tables_that_say("Canary") == tables_that_say("cust_eve") == {}


def test_the_same_customer_in_another_workspace_keeps_everything(said, actor, northwind, ada):
    elsewhere = Workspace.objects.create(slug="southwind", name="Southwind")
    agent = Agent.objects.create(workspace=elsewhere, name="desk", owner=ada)
    theirs = Actor(elsewhere.pk, elsewhere.slug, "agent", agent.name, agent.pk, "0123456789")
    record_events(
        theirs,
        event("run.started", run="eve", data={"request": f"{CANARY} flies", "on_behalf_of": EVE}),
        *act("eve", "a1", EVE),
        event("run.completed", run="eve", data={}),
    )
    Run.objects.update(lease_until=None)
    here = Event.objects.filter(workspace=northwind, run="eve").count()

    done = erasure.erase(northwind, person="cust_eve", by=ada)
    erasure.erase(northwind, runs=["bob"], by=ada)

    assert done.run_count == 1
    assert Event.objects.filter(workspace=northwind, run="eve", data__isnull=True).count() == here
    kept = Run.objects.get(workspace=elsewhere, run="eve")
    assert (kept.request, kept.customer, kept.forgotten_at) == (
        f"{CANARY} flies", "cust_eve", None,
    )  # fmt: skip
    assert not Event.objects.filter(workspace=elsewhere, data__isnull=True).exists()
    assert Effect.objects.get(workspace=elsewhere).before == {"who": CANARY}
    assert Action.objects.get(run=kept).args == {"to": CANARY}
    assert erasure.erased_before(elsewhere, "cust_eve") == []
    with pytest.raises(erasure.NothingFound):
        erasure.erase(elsewhere, runs=["bob"], by=ada)
