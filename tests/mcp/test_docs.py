"""What docs/mcp.md prints is read and started as it is printed; the stories use it, too."""

import os
import re
import shlex

import httpx
import pytest

from tests.mcp.conftest import Gateway, RawClient, files_server, python, wait_for, words
from tests.mcp.test_story import PAGE, printed
from tests.ports import free_port
from tests.sdk.conftest import KEY

SERVER = "npx @modelcontextprotocol/server-filesystem /home/mia/notes"


def test_the_lines_of_the_page_stand_between_a_client_and_the_file_server(
    desk_that_allows, tmp_path
):
    (tmp_path / "files.toml").write_text(printed("toml")[0])
    (line,) = re.findall(rf"^    amends mcp-gateway (.*) -- {SERVER}$", PAGE, re.MULTILINE)
    flags = line.replace("files.toml", str(tmp_path / "files.toml"))
    server = files_server(tmp_path)
    gateway = Gateway(
        desk_that_allows.url, KEY, tmp_path / "agent.sqlite", server, *shlex.split(flags)
    )
    client = RawClient(gateway)

    wrote = client.call("write_file", path=f"{tmp_path}/a.txt", content="new")
    (tmp_path / "b.bin").write_bytes(b"\xff\xfe")
    client.call("write_file", path=f"{tmp_path}/b.bin", content="text")
    client.call("write_file", path=f"{tmp_path}/a.txt", content="newer")
    client.leave()
    assert re.search(rf"^amends mcp-gateway -- {SERVER}$", PAGE, re.MULTILINE)
    alone = RawClient(Gateway(desk_that_allows.url, KEY, tmp_path / "alone.sqlite", server))
    alone.call("write_file", path=f"{tmp_path}/c.txt", content="new")
    alone.leave()

    assert words(wrote).startswith("Successfully wrote")
    *asked, bare = [one["data"] for one in desk_that_allows.journal("begin")]
    assert (bare["tool"], bare["targets"], "compensation" in bare) == ("write_file", [], False)
    undos = [one["compensation"] for one in asked]
    assert undos[0] == {"none": "it was not there before, and nothing here takes a file away"}
    assert undos[1] == {"none": "the file is no text, and only text can be written back"}
    assert (undos[2]["connection"], undos[2]["operation"]) == ("files", "restore_file")
    assert undos[2]["args"]["was"]["bytes"] == 3


@pytest.fixture
def shell(desk_that_allows, tmp_path):
    """Runs a line as whoever has installed `amends` and npm would: only the folder, the port and
    the secret are a test's own. `npx` is a stand-in that starts what npm has installed here.
    """
    programs = tmp_path / "bin"
    programs.mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "files.toml").write_text(printed("toml")[0])
    node, program, _ = files_server("")
    for name, command in {
        "amends": f'exec {python()} -m amends "$@"',
        "npx": f'test "$1" = @modelcontextprotocol/server-filesystem && shift || exit 1\n'
        f'exec {node} {program} "$@"',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{command}\n")
        (programs / name).chmod(0o755)

    def run(line):
        gateway = Gateway(desk_that_allows.url, KEY, tmp_path / "agent.sqlite", None)
        gateway.environment["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
        here = line.replace("/home/mia/notes", str(tmp_path / "notes"))
        here = here.replace("files.toml", str(tmp_path / "files.toml"))
        gateway.command = ["sh", "-c", f"exec env {here}"]
        return gateway

    return run


def test_each_line_of_the_page_runs_in_a_shell(shell, tmp_path):
    lines = re.findall(r"^(?: {4})?((?:[A-Z_]+=\S+ )?amends mcp-.*)$", PAGE, re.MULTILINE)
    gateways = [line for line in lines if line.startswith("amends mcp-gateway --")]
    [twins] = [line for line in lines if "amends mcp-twins" in line]
    [server] = [line for line in lines if line.startswith("amends mcp-server")]
    assert sorted(lines) == sorted([*gateways, twins, server])

    for number, line in enumerate(gateways):
        client = RawClient(shell(line))
        wrote = client.call("write_file", path=f"{tmp_path}/notes/{number}.txt", content="new")
        client.leave()
        assert words(wrote).startswith("Successfully wrote"), line
    own = RawClient(shell(server))
    assert own.initialized["serverInfo"]["name"]
    own.leave()

    port = str(free_port())
    secret = "whsec_" + "QUJD" * 8
    running = shell(twins.replace("8901", port).replace("whsec_…", secret)).start()
    try:
        wait_for(lambda: answers(f"http://127.0.0.1:{port}"), twins)
    finally:
        running.stop()


def answers(url):
    """Whether somebody listens there, and takes what nobody has signed for no order."""
    try:
        return httpx.post(url, content=b"{}").status_code == 401
    except httpx.TransportError:
        return False


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("conection = 'x'", "nothing here is called conection"),
        ("[targets.file]\nabsent = 'x'", "targets.file: say under read which tool reads it"),
        ("[targets.file]\nread = 'x'", "targets.file.read: give a tool and its arguments"),
        ("[tools.note]\nclass = 'harmless'", "tools.note: class is one of"),
        ("[tools.note]\ntarget = 'x'", "tools.note: target is a kind and a template"),
        ("[tools.note]\nreads = true", "tools.note: nothing here is called reads"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_place(text, says, tmp_path):
    from amends.mcp.mapping import load

    (tmp_path / "tools.toml").write_text(text)

    with pytest.raises(ValueError, match=re.escape(says)):
        load(tmp_path / "tools.toml")


def test_both_files_of_the_page_are_read(tmp_path):
    from amends.mcp.mapping import load

    for number, text in enumerate(printed("toml")):
        (tmp_path / "tools.toml").write_text(text)
        assert load(tmp_path / "tools.toml").connection == ["files", "repository"][number]
