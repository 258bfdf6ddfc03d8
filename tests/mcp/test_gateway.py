"""Everything passes the gateway as it came, but a call of a tool, which the desk is asked for."""

from tests.mcp.conftest import words

OPEN = {"policies": {"*": {"risk": "HIGH", "approval": "MANUAL"}}}


def test_a_call_is_asked_for_made_once_and_told(through, desk_that_allows, journal):
    client = through("--target", "note=text", "--reads", "look")

    assert words(client.call("note", text="one")) == "note is done"
    again = client.call("note", text="one")
    assert words(client.call("look")) == 'note {"text": "one"}\n'
    assert words(client.call("look")) == 'note {"text": "one"}\n', "what reads is run each time"
    assert words(client.call("secrets")) == "", "the agent's key is not the server's"
    client.leave()

    assert journal.lines == ['note {"text": "one"}'], "the same call again is not made"
    assert "NOT made again" in words(again)
    assert again["_meta"] == {"amends/replayed": True}
    first = desk_that_allows.journal("begin")[0]["data"]
    assert (first["tool"], first["class"]) == ("note", "external_reversible")
    assert first["targets"] == [{"type": "text", "id": "one"}]
    types = desk_that_allows.types()
    assert types == ["run.started", *["action.succeeded"] * 4, "run.completed"]
    started = desk_that_allows.journal()[0]["data"]
    assert started["request"] == "MCP session of raw with odd"


def test_what_is_no_call_passes_as_it_came(through, desk_that_allows):
    client = through(capabilities={"roots": {}, "sampling": {}})

    assert client.initialized["serverInfo"]["name"] == "odd"
    tools = client.ask("tools/list")
    assert [one["name"] for one in tools["tools"]] == ["note", "look", "slow", "die", "big"]
    rest = client.ask("tools/list", cursor=tools["nextCursor"])
    assert rest["tools"][0]["name"] == "fail"
    assert client.ask("prompts/list") == {"prompts": [{"name": "greet"}]}
    assert client.ask("prompts/get", name="greet")["messages"][0]["role"] == "user"
    assert client.ask("resources/read", uri="odd://one")["contents"][0]["text"] == "what it holds"
    assert client.ask("logging/setLevel", level="debug")["code"] == -32601
    assert desk_that_allows.types() == [], "a session that calls nothing is no run"

    asking = client.send_call("ask")
    roots = client.next(lambda one: one.get("method") == "roots/list")
    client.say(id=roots["id"], result={"roots": [{"uri": "file:///here"}]})
    sampling = client.next(lambda one: one.get("method") == "sampling/createMessage")
    client.say(id=sampling["id"], error={"code": -1, "message": "no model"})
    asked = words(client.answer(asking)["result"])
    assert "file:///here" in asked
    assert "no model" in asked

    client.call("steps", meta={"progressToken": "p-1"})
    told = [one["params"] for one in client.heard if one["method"] == "notifications/progress"]
    assert [one["progress"] for one in told] == [1, 2]
    assert client.heard[-1]["params"]["data"] == "nearly there"
    client.leave()


def test_a_no_reaches_the_model_with_its_reason_and_the_server_never_sees_it(
    through, desk_that_allows, journal
):
    desk_that_allows.control(modes={"note": "denied"})
    client = through()

    result = client.call("note", text="one")

    assert result["isError"]
    assert "NOT made" in words(result)
    assert "not on Fridays" in words(result)
    client.say(method="tools/call", params={"name": "note", "arguments": {"text": "no id"}})
    client.ask("ping")
    assert journal.lines == [], "nor is a call without an id, to which nobody could answer"


def test_without_the_desk_what_is_gated_is_refused(through, desk_that_allows, journal):
    desk_that_allows.control(safety=OPEN)
    client = through()
    desk_that_allows.stop()

    assert "NOT made" in words(client.call("note", text="one"))
    assert journal.lines == []


def test_what_a_tool_says_of_its_failure_is_told_as_what_it_is(through, desk_that_allows, tmp_path):
    tools = tmp_path / "tools.toml"
    tools.write_text('[tools.fail]\nrefused = "^there is no"\n')
    client = through()
    assert client.call("fail")["isError"]
    assert client.call("wrong")["code"] == -32602
    client.leave()
    client = through("--tools", str(tools))
    assert client.call("fail")["isError"]
    client.leave()

    failed = [one["data"] for one in desk_that_allows.journal() if one["type"] == "action.failed"]
    assert [one["outcome"] for one in failed] == ["unknown", "no_effect", "no_effect"]
    assert failed[0]["error"]["message"] == "there is no such thing"
    assert desk_that_allows.types()[-1] == "run.failed", "it left after a failure"


def test_a_servers_word_raises_and_never_lowers(through, desk_that_allows):
    """It may call a tool destructive, and the engineer's word that it reads is no longer enough;
    that it calls one harmless changes nothing.
    """
    says = {"note": {"readOnlyHint": True}, "look": {"destructiveHint": True}}
    client = through("--reads", "look", "--reads", "big", wants={"lists": [says]})

    for tool in ("note", "look"):
        client.call(tool)
    client.call("big", bytes=1)

    said = [one["data"] for one in desk_that_allows.journal("begin")]
    assert [(one["tool"], one["class"], one.get("risk")) for one in said] == [
        ("note", "external_reversible", None),
        ("look", "external_reversible", "high"),
        ("big", "read_only", None),
    ]
    assert said[1]["intent"] == {
        "reason": "The server says of this tool that it may destroy what was there."
    }


def test_a_tool_that_is_listed_twice_or_anew_or_not_at_all_is_of_high_risk(
    through, desk_that_allows, journal
):
    client = through(wants={"twice": True})
    client.call("note", text="twice")
    client.call("never_listed")
    client.leave()
    lists = [{"note": {"readOnlyHint": True}}, {"note": {"readOnlyHint": True, "title": "Safe"}}]
    client = through(wants={"lists": lists})
    client.ask("tools/list")
    client.call("note", text="changed")

    said = [one["data"] for one in desk_that_allows.journal("begin")]
    assert [one.get("risk") for one in said] == ["high"] * 3
    assert said[1]["intent"] == {"reason": "The server does not list this tool."}
    assert said[2]["intent"] == {"reason": "The server has said different things of this tool."}


def test_a_name_that_only_looks_like_another_is_not_called(through, desk_that_allows, journal):
    client = through()

    for name in ("nоte", "note\u200b", "note ", ""):
        assert "NOT made" in words(client.call(name, text="one"))
    assert client.ask("tools/call", name=["note"])["code"] == -32602
    assert client.ask("tools/call", name="note", arguments=["one"])["code"] == -32602
    assert (journal.lines, desk_that_allows.journal("begin")) == ([], [])


def test_who_sends_what_is_no_call_hears_of_it_and_does_not_wait_for_good(
    through, desk_that_allows, journal
):
    client = through()
    deep = b'{"a":' * 300 + b"1" + b"}" * 300
    call = b'{"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": %s}'

    for params in (b'{"name": "note", "arguments": {"text": "\\ud800"}}',
                   b'{"name": "note", "arguments": %s}' % deep, b"[1]"):  # fmt: skip
        client.process.stdin.write(call % params + b"\n")
        client.process.stdin.flush()
        assert client.next(lambda said: said.get("error"))["error"]["code"] == -32700
    for meta in ({"amends/run": 5}, {"amends/run": {"a": 1}}, {"amends/op": ["twice"]}):
        refused = client.call("note", meta=meta, text="one")
        assert refused == {"code": -32602, "message": "amends/run and amends/op are texts"}
    assert (journal.lines, desk_that_allows.journal("begin")) == ([], [])


def test_of_a_server_that_does_not_list_its_tools_nothing_is_called(
    through, desk_that_allows, journal
):
    client = through(wants={"deaf": True})

    assert "NOT made" in words(client.call("note", text="one"))
    assert journal.lines == []


def test_a_result_that_is_too_large_to_be_kept_reaches_the_client_whole(
    through, desk_that_allows, journal
):
    client = through()

    whole = client.call("big", bytes=9_000_000)
    again = client.call("big", bytes=9_000_000)

    assert len(words(whole)) == 9_000_000
    assert "NOT made again. Its answer is not kept" in words(again)
    assert len(journal.lines) == 1


def test_a_run_of_another_name_is_the_callers_to_end(through, desk_that_allows):
    client = through("--run", "run_7", "--prefix", "odd.", "--on-behalf-of", "mia=Mia Li")
    client.call("note", text="one")
    client.call("note", meta={"amends/run": "run_8"}, text="one")
    client.call("note", meta={"amends/op": "second"}, text="one")
    client.leave()

    assert desk_that_allows.types() == [
        *["run.started", "action.succeeded"] * 2, "action.succeeded",
    ]  # fmt: skip
    runs = [one["run"] for one in desk_that_allows.journal()]
    assert runs == ["run_7", "run_7", "run_8", "run_8", "run_7"]
    assert desk_that_allows.journal()[0]["data"]["on_behalf_of"]["name"] == "Mia Li"
    assert desk_that_allows.journal("begin")[0]["data"]["tool"] == "odd.note"


def test_an_inverse_that_the_server_names_is_a_suggestion(through, desk_that_allows, tmp_path):
    tools = tmp_path / "tools.toml"
    tools.write_text('connection = "odd"\n')
    client = through("--tools", str(tools))
    client.call("inverse")
    client.leave()

    [told] = [
        one["data"] for one in desk_that_allows.journal() if one["type"] == "action.succeeded"
    ]
    assert told["compensation"] == {
        "connection": "odd", "operation": "call_tool",
        "args": {"tool": "note", "arguments": {"text": "undone"}},
    }  # fmt: skip
