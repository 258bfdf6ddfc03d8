"""Whatever breaks, no call runs without the desk's yes, and none runs twice for one."""

import asyncio
import json
import subprocess
from typing import Any
from unittest.mock import AsyncMock, Mock

import httpx
import pytest

from amends import NoEffect
from amends.mcp.calls import McpCall, Open
from amends.mcp.mapping import AGAIN
from amends.values import UNSET
from tests.mcp.conftest import Gateway, odd, wait_for, words
from tests.sdk.conftest import KEY

BY_URL: dict[str, Any] = {"elicitation": {"url": {}, "form": {}}}


def decide(desk):
    """A person says yes to what was asked first."""
    desk.control(decided=[desk.journal("begin")[0]["data"]["key"]])


def outcomes(desk):
    return [
        one["data"].get("outcome", "succeeded")
        for one in desk.journal()
        if one["type"] in ("action.succeeded", "action.failed")
    ]


@pytest.fixture
def asking(desk_that_allows):
    desk_that_allows.control(modes={"note": "wait"})
    return desk_that_allows


def test_a_client_is_sent_to_the_card_and_told_that_it_still_waits(through, asking, journal):
    client = through(capabilities=BY_URL)

    call = client.send_call("note", meta={"progressToken": 7}, text="one")
    elicited = client.next(lambda one: one.get("method") == "elicitation/create")
    assert (elicited["params"]["mode"], elicited["params"]["url"]) == (
        "url",
        "http://desk/approvals/1",
    )
    client.say(id=elicited["id"], result={"action": "accept"})
    if not any(one["method"] == "notifications/progress" for one in client.heard):
        client.next(lambda one: one.get("method") == "notifications/progress")
    assert journal.lines == [], "that somebody opens the card is no approval"
    decide(asking)

    assert words(client.answer(call)["result"]) == "note is done"
    assert journal.lines == ['note {"text": "one"}']


def test_a_card_that_was_withdrawn_is_followed_to_the_one_in_its_place(through, asking, journal):
    """An approver corrects an argument: the first question is taken back, and another is asked."""
    client = through(capabilities=BY_URL)
    call = client.send_call("note", meta={"progressToken": 7}, text="one")
    first = client.next(lambda one: one.get("method") == "elicitation/create")
    client.say(id=first["id"], result={"action": "accept"})

    asking.control(card=2)
    second = client.next(lambda one: one.get("method") == "elicitation/create")
    assert second["params"]["url"] == "http://desk/approvals/2"
    client.next(lambda one: "approvals/2" in one.get("params", {}).get("message", ""))
    asking.control(card=3)
    third = client.next(lambda one: one.get("method") == "elicitation/create")
    client.say(id=second["id"], result={"action": "decline"})
    client.say(id=third["id"], result={"action": "accept"})
    assert client.ask("ping") == {}
    decide(asking)

    assert words(client.answer(call)["result"]) == "note is done", "the old card may be declined"
    told = [one["params"] for one in client.heard if one["method"] == "notifications/progress"]
    grown = [one["progress"] for one in told]
    assert grown == sorted(set(grown))


def test_input_is_required_anew_for_the_card_in_the_place_of_a_withdrawn_one(
    through, asking, journal
):
    client = through()
    meta = {"io.modelcontextprotocol/clientCapabilities": BY_URL}
    asked = client.call("note", meta=meta, text="one")
    assert asked["inputRequests"]["approval"]["params"]["url"] == "http://desk/approvals/1"

    def again(told):
        accepted = {"approval": {"action": "accept"}}
        more = {"inputResponses": accepted, "requestState": told["requestState"], "_meta": meta}
        return client.send("tools/call", name="note", arguments={"text": "one"}, **more)

    waits = again(asked)
    asking.control(card=2)
    asked = client.answer(waits)["result"]
    assert asked["inputRequests"]["approval"]["params"]["url"] == "http://desk/approvals/2"
    waits = again(asked)
    assert client.ask("ping") == {}
    decide(asking)

    assert words(client.answer(waits)["result"]) == "note is done"
    assert journal.lines == ['note {"text": "one"}']


def test_a_call_that_asks_something_back_is_one_call_with_its_answer(
    through, desk_that_allows, journal
):
    client = through()
    asked = client.call("back", text="one")
    assert (asked["resultType"], journal.lines) == ("input_required", [])
    answered = {"inputResponses": {"seat": {"action": "accept"}}, "requestState": "half"}

    told = client.answer(
        client.send("tools/call", name="back", arguments={"text": "one"}, **answered)
    )

    assert words(told["result"]) == "back is done"
    assert journal.lines == ['back {"text": "one"}']
    assert len(desk_that_allows.journal("begin")) == 1


def test_a_client_that_declines_to_ask_makes_no_call(through, asking, journal):
    client = through(capabilities=BY_URL)

    call = client.send_call("note", text="one")
    elicited = client.next(lambda one: one.get("method") == "elicitation/create")
    client.say(id=elicited["id"], result={"action": "decline"})

    assert "NOT made" in words(client.answer(call)["result"])
    decide(asking)
    assert words(client.call("note", text="one")) == "note is done", "a retry after the yes"
    assert words(client.call("note", text="one")).startswith("note is done This call was made")
    assert journal.lines == ['note {"text": "one"}']


def test_an_approver_changes_an_argument_and_the_server_gets_it(through, desk_that_allows, journal):
    desk_that_allows.control(changes={"note": {"text": "two"}})
    client = through()

    assert words(client.call("note", text="one")) == "note is done"
    assert words(client.call("note", text="one")).startswith("note is done This call was made")

    assert journal.lines == ['note {"text": "two"}']
    first, again = desk_that_allows.journal("begin")
    assert first["data"]["args"] == again["data"]["args"] == {"text": "one"}
    assert first["data"]["tool_schema"] == {"type": "object"}
    assert "tool_schema" not in again["data"], "announced once"
    [done] = [
        one["data"] for one in desk_that_allows.journal() if one.get("type") == "action.succeeded"
    ]
    assert done["args"] == {"text": "two"}


def test_a_call_that_was_made_with_too_much_to_be_told_is_not_told_as_not_made(
    through, desk_that_allows, journal
):
    """The model would make it in another way, for a second time."""
    desk_that_allows.control(changes={"note": {"text": "x" * 70_000}})

    assert "It is NOT known whether this call of note" in words(through().call("note", text="one"))

    assert len(journal.lines) == 1


def test_nobody_decides_in_time_or_other_arguments_come_after_the_yes(through, asking, journal):
    client = through("--wait-seconds", "0.5")
    assert "nobody has decided yet" in words(client.call("note", text="one"))
    decide(asking)

    assert "nobody has decided yet" in words(client.call("note", text="two"))
    assert journal.lines == []
    assert words(client.call("note", text="one")) == "note is done"


def test_a_server_cannot_answer_a_call_that_it_was_not_given(through, asking, journal):
    client = through("--wait-seconds", "2", wants={"lies": True})
    call = client.send_call("note", text="one")

    assert client.ask("ping", of=call) == {}

    assert "nobody has decided yet" in words(client.answer(call)["result"])


def test_what_changed_since_people_were_asked_is_not_overwritten(through, asking, journal):
    """A person approved it as it was; somebody else has written there meanwhile."""
    client = through("--snapshot", "note=look:text")
    call = client.send_call("note", text="one")
    wait_for(lambda: len(asking.journal("begin")) > 1, "the gateway waits for people")

    journal.path.write_text("somebody else's\n")
    decide(asking)

    assert "has changed meanwhile" in words(client.answer(call)["result"])
    assert journal.lines == ["somebody else's"]
    client.leave()
    assert outcomes(asking) == ["no_effect"]


def test_a_cancelled_wait_makes_no_call_although_a_yes_comes_later(through, asking, journal):
    client = through()
    call = client.send_call("note", meta={"progressToken": 1}, text="one")
    client.next(lambda one: one.get("method") == "notifications/progress")

    client.say(method="notifications/cancelled", params={"requestId": call})
    client.ask("ping")
    decide(asking)
    client.leave()

    assert [one for one in journal.lines if one.startswith("note")] == []
    assert "succeeded" not in outcomes(asking)


def test_a_call_that_is_cancelled_while_its_target_is_looked_at_again_has_done_nothing(
    through, desk_that_allows, journal
):
    """The server never had it: told as unknown, it was a case, and never made again."""
    client = through("--snapshot", "note=look:text", wants={"stalls_at": 2})
    call = client.send_call("note", text="one")
    wait_for(journal.path.with_suffix(".stalls").exists, "the target is looked at again")

    client.say(method="notifications/cancelled", params={"requestId": call})
    client.leave()

    assert [one for one in journal.lines if one.startswith("note")] == []
    assert outcomes(desk_that_allows) == ["no_effect"]


def test_a_call_that_is_cancelled_once_the_server_has_answered_is_told_as_made(
    through, desk_that_allows, journal
):
    """Its target was looked at for longer than a cancelled call is waited for: nobody knew then."""
    wants = {"stalls_at": 3, "stalls_seconds": 4}
    client = through("--snapshot", "note=look:text", wants=wants)
    call = client.send_call("note", text="one")
    wait_for(journal.path.with_suffix(".stalls").exists, "the target is looked at after the call")

    client.say(method="notifications/cancelled", params={"requestId": call})
    client.leave()

    assert outcomes(desk_that_allows) == ["succeeded"]


def test_a_call_that_is_cancelled_while_the_server_is_at_it_is_told_as_unknown(
    through, desk_that_allows, journal
):
    client = through()
    call = client.send_call("slow", seconds=30)
    journal.had('slow {"seconds": 30}')

    client.say(method="notifications/cancelled", params={"requestId": call})
    client.leave()

    [failed] = [one["data"] for one in desk_that_allows.journal() if one["type"] == "action.failed"]
    assert failed["outcome"] == "unknown"
    assert "cancelled while the server was at it" in failed["error"]["message"]


def test_a_client_that_leaves_while_the_server_is_at_it_does_not_lose_the_outcome(
    through, desk_that_allows, journal
):
    client = through()
    client.send_call("slow", seconds=1)
    journal.had('slow {"seconds": 1}')

    client.leave()

    assert outcomes(desk_that_allows) == ["succeeded"]


def test_a_server_that_dies_in_mid_call_leaves_it_unknown_and_it_is_not_repeated(
    through, desk_that_allows, journal
):
    client = through("--run", "run_7")
    said = words(client.call("die"))
    assert "It is NOT known whether this call of die took effect" in said
    client.process.wait(30)
    assert outcomes(desk_that_allows) == ["unknown"]

    client = through("--run", "run_7")

    assert "may have happened" in words(client.call("die"))
    assert journal.lines == ["die {}"]


def test_a_gateway_that_is_killed_in_mid_call_does_not_make_it_again(
    through, desk_that_allows, journal
):
    desk_that_allows.control(lease=0)
    client = through("--run", "run_7")
    client.send_call("slow", seconds=2)
    journal.had('slow {"seconds": 2}')

    client.gateway.kill()
    client = through("--run", "run_7")

    assert "may have happened" in words(client.call("slow", seconds=2))
    assert journal.lines.count('slow {"seconds": 2}') == 1


def test_the_same_call_twice_at_once_reaches_the_server_once(through, desk_that_allows, journal):
    client = through()
    first = client.send_call("slow", seconds=1)
    journal.had('slow {"seconds": 1}')
    second = client.send_call("slow", seconds=1)

    assert words(client.answer(first)["result"]) == "slow is done"
    assert "not made a second time" in words(client.answer(second)["result"])
    assert journal.lines == ['slow {"seconds": 1}', "slow has ended"]


def test_two_clients_on_one_gateway_are_two_runs(listening, desk_that_allows, journal):
    """Each has its session, and the same call of the other is not its own."""
    url = listening()
    first, second = HttpClient(url), HttpClient(url)

    for client in (first, second, second):
        client.call("note", text="one")
    first.leave()
    second.leave()

    assert journal.lines == ['note {"text": "one"}'] * 2
    assert len({one["run"] for one in desk_that_allows.journal("begin")}) == 2


def test_a_page_of_somewhere_else_and_one_without_the_token_reach_nothing(listening, journal):
    url = listening(AMENDS_GATEWAY_TOKEN="of-the-gateway")
    bearer = {"Authorization": "Bearer of-the-gateway"}

    assert httpx.post(url, json={}).status_code == 401
    there = httpx.post(url, json={}, headers=bearer | {"Origin": "https://elsewhere.example"})
    assert there.status_code == 403
    there = httpx.post(url, json={}, headers=bearer | {"Host": "elsewhere.example"})
    assert there.status_code == 421
    unknown = bearer | {"Mcp-Session-Id": "0" * 32}
    assert httpx.post(url, json={}, headers=unknown).status_code == 404
    client = HttpClient(url, bearer)
    assert client.initialized["serverInfo"]["name"] == "odd"
    client.leave()


def test_a_page_of_somewhere_else_starts_no_server(listening_at, desk_that_allows, journal):
    """It reads no answer, but a browser sends what it asks for: also a hundred times."""
    server = odd(journal.path, announces=True)
    url = listening_at(desk_that_allows.url, KEY, server)
    as_json = {"Content-Type": "application/json"}

    httpx.post(url, content="{}", headers={"Content-Type": "text/plain"})
    httpx.post(url, json={}, headers={"Origin": "https://elsewhere.example"})
    httpx.post(url, json={}, headers={"Host": "elsewhere.example"})
    httpx.request("OPTIONS", url, headers=as_json)
    httpx.get(url, headers=as_json)

    client = HttpClient(url)
    client.call("note", text="one")
    client.leave()
    assert journal.lines == ["started", 'note {"text": "one"}']


def test_a_gateway_is_not_opened_to_others_without_a_token(desk_that_allows, tmp_path, journal):
    here = desk_that_allows.url, KEY, tmp_path / "agent.sqlite", odd(journal.path)
    gateway = Gateway(*here, "--listen", "0.0.0.0:1")
    gateway.start(stderr=subprocess.PIPE, text=True)

    _, said = gateway.process.communicate(timeout=60)

    assert (gateway.process.returncode, said) == (
        2,
        "to listen where others can reach it, set AMENDS_GATEWAY_TOKEN\n",
    )


class HttpClient:
    """A session over streamable HTTP, of a few lines."""

    def __init__(self, url, headers=()):
        accept = {"Accept": "application/json, text/event-stream", **dict(headers)}
        self._http, self._number = httpx.Client(base_url=url, headers=accept, timeout=60), 0
        self.initialized = self.ask(
            "initialize", protocolVersion="2025-11-25", capabilities={},
            clientInfo={"name": "raw", "version": "1"},
        )  # fmt: skip

    def ask(self, method, **params):
        self._number += 1
        said = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        answer = self._http.post("", json=said)
        assert answer.status_code == 200, answer.text
        if session := answer.headers.get("mcp-session-id"):
            self._http.headers["Mcp-Session-Id"] = session
        told = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
        return json.loads(told[-1])["result"]

    def call(self, tool, **args):
        return self.ask("tools/call", name=tool, arguments=args)

    def leave(self):
        assert self._http.delete("").status_code == 200
        self._http.close()


def test_what_another_try_made_while_the_gateway_stood_still_is_told_as_its_answer():
    """Its lease is over by then, and the desk answers what the other try has told it."""
    kept = {"content": [{"type": "text", "text": "noted"}]}
    action = Mock(is_changed=False, replayed=True, result=kept)
    action.async_driver.run = AsyncMock(return_value=kept)
    opened = Open(Mock(), action, UNSET, is_given=True)

    told = asyncio.run(opened.perform(Mock()))

    assert [one["text"] for one in told["content"]] == ["noted", AGAIN]
    action.asucceeded.assert_not_called()


def test_of_a_call_that_the_server_has_in_part_nobody_hears_that_it_was_not_made(monkeypatch):
    """It had asked something back, and the lease was over when the answer came. While it is asked
    for anew the answer is not forwarded, so that whoever cancels the call ends it at once.
    """
    seen = []

    async def not_lent(of):
        seen.append(of.is_forwarded)
        raise NoEffect("it is not lent any more")

    begun = Mock(perform=not_lent)
    call = McpCall(Mock(run_of=AsyncMock()), 1, {"name": "back", "requestState": "half"})
    call.session.open = {call._thread("half"): begun}
    monkeypatch.setattr(McpCall, "_planned", AsyncMock())

    assert "It is NOT known" in words(asyncio.run(call.answer()))
    assert seen == [False]
