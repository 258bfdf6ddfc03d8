"""What a newcomer reads when it does not work: what happened, what was done, what to do next."""

import logging
import time
from http.server import BaseHTTPRequestHandler

import pytest

import amends
from amends.wire import Wire
from tests.ports import answering, free_port
from tests.sdk.conftest import KEY, NEW, move


def said_by(url, spool_file, key=KEY):
    """What somebody reads who gave this address and key."""
    with amends.connect(url, key, spool=spool_file) as desk:
        with pytest.raises(amends.AmendsError) as stopped:
            desk.fetch_policy()
        return str(stopped.value)


def test_a_wrong_port_names_the_address(spool_file):
    address = f"http://127.0.0.1:{free_port()}"

    said = said_by(address.replace("//", "//ada:canary@"), spool_file)

    assert said.startswith(f"no answer from {address}/api/v1/ (ConnectError")
    assert said.endswith("Is AMENDS_URL right, and is the desk up?")
    assert "canary" not in said


def test_an_answer_has_its_time_from_where_it_begins_however_long_the_question_took():
    """A large snapshot on a slow line was taken, and never heard to be."""

    class TakesLong(BaseHTTPRequestHandler):
        def do_PUT(self):
            time.sleep(0.7)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            time.sleep(0.7)
            self.wfile.write(b"{}")

    with answering(TakesLong) as address:
        Wire(address, KEY, read_seconds=1.2).put_blob("ab", b"{}")


@pytest.mark.parametrize("key", [f"{KEY}\n", f" {KEY}", f"{KEY}\u200b"])
def test_a_key_with_more_than_a_key_is_refused_and_shown_nowhere(small_desk, spool_file, key):
    with pytest.raises(ValueError, match="copy it anew") as stopped:
        amends.connect(small_desk.url, key, spool=spool_file)
    assert KEY not in str(stopped.value)


@pytest.mark.parametrize("pasted", ["{}/", "{}/api/v1", " {}//api/v1/\n"])
def test_an_address_as_people_paste_it_leads_to_the_desk(small_desk, spool_file, pasted):
    with amends.connect(pasted.format(small_desk.url), KEY, spool=spool_file) as desk:
        assert desk.wire.address == f"{small_desk.url}/api/v1/"


@pytest.mark.parametrize(
    "wrong",
    ["desk.example.com", "https://", "https:///api/v1", "https://desk.example?key=canary",
     "https://desk.example/#canary", "https://[::1", "http://desk.\nexample"],
)  # fmt: skip
def test_an_address_that_would_lead_elsewhere_is_refused_when_it_is_given(spool_file, wrong):
    with pytest.raises(ValueError, match="the address of the desk") as stopped:
        amends.connect(wrong, KEY, spool=spool_file)
    assert "canary" not in str(stopped.value)


@pytest.mark.parametrize("status", [301, 403, 404])
def test_an_address_where_somebody_else_answers_is_doubted(small_desk, spool_file, status):
    small_desk.control(elsewhere=status)

    said = said_by(small_desk.url, spool_file)

    assert f"{small_desk.url}/api/v1/" in said
    assert "is AMENDS_URL right?" in said
    assert ("points to https://elsewhere.example/" in said) == (status == 301)


def test_a_page_that_is_no_desks_is_doubted_though_it_is_found(small_desk, spool_file):
    small_desk.control(elsewhere=200)
    assert "is AMENDS_URL right?" in said_by(small_desk.url, spool_file)


def test_a_spool_that_cannot_be_opened_is_named(small_desk, tmp_path):
    garbage = tmp_path / "garbage.sqlite"
    garbage.write_bytes(b"no database" * 99)

    half, damaged = tmp_path / "half.sqlite", tmp_path / "damaged.sqlite"
    for place in (half, damaged):
        amends.connect(small_desk.url, KEY, spool=place).close()
    whole = half.read_bytes()
    half.write_bytes(whole[: len(whole) // 2])
    damaged.write_bytes(whole[:4096] + b"?" * (len(whole) - 4096))

    for place in (tmp_path, garbage, half, damaged):
        with pytest.raises(amends.AmendsError, match="cannot be opened") as stopped:
            amends.connect(small_desk.url, KEY, spool=place)
        assert str(place) in str(stopped.value)


def test_the_log_says_once_that_the_desk_is_away_and_keeps_what_happens(
    desk, small_desk, spool_file, caplog
):
    desk.fetch_policy()
    small_desk.stop()
    with caplog.at_level(logging.INFO, "amends"), desk.run("Move it") as run:
        for number in range(3):
            with move(run, op=f"op{number}") as act:
                act.succeeded(after=NEW)
        assert not desk.flush(1.5)
        warned = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]

    [away] = warned
    assert small_desk.url in away
    assert f"kept in {spool_file}" in away


def test_a_call_that_needs_the_desk_was_not_made(desk, small_desk):
    desk.fetch_policy()
    small_desk.stop()
    with (
        pytest.raises(amends.DeskUnreachable) as away,
        desk.run("Pay") as run,
        run.action("charge_card", target=("card", "4421"), args={}),
    ):
        raise AssertionError("the card was charged")

    assert small_desk.url in str(away.value)
    assert "was not made: try again when it is back" in str(away.value)


def test_what_stops_a_call_says_that_it_was_not_made(desk, small_desk):
    small_desk.control(modes={"update_flight": "denied"})
    with pytest.raises(amends.Denied) as denied, desk.run("Move it") as run, move(run):
        raise AssertionError("the body ran")
    small_desk.control(modes={"update_flight": "wait"})
    with (
        pytest.raises(amends.ApprovalTimeout) as undecided,
        desk.run("Move it") as run,
        move(run, wait_seconds=0),
    ):
        raise AssertionError("the body ran")

    assert str(denied.value) == "not allowed, and not done: not on Fridays"
    assert denied.value.reason == "not on Fridays"
    assert "the call was not made" in str(undecided.value)
    assert "http://desk/approvals/1" in str(undecided.value)


def test_a_key_used_again_names_the_way_out(desk, small_desk):
    with desk.run("Move it") as run:
        with move(run) as act:
            act.succeeded(after=NEW)
        with pytest.raises(amends.KeyReused, match=r"was not made.*`op` of its own"):
            move(run, args={"flight": "HAT777"}).begin()


@pytest.mark.django_db(transaction=True)
def test_a_key_that_the_desk_does_not_know_leads_to_a_new_one(
    web, token, northwind, spool_file, tmp_path
):
    from workspaces import keys
    from workspaces.models import Agent, User

    ada = User.objects.get()
    old, gone = keys.create_key(Agent.objects.get(), by=ada, name="old")
    keys.revoke(old, by=ada)

    mistyped = said_by(web.url, spool_file, token[:-3] + "xyz")
    revoked = said_by(web.url, tmp_path / "other.sqlite", gone)
    strange = said_by(web.url, tmp_path / "third.sqlite", "amends_0000000000_nobody")

    assert mistyped == revoked == strange  # a stranger does not learn which keys there were
    assert f"{web.url}/api/v1/" in mistyped
    assert "does not know the key" in mistyped
    assert "Settings → Agents and keys" in mistyped
