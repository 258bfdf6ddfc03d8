"""The record's pages: runs, one run step by step, the ledger, one event, the log checked."""

import hashlib
import json
from contextlib import contextmanager
from urllib.parse import quote

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.urls import reverse

from amends.protocol.vocabulary import EventType
from ledger import audit, desk_events, erasure, proofs, sealer
from ledger.models import AuditRound, Run
from tests.ledger.conftest import event, record_events
from tests.worlds import kept
from workspaces import keys, teams
from workspaces.models import Act, User, Workspace


@pytest.fixture
@kept
def sue(northwind):
    """She may see everything."""
    return member(northwind, "sue", "view", "view_sensitive")


@pytest.fixture
@kept
def vic(northwind):
    return member(northwind, "vic", "view")


def member(workspace, name, *may):
    person = User.objects.create_user(f"{name}@northwind.example", name=name.capitalize())
    teams.add(teams.create(workspace, name, by=None, may=may), person, by=None)
    return person


@pytest.fixture
@kept(in_turn=True)
def trip(actor, northwind):
    said = [
        event("run.started", data={"request": "Move my \u202eflight", "goal": "be in Lisbon"}),
        event("action.planned", action="a/1", n=1, data={
            "tool": "update_flight", "targets": [{"type": "flight", "id": "F1"}],
            "args": {"to": "LIS"}, "before": [{"to": "OPO", "seat": 3}]}),
        event("action.succeeded", action="a/1", n=1, data={
            "effects": [{"target": {"type": "flight", "id": "F1"}, "after": {"to": "LIS"},
                         "reversibility": "exact"}]}),
        event("run.checkpoint", n=2, data={"name": "flights_moved"}),
    ]  # fmt: skip
    record_events(actor, *said)
    sealer.seal(northwind)
    return said


def get(client, person, path, **query):
    client.force_login(person)
    return client.get(f"/w/northwind/{path}", query)


def test_runs_are_listed_and_found(client, vic, trip, actor):
    record_events(actor, *(event("run.started", run=f"more_{n}") for n in range(60)))
    first = get(client, vic, "runs/")
    assert first.status_code == 200
    assert first.text.count("<tr data-id") == 50
    second = client.get(first.context["pager"]["next"])
    assert second.text.count("<tr data-id") == 11
    assert "Move my <mark" in second.text  # what hides is shown
    assert get(client, vic, "runs/", q="run_1")["location"] == "/w/northwind/runs/run_1/"
    assert "No run fits" in get(client, vic, "runs/", q="nothing").text
    assert get(client, vic, "runs/", state="failed").text.count("<tr data-id") == 0
    assert get(client, vic, "runs/", after="x_9").status_code == 200


def test_a_run_is_read_back_step_by_step(client, vic, trip):
    last = get(client, vic, "runs/run_1/")
    assert "Known after step 4 of 4" in last.text
    assert "Reported done" in last.text
    planned = get(client, vic, "runs/run_1/", step=2)
    assert "Known after step 2 of 4" in planned.text
    assert "Planned" in planned.text
    assert "Reported done" not in planned.text
    assert get(client, vic, "runs/run_1/", step=999).status_code == 200
    assert get(client, vic, "runs/nobody/").status_code == 404


@pytest.mark.parametrize(("ok", "said"), [(True, "Check passed"), (False, "Check failed")])
def test_each_step_names_the_tool_and_says_how_a_check_went(client, vic, trip, actor, ok, said):
    record_events(actor, event("action.verified", action="a/1", n=1, data={"ok": ok}))

    page = get(client, vic, "runs/run_1/")

    steps = [(step["words"], step["what"]) for step in page.context["replay"]["steps"]]
    assert steps[1:] == [
        ("Planned", "update_flight"),
        ("Succeeded", "update_flight"),
        ("Checkpoint", "flights_moved"),
        (said, "update_flight"),
    ]
    (action,) = page.context["replay"]["actions"]
    assert (action["state"], action["check"]) == ("succeeded", "ok" if ok else "failed")
    assert page.text.count(said) == 3  # of the action, the step on which we stand, and in the list
    earlier = get(client, vic, "runs/run_1/", step=4).context["replay"]
    assert earlier["actions"][0]["check"] == ""


def test_payloads_are_revealed_to_those_who_may_and_it_is_recorded(client, vic, sue, trip):
    assert "OPO" not in get(client, vic, "runs/run_1/").text
    assert client.post("/w/northwind/reveal/run_1/").status_code == 403
    assert "OPO" not in get(client, sue, "runs/run_1/").text

    shown = client.post("/w/northwind/reveal/run_1/")
    assert "OPO" in shown.text
    assert Act.objects.get(type="payload.revealed").person == sue


def test_the_ledger_lists_everything_and_one_event_has_its_proof(
    client, sue, trip, northwind, actor
):
    desk_events.record(northwind, EventType.CASE_OPENED, run="run_1", by=sue, data={"case": 1})
    listed = get(client, sue, "ledger/")
    assert listed.text.count("<tr data-id") == 5
    assert "Sue" in listed.text
    actions = get(client, sue, "ledger/", kind="action")
    assert actions.text.count("<tr data-id") == 2
    assert {row["tool"] for row in actions.context["rows"]} == {"update_flight"}
    assert get(client, sue, "ledger/", after="1").status_code == 200
    record_events(actor, event("run.checkpoint", data={"name": "paid"}))
    assert "Checkpoint “paid”" in get(client, sue, "ledger/", kind="run").text
    assert "Checkpoint “paid”".encode() in get(client, sue, "ledger/", format="csv").getvalue()

    sealed = get(client, sue, f"ledger/{trip[1]['id']}/")
    assert "Entry <b>1</b> of 4" in sealed.text
    assert "LIS" not in sealed.text
    assert "LIS" in client.post(f"/w/northwind/ledger/reveal/{trip[1]['id']}/").text
    proof = get(client, sue, f"ledger/proof/{trip[1]['id']}/")
    assert proof.text == proofs.proof_of(northwind, trip[1]["id"])
    facts = f"/w/northwind/ledger/download/{trip[1]['id']}/"
    assert facts in sealed.text
    assert client.get(facts).status_code == 405  # a prefetch or a scanner leaves no act behind
    revealed = Act.objects.filter(type="payload.revealed").count()
    assert client.post(facts).json()["event"]["n"] == 1
    assert Act.objects.filter(type="payload.revealed").count() == revealed + 1
    assert get(client, sue, "ledger/none/").status_code == 404


def test_events_and_runs_are_found_whatever_an_agent_calls_them(
    client, sue, trip, actor, northwind
):
    """Each has a page, a proof and facts of its own, beside an event `x` and a run `x`."""
    oddly = ("verify", "x/proof", "snapshots/x", "event/x", "x?y#z%2e")
    for name in ("x", *oddly):
        record_events(
            actor,
            event("run.started", id=name, run=name),
            event("run.started", id=f"of/{name}", run=f"{name}/reveal"),
        )
    sealer.seal(northwind)
    listed = {one["run"]: one["url"] for one in get(client, sue, "ledger/").context["rows"]}
    _, token = keys.create_token(northwind, by=sue, name="script")
    headers = {"authorization": f"Bearer {token}"}

    for odd in oddly:
        assert client.get(listed[odd]).context["event"]["id"] == odd
        proof = proofs.proof_of(northwind, odd)
        assert client.get(reverse("ledger:proof", args=["northwind", odd])).text == proof
        facts = client.post(reverse("ledger:download", args=["northwind", odd])).json()
        assert facts["proof"] == proof
        for run in (odd, f"{odd}/reveal"):
            address = reverse("ledger:run", args=["northwind", run])
            assert client.get(address).context["run"]["run"] == run
        of_api, quoted = "/api/v1/ledger/proof/", quote(odd, safe="")
        assert client.get(f"{of_api}{quoted}", headers=headers).text == proof
        assert client.get(f"/api/v1/runs/{quoted}", headers=headers).json()["run"] == odd


def test_an_event_of_another_workspace_is_none_here(client, trip):
    southwind = Workspace.objects.create(slug="southwind", name="Southwind")
    client.force_login(member(southwind, "dan", "view", "view_sensitive"))
    there, name = "/w/southwind/ledger/", trip[0]["id"]

    looked = [client.get(f"{there}{one}{name}/") for one in ("", "event/", "proof/")]
    taken = [client.post(f"{there}{one}{name}/") for one in ("reveal/", "download/")]

    assert [one.status_code for one in (*looked, *taken)] == [404] * 5


def test_a_clock_far_off_is_said_on_the_page(client, vic, actor):
    said = event("run.started", time="2999-12-31T23:59:59.999Z")
    record_events(actor, said)

    assert "years ahead of the ledger" in get(client, vic, f"ledger/{said['id']}/").text
    assert "years ahead of the ledger" in get(client, vic, "runs/run_1/").text


def test_only_those_of_the_workspace_come_in(client, trip, ada):
    for path in ("runs/", "runs/run_1/", "ledger/", f"ledger/{trip[0]['id']}/", "ledger/verify/"):
        assert get(client, ada, path).status_code == 404


def test_the_log_is_checked_in_the_page(client, vic, trip, northwind):
    assert "All as it was signed" in check(client, vic).text
    proof = proofs.proof_of(northwind, trip[0]["id"])
    path = "/w/northwind/ledger/verify/"
    assert "Proven" in client.post(path, {"proof": proof, "check": "proof"}).text
    bad = client.post(path, {"proof": proof.replace("index 0", "index 1"), "check": "proof"})
    assert "Not proven" in bad.text
    said = client.post(path, {"proof": "hello", "check": "proof"}).text
    assert "Not proven" in said
    assert "hello</textarea>" in said
    padded = proof + "\n" * 500_000
    assert "It was not read" in client.post(path, {"proof": padded, "check": "proof"}).text


def test_where_a_proof_is_the_verifier_is_handed_out_and_its_digest_said(client, vic, trip):
    saved = client.get("/verifier.html").content
    for path in ("ledger/verify/", f"ledger/event/{trip[0]['id']}/"):
        page = get(client, vic, path).text
        assert 'href="/verifier.html" download' in page
        assert hashlib.sha256(saved).hexdigest() in page


def test_a_proof_of_another_log_is_none_of_this(client, trip, northwind):
    southwind = Workspace.objects.create(slug="southwind", name="Southwind")
    client.force_login(member(southwind, "dan", "view"))
    brought = {"proof": proofs.proof_of(northwind, trip[0]["id"]), "check": "proof"}

    assert not client.post("/w/southwind/ledger/verify/", brought).context["verdict"].ok


def test_a_download_is_checked_in_the_page_with_its_facts(client, vic, trip, northwind):
    client.force_login(vic)

    def verdict(text):
        posted = {"proof": text, "check": "proof"}
        return client.post("/w/northwind/ledger/verify/", posted).context["verdict"]

    download = proofs.download_of(northwind, trip[0]["id"])
    assert download is not None
    found = verdict(json.dumps(download, indent=2))
    assert found.ok
    assert "what the file says of run.started is what was recorded" in found.words

    forged = download | {"event": download["event"] | {"data": {"request": "Pay me"}}}
    assert "not the one whose digest" in verdict(json.dumps(forged)).words
    whole, said = json.dumps(download), json.dumps(forged["event"])
    assert "stands twice" in verdict(f'{{"event": {said}, {whole[1:]}').words
    assert "facts" in verdict(json.dumps(download | {"facts": {"a": 1}, "facts_salt": "00"})).words
    for wrong in ('{"event": 1}', "{", '{"event": ' + "[" * 100_000, '{"event": {"x": NaN}}'):
        assert not verdict(wrong).ok


def check(client, person):
    client.force_login(person)
    return client.post("/w/northwind/ledger/verify/", {"check": "log"})


@contextmanager
def tampered(statement):
    """Somebody past the guards, while this lasts."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(statement)
        yield
        transaction.set_rollback(True)


CRIMES = {
    "an edited payload": "UPDATE ledger_event SET data = '{}' WHERE type = 'action.planned'",
    "an edited digest": "UPDATE ledger_event SET digest = sha256('x') WHERE type = 'run.started'",
    "another actor": "UPDATE ledger_event SET actor = 'ada' WHERE type = 'run.started'",
    "a deleted event": "DELETE FROM ledger_event WHERE type = 'action.planned'",
    "swapped leaves": """ALTER TABLE ledger_leaf DROP CONSTRAINT leaf_once;
        UPDATE ledger_leaf l SET place = (SELECT min(place) FROM ledger_leaf) + 39 - l.index""",
    "a truncated tail": "DELETE FROM ledger_leaf WHERE index > 30",
    "a forked head": "UPDATE ledger_treehead SET root = sha256('x')",
    "another tree": "UPDATE ledger_treenode SET hash = sha256('x')",
    "an unsigned head": "UPDATE ledger_treehead SET note = replace(note, '40', '41')",
}


def test_law_12_tampering_is_detected(client, vic, northwind, actor, subtests, caplog):
    events = [event("run.started", run=f"r{n}") for n in range(36)]
    events += [event("action.planned", action="a", data={"tool": "t"}) for _ in range(4)]
    record_events(actor, *events)
    sealer.seal(northwind)
    assert "All as it was signed" in check(client, vic).text
    assert audit.look() == 0

    for crime, statement in CRIMES.items():
        caplog.clear()
        with subtests.test(crime), tampered(statement):
            assert "Something was changed" in check(client, vic).text
            with pytest.raises(CommandError, match="Something was changed"):
                call_command("check_log", "northwind")
            with pytest.raises(audit.NotAsSigned, match="A log is not what was signed") as told:
                audit.look()
            assert "northwind" not in str(told.value), "/statusz says it to strangers"
            assert "The log of northwind is not what was signed" in caplog.text


OLD = {
    "an old payload": (
        "UPDATE ledger_event SET data = '[1]' WHERE run = 'r3'",
        "payload is as it was digested",
    ),
    "an old event": ("DELETE FROM ledger_event WHERE run = 'r3'", "entry is there"),
    "an old leaf": (
        "UPDATE ledger_leaf SET hash = sha256('x') WHERE index = 3",
        "stand in their order",
    ),
    "an old leaf that is gone": ("DELETE FROM ledger_leaf WHERE index = 3", "stand in their order"),
    "an old head": (
        "UPDATE ledger_treehead SET root = sha256('x') WHERE size = 20",
        "Every head is of this tree",
    ),
}


@pytest.fixture
def forty(northwind, actor, monkeypatch):
    """Forty sealed entries, of which a look takes the newest four."""
    monkeypatch.setattr(audit, "NEWEST", 4)
    monkeypatch.setattr(audit, "HEADS_CHECKED", 0)
    for since in (0, 20):
        record_events(actor, *(event("run.started", run=f"r{n}") for n in range(since, since + 20)))
        sealer.seal(northwind)


def test_what_is_older_than_the_page_looks_is_found_by_the_command(
    northwind, forty, subtests, monkeypatch, capsys
):
    monkeypatch.setattr(audit, "ENTRIES_AT_A_TIME", 7)
    call_command("check_log")
    assert "BAD" not in capsys.readouterr().out

    for crime, (statement, named) in OLD.items():
        with subtests.test(crime), tampered(statement):
            assert all(finding.ok for finding in audit.audit(northwind))
            with pytest.raises(CommandError):
                call_command("check_log", "northwind")
            bad = [line for line in capsys.readouterr().out.splitlines() if line.startswith("BAD")]
            assert any(named in line for line in bad)


@pytest.fixture
def gone_round(forty, monkeypatch):
    """The job looks at seven more a turn, and has come to their end once."""
    monkeypatch.setattr(audit, "PORTION_MIN", 7)
    assert [audit.look() for _ in range(TURNS)] == [0] * TURNS
    assert AuditRound.objects.get().went_round_at is not None


TURNS = 6
"""Of seven entries, after which forty were looked at."""

OLD_BESIDES = {
    "an old event that was kept from the log": (
        "UPDATE ledger_leaf SET place = -place WHERE index = 3",
        "event is in the log",
    ),
    "two old entries in each other's place": (
        """ALTER TABLE ledger_leaf DROP CONSTRAINT leaf_once;
        UPDATE ledger_leaf a SET place = b.place, hash = b.hash FROM ledger_leaf b
        WHERE a.index IN (3, 4) AND b.index = 7 - a.index""",
        "stand in their order",
    ),
    "an old payload that nobody erased": (
        "UPDATE ledger_event SET data = NULL, salt = NULL WHERE run = 'r3'",
        "emptied payload was erased",
    ),
}


def test_the_job_comes_round_to_what_is_older_than_it_looks_each_time(gone_round, subtests):
    for crime, (statement, named) in (OLD | OLD_BESIDES).items():
        with subtests.test(crime), tampered(statement):
            told = [a_turn() for _ in range(2 * TURNS)]
            first = next(turn for turn, one in enumerate(told) if one)
            assert first < TURNS
            assert any(named in one for one in told)
            assert all(told[first:])  # also while it looks elsewhere


def a_turn():
    try:
        audit.look()
    except audit.NotAsSigned as told:
        return str(told)
    return ""


@pytest.mark.parametrize("by", ["the job", "the command"])
def test_what_was_put_right_is_told_until_somebody_has_looked_there_again(
    northwind, gone_round, by
):
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("UPDATE ledger_event SET run = 'r3x' WHERE run = 'r3'")
        assert a_turn()
        cursor.execute("UPDATE ledger_event SET run = 'r3' WHERE run = 'r3x'")

    if by == "the command":
        call_command("check_log")
        assert not a_turn()
    else:
        told = [bool(a_turn()) for _ in range(TURNS)]
        assert told == [True] * (TURNS - 1) + [False]


def test_a_log_that_went_back_is_gone_round_from_its_beginning(northwind, gone_round):
    AuditRound.objects.update(next_index=1_000, after_place=2**62, emptied=7)

    assert [a_turn() for _ in range(TURNS)] == [""] * TURNS
    assert AuditRound.objects.get().next_index == 0


def test_an_erasure_is_no_crime_to_the_job(northwind, gone_round, actor):
    record_events(actor, *(event("run.completed", run=run) for run in ("r3", "r17", "r30")))
    sealer.seal(northwind)
    erasure.erase(northwind, runs=["r3", "r17", "r30"], by=None)

    assert [a_turn() for _ in range(2 * TURNS)] == [""] * 2 * TURNS
    with connection.cursor() as cursor:  # but one more than were erased, elsewhere in the log, is
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("UPDATE ledger_event SET data = NULL, salt = NULL WHERE run = 'r35'")
    assert any("emptied payload was erased" in a_turn() for _ in range(TURNS))


@pytest.mark.parametrize("command", ["check_log", "rebuild"])
def test_a_workspace_that_does_not_exist_is_no_good_news(northwind, capsys, command):
    with pytest.raises(CommandError, match="There is no workspace nortwind"):
        call_command(command, "northwind", "nortwind")

    assert capsys.readouterr().out == ""


HOLES = {
    "a changed digest": "UPDATE ledger_event SET digest = sha256('x') WHERE type = 'run.started'",
    "a leaf that is gone": "DELETE FROM ledger_leaf WHERE index = 2",
}


def test_of_what_was_changed_no_proof_is_handed_out_and_the_page_says_so(
    client, sue, trip, subtests
):
    name = trip[0]["id"]
    for hole, statement in HOLES.items():
        with subtests.test(hole), tampered(statement):
            assert "Changed since" in get(client, sue, f"ledger/event/{name}/").text
            for refused in (
                get(client, sue, f"ledger/proof/{name}/"),
                client.post(f"/w/northwind/ledger/download/{name}/"),
            ):
                assert refused.status_code == 409
                assert "No proof is handed out" in refused.text
            assert check(client, sue).status_code == 200


def test_a_run_of_the_desk_has_its_page(client, vic, northwind):
    desk_events.record(northwind, EventType.PLAN_STARTED, run="desk-plan-1", data={"goal": "undo"})
    assert Run.objects.get().agent is None
    assert "the desk itself" in get(client, vic, "runs/desk-plan-1/").text


def test_without_a_run_the_page_leads_to_where_a_key_is_made(client, vic):
    page = get(client, vic, "runs/")

    assert 'href="/w/northwind/settings/keys/"' in page.text.split("No runs yet")[1]
    assert "No run fits" in get(client, vic, "runs/", q="elsewhere").text
