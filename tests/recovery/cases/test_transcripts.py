"""Transcripts of past agents are imported: a team sees what they would have needed."""

import io
import json
import re
import shlex
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from approvals import dry_run
from approvals.policy import active
from config.local.places import ROOT
from ledger.models import Action, Blob, Event, Run
from recovery.models import Case
from recovery.triage import triage
from tests.people import logged_in

pytestmark = pytest.mark.django_db(transaction=True)

CARD = "4242 4242 4242 4242"
CHAT = [
    {"role": "system", "content": "You are a desk."},
    {"role": "user", "content": "Please delete our site and tell Eve."},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function",
         "function": {"name": "repos.delete",
                      "arguments": '{"repo": "acme/site", "token": "t0p"}'}},
        {"id": "c2", "type": "function",
         "function": {"name": "tickets.read", "arguments": '{"price": 1.00000000000000000001}'}},
    ]},
    {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "T-1 is open"}]},
    {"role": "tool", "tool_call_id": "c1", "content": '{"deleted": true, "card": "' + CARD + '"}'},
    {"role": "assistant", "content": "Done."},
]  # fmt: skip
RESPONSES = {
    "id": "resp_1", "object": "response", "model": "gpt-5", "created_at": 1_760_000_000,
    "input": "Refund order 7", "output": [
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "f1", "name": "cards.charge", "arguments": "{broken"},
        {"type": "function_call_output", "call_id": "f1", "output": "charged"},
        {"type": "mcp_call", "id": "m1", "name": "mail.send", "server_label": "mail",
         "arguments": '{"to": "eve@acme.example"}', "output": "sent", "error": None},
        {"type": "web_search_call", "id": "w1", "status": "failed", "action": {"query": "refunds"}},
        {"type": "hologram", "id": "h1"},
    ],
}  # fmt: skip
ANTHROPIC = {
    "conversation_id": "chat-9", "user": "eve", "messages": [
        {"role": "user", "content": "Raise T-182"},
        {"role": "assistant", "content": [
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "t1", "name": "tickets.update", "input": {"id": "T-182"}},
            {"type": "tool_use", "id": "t2", "name": "repos.delete", "input": {"repo": "x"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "is_error": True,
             "content": [{"type": "text", "text": "504 from the gateway"}]}]},
    ],
}  # fmt: skip
LANGCHAIN = [
    {"type": "human", "data": {"content": "Who is Eve?"}},
    {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"],
     "kwargs": {"content": "", "tool_calls": [
         {"name": "users.read", "args": {"name": "Eve"}, "id": "l1", "type": "tool_call"}]}},
    {"type": "tool", "content": "x" * 100_000, "tool_call_id": "l1", "status": "success"},
]  # fmt: skip


@pytest.fixture
def files(tmp_path):
    """A file of each kind; the chat was logged twice, the first time before it went on."""
    chat = tmp_path / "chat.jsonl"
    lines = [json.dumps({"messages": one}) for one in (CHAT[:3], CHAT)]
    chat.write_text("\n".join([*lines, "{not json", '{"a": 1, "a": 2}', "7"]))
    both = tmp_path / "many.json"
    both.write_text(json.dumps([ANTHROPIC, LANGCHAIN], indent=1))
    responses = tmp_path / "responses.json"
    responses.write_text(json.dumps(RESPONSES))
    return [chat, both, responses]


def import_(*paths):
    out, err = io.StringIO(), io.StringIO()
    failed = None
    try:
        call_command("import_transcripts", *map(str, paths), workspace="acme",
                     agent="ticket-desk", stdout=out, stderr=err)  # fmt: skip
    except CommandError as error:
        failed = str(error)
    return out.getvalue(), err.getvalue(), failed


def call(tool, **more):
    return Action.objects.get(tool=tool, **more)


def test_the_command_of_the_guide_imports_a_folder(agent, policy, acme, tmp_path, monkeypatch):
    """In a shell `*` is a file each."""
    guide = (ROOT / "docs" / "imports.md").read_text()
    [line] = re.findall(r"^    manage\.py (import_transcripts .*)$", guide, re.MULTILINE)
    (tmp_path / "chats").mkdir()
    for name, content in (("chats/one.jsonl", CHAT), ("runs.json", ANTHROPIC)):
        (tmp_path / name).write_text(json.dumps(content))
    monkeypatch.chdir(tmp_path)
    words = [
        one
        for word in shlex.split(line)
        for one in (sorted(map(str, Path().glob(word))) if "*" in word else [word])
    ]

    call_command(*words)

    assert Run.objects.count() == 2


def test_each_format_becomes_runs_whose_calls_are_in_order_and_masked(agent, policy, files, acme):
    out, err, _ = import_(*files)

    assert "4 runs with 8 calls" in out, err
    assert set(Run.objects.values_list("state", "flags__0")) == {("completed", "reported")}
    deleted = call("repos.delete", args__repo="acme/site")
    assert deleted.n == 1
    assert deleted.state == "succeeded"
    assert deleted.run.request == "Please delete our site and tell Eve."
    said = json.dumps([*Event.objects.values_list("data", flat=True)])
    assert "t0p" not in said
    assert CARD not in said
    assert deleted.result["deleted"] is True
    read = call("tickets.read")
    assert (read.n, read.result) == (2, "T-1 is open")
    assert read.args["price"] == "1.00000000000000000001", "no digit is lost"
    charged = call("cards.charge")
    assert (charged.args, charged.flags) == (None, ["args_missing"])
    assert charged.run.model == "gpt-5"
    assert call("mail.send").args == {"to": "eve@acme.example"}
    assert call("web_search").args == {"action": {"query": "refunds"}}
    raised = call("tickets.update")
    assert (raised.state, raised.error["message"]) == ("unknown", "504 from the gateway")
    assert raised.run.customer == "eve"
    assert call("repos.delete", args__repo="x").state == "running", "nobody knows its end"
    kept = Blob.objects.get()
    assert call("users.read").result == {"ref": f"sha256:{kept.sha256}"}


def test_what_cannot_be_read_is_told_with_its_place_and_the_rest_is_kept(agent, policy, files):
    _, err, failed = import_(*files)

    assert failed == "Not everything was recorded; what was refused is told above."
    told = err.splitlines()
    refused = [line for line in told if line.startswith("refused: chat.jsonl:")]
    assert [line.split(":")[2] for line in refused] == ["3", "4", "5"]
    assert "the name “a” stands twice" in refused[1]
    noted = [line for line in told if line.startswith("noted: ")]
    assert noted[0].startswith("noted: responses.json, message 3: the call is recorded without its")
    assert noted[1].startswith("noted: responses.json, message 7: “hologram” is no kind of")


def test_a_message_in_a_form_of_its_own_keeps_no_other_from_being_read(agent, policy, tmp_path):
    """Dumps of other programs have objects where a word is expected, and texts in texts."""
    odd = [
        {"lc": 1, "id": [[]], "kwargs": {"content": "x"}},
        {"type": "mcp_call", "name": "mail.send", "status": {}},
        {"role": "tool", "tool_call_id": "c9", "name": "mail.send", "status": []},
        {"type": "function_call_output", "call_id": "c9", "status": {"a": 1}},
    ]
    printed = {"role": "tool", "tool_call_id": "c1", "content": "{'password': 'hunter2'}"}
    path = tmp_path / "odd.json"
    path.write_text(json.dumps([*CHAT[:3], *odd, printed]))

    said, _, failed = import_(path)

    assert failed is None
    assert said.startswith("1 runs with 4 calls")
    assert not [one for one in Event.objects.all() if "hunter2" in json.dumps(one.data)]
    assert Action.objects.get(tool="repos.delete").result.startswith("⟦masked:text")


def test_importing_again_changes_nothing_and_a_longer_one_only_adds(agent, policy, files, tmp_path):
    import_(*files)
    events = Event.objects.filter(actor_kind="agent").count()

    out, _, _ = import_(*files)

    assert ": 0 events recorded" in out
    assert Event.objects.filter(actor_kind="agent").count() == events

    longer = json.loads(json.dumps(ANTHROPIC))
    longer["messages"].append({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t2", "content": "gone"}]})  # fmt: skip
    (tmp_path / "later.json").write_text(json.dumps(longer))
    out, _, failed = import_(tmp_path / "later.json")

    assert ": 1 events recorded" in out
    assert failed is None
    assert call("repos.delete", args__repo="x").state == "succeeded"


def test_two_threads_that_say_the_same_are_two_runs(agent, policy, tmp_path):
    """The second goes on where the first ended, which is no part of it."""
    first = {"thread_id": "a", "messages": CHAT[:-1]}
    second = {"thread_id": "b", "messages": CHAT}
    logged = {"thread_id": "b", "id": "request-1", "messages": CHAT[:3]}
    path = tmp_path / "threads.jsonl"
    path.write_text("\n".join(json.dumps(one) for one in (first, logged, second)))

    said, _, failed = import_(path)

    assert failed is None
    assert said.startswith("2 runs with 4 calls")


def test_the_team_sees_what_its_agents_would_have_needed(agent, policy, files, acme, ada):
    out, _, _ = import_(*files)
    triage.look()

    assert "would have asked people about 2 and denied 0" in out
    assert "http://localhost/w/acme/policies/reported/" in out
    found = dry_run.would_have_asked(acme, active(acme))
    assert {(one.tool, one.answer) for one in found.rows} == {("repos.delete", "MANUAL")}
    reasons = [*Case.objects.values_list("reasons", flat=True)]
    unsure = [["outcome_unknown"], ["outcome_unknown", "past_its_time"]]
    assert sorted(reasons) == unsure, "nothing is held against what passed no gate"
    browser = logged_in(ada)
    page = browser.get("/w/acme/policies/reported/").content.decode()
    assert "would have asked for 2 and denied 0" in page
    charged = call("cards.charge")
    page = browser.get(f"/w/acme/runs/{charged.run.run}/").content.decode()
    assert "passed no gate here" in page


def test_an_agent_or_a_workspace_that_is_not_there_is_told(agent, policy, files, acme):
    with pytest.raises(CommandError, match="no workspace “nowhere”"):
        call_command("import_transcripts", "x", workspace="nowhere", agent="a")
    with pytest.raises(CommandError, match="no agent “nobody” in acme"):
        call_command("import_transcripts", "x", workspace="acme", agent="nobody")
    _, err, failed = import_(files[0].parent / "missing.json")
    assert "missing.json: it cannot be read: No such file" in err
    assert failed
