"""The official clients of both languages, over stdio and HTTP, in both ages of the protocol."""

import subprocess

import pytest

from tests.mcp.conftest import (
    HERE,
    Gateway,
    is_up,
    odd,
    official,
    play,
    python,
    said_by,
    wait_for,
)
from tests.mcp.test_traps import decide
from tests.ports import free_port
from tests.sdk.conftest import KEY

CALLS = [["note", {"text": "one"}], ["note", {"text": "one"}], ["fail", {}]]


@pytest.fixture
def gateway(desk_that_allows, tmp_path, journal):
    return Gateway(desk_that_allows.url, KEY, tmp_path / "agent.sqlite", odd(journal.path))


@pytest.mark.parametrize("way", ["stdio", "http"])
@pytest.mark.parametrize("client", ["python", "typescript"])
def test_an_official_client_notices_nothing_but_the_answers(
    client, way, gateway, listening, desk_that_allows, journal
):
    here = {"url": listening()} if way == "http" else {"command": gateway.command}

    said = play(client, gateway, CALLS, **here)

    assert "note" in said["tools"]
    [first, again, failed] = said["told"]
    assert (first, failed) == (["note is done", False], ["there is no such thing", True])
    assert "NOT made again" in again[0]
    assert journal.lines == ['note {"text": "one"}', "fail {}"]
    wait_for(lambda: desk_that_allows.types()[-1] == "run.failed", "the session's run has ended")


@pytest.mark.parametrize("client", ["python", "typescript"])
def test_a_client_opens_the_card_and_the_call_is_made_after_the_yes(
    client, gateway, desk_that_allows, journal
):
    desk_that_allows.control(modes={"note": "wait"})

    process = official(
        client, gateway, CALLS[:1], command=gateway.command, elicits="accept",
    )  # fmt: skip
    for line in process.stderr:
        if line == "opened\n":
            break
    assert journal.lines == []
    decide(desk_that_allows)

    said = said_by(process)
    assert said["told"] == [["note is done", False]]
    assert said["opened"] == ["http://desk/approvals/1"]
    assert journal.lines == ['note {"text": "one"}']


def test_the_newest_protocol_waits_by_input_required(desk_that_allows, tmp_path):
    """The git server and the Python client both speak it, over stdio, through the gateway."""
    subprocess.run(["git", "init", "-q", str(tmp_path / "site")], check=True)
    (tmp_path / "site" / "page.txt").write_text("new")
    server = [python(), "-m", "mcp_server_git", "--repository", str(tmp_path / "site")]
    gateway = Gateway(desk_that_allows.url, KEY, tmp_path / "agent.sqlite", server)
    desk_that_allows.control(modes={"git_add": "wait"})
    args = {"repo_path": str(tmp_path / "site"), "files": ["page.txt"]}

    declined = play(
        "python", gateway, [["git_add", args]], command=gateway.command, elicits="decline"
    )
    assert "NOT made" in declined["told"][0][0]
    process = official(
        "python", gateway, [["git_add", args]], command=gateway.command, elicits="accept"
    )
    for line in process.stderr:
        if line == "opened\n":
            break
    desk_that_allows.control(decided=[desk_that_allows.journal("begin")[-1]["data"]["key"]])

    said = said_by(process)
    assert said["version"] == "2026-07-28"
    assert said["told"] == [["Files staged successfully", False]]
    assert said["opened"] == ["http://desk/approvals/1"]
    started = desk_that_allows.journal()[0]["data"]
    assert started["request"] == "MCP session of mcp with mcp-git"


@pytest.mark.parametrize(("client", "version"), [("python", "2026-07-28"), ("typescript", "")])
def test_a_server_may_be_far_away_and_speak_the_newest_protocol(
    client, version, desk_that_allows, tmp_path, journal
):
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    command = [python(), HERE / "servers" / "listening.py", port, journal.path]
    server = subprocess.Popen([str(part) for part in command], stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: is_up(url), "the server listens")
        spool = tmp_path / "agent.sqlite"
        gateway = Gateway(desk_that_allows.url, KEY, spool, [], "--url", url)

        said = play(client, gateway, CALLS[:1], command=gateway.command)
    finally:
        server.terminate()
        server.wait()

    assert said["version"] == version
    assert said["told"] == [["note is done", False]]
    assert journal.lines == ["note one"]
    assert desk_that_allows.types() == ["run.started", "action.succeeded", "run.completed"]
