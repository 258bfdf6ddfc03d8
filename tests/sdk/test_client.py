"""An agent moves Mia's flight: what goes over the wire, and what does not."""

import contextlib
import hashlib
import json

import pytest

import amends
from amends.client import default_spool
from amends.protocol.canonical import idempotency_key
from tests.sdk.conftest import KEY, NEW, OLD, move

MIA = {"id": "mia", "name": "Mia Li"}


def test_a_run_tells_its_story_in_order(desk, small_desk):
    with desk.run("Move my return flight", on_behalf_of=MIA) as run:
        with move(run, undo=amends.undo("airline.restore", id="XEHM4B")) as act:
            act.succeeded(result={"ok": True}, after=NEW)
            assert act.verified([("flight", "HAT019", "HAT019")])
        run.checkpoint("flights_moved", state={"next": "mail"}, summary="The flight is moved.")
    desk.flush()

    assert small_desk.types() == ["run.started", "action.succeeded", "action.verified",
                                  "run.checkpoint", "run.completed"]  # fmt: skip
    started, succeeded, verified, checkpoint, completed = small_desk.journal()
    assert started["data"] == {"agent": "trip-desk", "request": "Move my return flight",
                               "on_behalf_of": MIA}  # fmt: skip
    assert [e.get("n") for e in small_desk.journal()] == [0, 1, 1, 2, 3]
    assert succeeded["data"]["effects"] == [
        {"target": {"type": "reservation", "id": "XEHM4B"}, "after": NEW}
    ]
    assert succeeded["data"]["fence"] == 1
    assert verified["data"]["ok"] is True
    assert checkpoint["data"]["state"] == {"next": "mail"}
    assert completed["run"] == started["run"]


def test_begin_announces_the_call_before_it_is_made(desk, small_desk):
    with desk.run("Move it", run="run_1") as run, move(run, saga="pivot") as act:
        [begun] = small_desk.journal("begin")
        assert begun["attempt"] == act.row.attempt
        act.succeeded(after=NEW)

    planned = begun["data"]
    assert begun["type"] == "action.planned"
    assert (planned["tool"], planned["class"], planned["saga"], planned["op"]) == (
        "update_flight", "external_reversible", "pivot", "update_flight")  # fmt: skip
    assert planned["before"] == [OLD]
    assert planned["key"] == idempotency_key(
        workspace="northwind", run="run_1", tool="update_flight", op="update_flight",
        targets=[{"type": "reservation", "id": "XEHM4B"}],
    )  # fmt: skip


def test_the_run_is_in_the_ledger_before_its_first_call_begins(desk, small_desk):
    with desk.run("Move it") as run, move(run) as act:
        assert small_desk.types() == ["run.started"]
        act.succeeded(after=NEW)


def test_a_second_call_answers_the_first_result_and_does_nothing(desk, small_desk):
    calls = []

    def call():
        calls.append(1)
        return {"ok": True}

    with desk.run("Move it", run="run_2"):
        for _ in range(2):
            with move(amends.current_run()) as act:
                answer = act.perform(call)
            assert answer == {"ok": True}

    assert act.replayed
    assert calls == [1]
    act.failed("what went wrong later is not the call")
    desk.flush()
    assert small_desk.types().count("action.succeeded") == 1
    assert "action.failed" not in small_desk.types()


def test_a_decorated_function_is_called_once_per_key(desk):
    calls = []

    @desk.tool(
        "update_flight",
        target=("reservation", "{reservation}"),
        before=lambda **_: OLD,
        after=lambda result, **_: result,
        undo=lambda reservation, **_: amends.undo("airline.restore", id=reservation),
    )
    def update_flight(reservation, flight="HAT019"):
        calls.append(reservation)
        return {"flight": flight}

    with desk.run("Move it"):
        assert update_flight("XEHM4B") == NEW
        assert update_flight("XEHM4B") == NEW
        assert update_flight("OTHER1") == NEW

    assert calls == ["XEHM4B", "OTHER1"]


def test_a_tool_outside_a_run_is_refused(desk):
    with pytest.raises(amends.NoRun):
        desk.tool("look")(lambda: 1)()


def test_a_refusal_that_may_be_tried_again_is(desk, small_desk):
    moods = [amends.NoEffect("busy", retryable=True), amends.NoEffect("busy", retryable=True), 7]

    @desk.tool("book", target=("seat", "{seat}"), tries=3)
    def book(seat):
        mood = moods.pop(0)
        if isinstance(mood, Exception):
            raise mood
        return mood

    with desk.run("Book 12A"):
        assert book("12A") == 7

    begun = small_desk.journal("begin")
    assert [body.get("retry") for body in begun] == [None, "tool", "tool"]
    assert len({body["data"]["key"] for body in begun}) == 1
    assert len({body["attempt"] for body in begun}) == 3
    assert len({body["action"] for body in begun}) == 1


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(TimeoutError("30 s"), "unknown"), (amends.NoEffect("sold out"), "no_effect")],
)
def test_only_a_documented_refusal_has_no_effect(desk, small_desk, error, outcome):
    with pytest.raises(type(error)), desk.run("Move it") as run, move(run):
        raise error
    desk.flush()

    failed, ended = small_desk.journal()[-2:]
    assert failed["data"]["outcome"] == outcome
    assert ended["type"] == "run.failed"
    assert ended["data"]["failed_action"] == failed["action"]
    assert ended["data"]["error"]["type"] == type(error).__name__


def test_a_member_of_the_affected_person_that_nobody_would_read_is_refused(desk, small_desk):
    with pytest.raises(ValueError, match="no “mail”: it is id, name, contact"):
        desk.run("Move it", on_behalf_of={"id": "mia", "mail": "mia@home.example"})
    with pytest.raises(TypeError, match=r'a mapping, such as \{"id": "mia"'):
        desk.run("Move it", on_behalf_of="mia")

    with desk.run("Move it", on_behalf_of={"id": "mia", "contact": "mia@home.example"}):
        pass
    desk.flush()
    assert small_desk.journal()[0]["data"]["on_behalf_of"]["contact"] == "mia@home.example"


def test_a_body_that_forgets_its_outcome_is_told_so(desk, small_desk):
    with pytest.raises(amends.MissingOutcome), desk.run("Move it") as run, move(run):
        pass
    desk.flush()

    assert small_desk.journal()[-2]["data"]["outcome"] == "unknown"


def test_a_run_that_the_user_cancels_makes_no_more_calls(desk, small_desk):
    with desk.run("Move it") as run:
        run.cancel(by="Mia Li", reason="changed her mind")
        with pytest.raises(amends.NoRun):
            move(run)
    desk.flush()

    assert small_desk.types() == ["run.started", "run.cancelled"]


def test_secrets_stay_at_home(desk, small_desk, spool_file):
    args = {"flight": "HAT019", "card": {"holder": "Mia Li"}, "api_key": "sk-live-canary",
            "note": "4242 4242 4242 4242"}  # fmt: skip
    with desk.run("Pay") as run, move(run, args=args, before={"token": "canary"}) as act:
        act.succeeded(result={"password": "canary"}, after=NEW, reversibility="exact")
    desk.flush()

    [begun] = small_desk.journal("begin")
    assert begun["data"]["args"] == {
        "flight": "HAT019", "card": {"holder": "⟦masked:policy⟧"}, "api_key": "⟦masked:apikey⟧",
        "note": "⟦masked:card⟧"}  # fmt: skip
    everywhere = small_desk.journal_file.read_bytes() + b"".join(
        file.read_bytes() for file in spool_file.parent.iterdir()
    )
    assert b"canary" not in everywhere
    [told] = [one for one in small_desk.journal() if one["type"] == "action.succeeded"]
    assert told["data"]["effects"][0]["reversibility"] == "unknown"  # a masked state is not exact
    assert b"4242 4242" not in everywhere


def test_of_several_targets_each_is_restored_exactly_whose_own_state_is_not_masked(
    desk, small_desk
):
    target, before = [("card", "1"), ("flight", "2")], [{"password": "canary"}, {"v": 1}]
    with desk.run("Move them") as run, move(run, target=target, before=before) as act:
        act.succeeded(after=[NEW, NEW], reversibility="exact")
    desk.flush(60)

    [told] = [one for one in small_desk.journal() if one["type"] == "action.succeeded"]
    kinds = [one["reversibility"] for one in told["data"]["effects"]]
    assert kinds == ["unknown", "exact"]


def test_no_snapshot_leaves_the_agent_where_the_policy_keeps_none(desk, small_desk):
    small_desk.control(safety={"audit": {"captureSnapshot": False}})
    rows = {"rows": [{"row": number, "text": "x" * 90} for number in range(1000)]}
    with desk.run("Import") as run:
        with move(run, before=rows) as act:
            act.succeeded(after=rows)
        other = ("reservation", "OTHER1")
        with move(run, target=other, before={**rows, "password": "canary"}) as act:
            act.succeeded(after=NEW, reversibility="exact")
    desk.flush(60)

    told = [one["data"] for one in small_desk.journal("begin") + small_desk.journal()]
    effects = [effect for data in told for effect in data.get("effects", [])]
    assert small_desk.journal("blob") == []
    assert not [one for one in told + effects if {"before", "after"} & one.keys()]
    assert effects[1]["reversibility"] == "unknown", "a masked state is not exact"


def test_a_large_snapshot_goes_first_and_is_named(desk, small_desk):
    rows = [{"row": number, "text": "x" * 90} for number in range(1000)]
    with desk.run("Import") as run, move(run, before={"rows": rows}) as act:
        act.succeeded(result={"rows": rows}, after=NEW)
    desk.flush()

    [begun] = small_desk.journal("begin")
    [before], result = begun["data"]["before"], small_desk.journal()[1]["data"]["result"]
    assert before == result
    assert before["ref"].removeprefix("sha256:") in dict(small_desk.journal("blob"))
    canonical = json.dumps({"rows": rows}, sort_keys=True, separators=(",", ":")).encode()
    assert before["ref"] == "sha256:" + hashlib.sha256(canonical).hexdigest()


def test_arguments_too_large_to_travel_stop_the_call_before_it_is_made(desk):
    with (
        pytest.raises(amends.TooLarge),
        desk.run("Import") as run,
        move(run, args={"text": "x" * 70_000}),
    ):
        raise AssertionError("the body ran")


def test_the_address_and_key_come_from_the_environment(small_desk, spool_file, monkeypatch):
    with pytest.raises(amends.AmendsError, match="AMENDS_URL"):
        amends.connect(None, None)
    monkeypatch.setenv("AMENDS_URL", small_desk.url)
    monkeypatch.setenv("AMENDS_KEY", KEY)
    monkeypatch.setenv("AMENDS_SPOOL", str(spool_file))

    with amends.connect() as desk:
        assert desk.workspace == "northwind"
    assert spool_file.exists()


@pytest.mark.parametrize("run", ["", "a b", "é", "a" * 121, ".", "..", "a/../b", "a/."])
def test_a_run_is_named_so_that_the_desk_can_be_asked_about_it(desk, run):
    """Of a run `..` a directive to stop was never heard: `runs/../directive` is another address."""
    with pytest.raises(ValueError, match="printable ASCII characters"):
        desk.run("Import", run=run)
    desk.run("Import", run="...a/b..")


def test_a_result_too_deep_to_keep_does_not_hide_the_success(desk, small_desk, caplog):
    deep: dict[str, object] = {}
    for _ in range(40):
        deep = {"more": deep}

    with desk.run("Import") as run, move(run) as act:
        act.succeeded(result=deep, after=NEW)
    desk.flush()

    succeeded = small_desk.journal()[1]
    assert succeeded["type"] == "action.succeeded"
    assert succeeded["data"]["result"] == {"not_recorded": "it is nested deeper than 32 levels"}
    assert [effect["target"]["id"] for effect in succeeded["data"]["effects"]] == ["XEHM4B"]
    assert "not kept" in caplog.text


def test_a_mistake_in_the_snapshots_is_raised_after_the_success_is_kept(desk, small_desk):
    with (
        pytest.raises(ValueError, match="2 snapshots"),
        desk.run("Swap") as run,
        move(run, target=[("seat", 1), ("seat", 2)], before=[OLD, OLD]) as act,
    ):
        act.succeeded(after=NEW)
    desk.flush()

    assert small_desk.types() == ["run.started", "action.succeeded", "run.failed"]


@pytest.mark.parametrize(
    "said",
    [{"aftr": NEW}, {"effects": [{"target": ("reservation", "XEHM4B"), "aftr": NEW}]},
     {"effects": [["aftr"]]}],
)  # fmt: skip
def test_a_word_of_a_success_that_nobody_would_read_is_refused_after_it_is_kept(
    desk, small_desk, said
):
    """It went into the ledger as a part of the effect, which had no state to be restored."""
    words = "no 'aftr': it is before, after,"
    with pytest.raises(TypeError, match=words), desk.run("Move it") as run, move(run) as act:
        act.succeeded(NEW, **said)
    desk.flush()

    assert small_desk.types() == ["run.started", "action.succeeded", "run.failed"]


@pytest.mark.parametrize(
    ("said", "kept"),
    [({"aftr": NEW}, True), ({"effects": [{"summary": "no target"}]}, True),
     ({"after": "x" * 9_000_000}, True), ({"aftr": NEW, "more": "x" * 70_000}, False)],
)  # fmt: skip
def test_an_undo_is_kept_whatever_else_is_wrong_with_what_is_said_of_the_success(
    desk, small_desk, said, kept
):
    """It was lost with what could not be told; one that is too large itself costs no success."""
    undo = amends.undo("airline.restore", id="XEHM4B", note=said.pop("more", ""))
    with contextlib.suppress(TypeError, LookupError), desk.run("Move") as run, move(run) as act:
        act.succeeded(NEW, undo=undo, **said)
    desk.flush()

    [_, succeeded, _] = small_desk.journal()
    assert succeeded["type"] == "action.succeeded"
    assert succeeded["data"].get("compensation") == (undo if kept else None)


def test_an_undo_that_fits_but_for_what_is_told_beside_it_costs_no_success(desk, small_desk):
    """It was tried without the number of the try, and for some bytes the success was lost."""
    sizes = range(61_000, 61_440, 20)
    for size in sizes:
        undo = amends.undo("airline.restore", id="XEHM4B", note="x" * size)
        with (
            contextlib.suppress(TypeError),
            desk.run("Move") as run,
            move(run, args={"size": size}) as act,
        ):
            act.succeeded(NEW, undo=undo, aftr=NEW)
    desk.flush()

    told = [one["data"] for one in small_desk.journal() if one["type"] == "action.succeeded"]
    assert len(told) == len(sizes)
    assert {"compensation" in one for one in told} == {True, False}, "the border is among them"


def test_effects_that_can_be_read_once_are_all_told(desk, small_desk):
    """They stood as none, and the call as one that had changed nothing."""
    with desk.run("Move it") as run, move(run) as act:
        act.succeeded(NEW, effects=({"target": ("reservation", one)} for one in ("A1", "B2")))
    desk.flush()

    told = small_desk.journal()[1]["data"]
    assert [one["target"]["id"] for one in told["effects"]] == ["A1", "B2"]


@pytest.mark.parametrize("args", [[1], "flight", 5, [("flight", "HAT019")]])
def test_arguments_without_names_are_refused_before_anything_is_asked(desk, small_desk, args):
    with desk.run("Move it") as run, pytest.raises(TypeError, match="a mapping by name, not a"):
        run.action("update_flight", args=args)

    assert not small_desk.journal("begin")


@pytest.mark.parametrize("behind", ["/", "/api/v1", "/api/v1/"])
def test_an_address_that_is_written_otherwise_has_the_same_spool(monkeypatch, tmp_path, behind):
    """In another file nothing would be known of what was done, and nobody send what waits."""
    monkeypatch.delenv("AMENDS_SPOOL", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    url = "https://desk.example"
    before = hashlib.sha256(f"{url}{behind}\n{KEY}".encode()).hexdigest()[:16]

    assert default_spool(url + behind, KEY) == default_spool(url, KEY)
    (tmp_path / "amends").mkdir()
    (tmp_path / "amends" / f"{before}.sqlite").touch()
    assert default_spool(url + behind, KEY).stem == before, "which an older client has made"
