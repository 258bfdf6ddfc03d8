"""What docs/mcp.md prints is read and started as it is printed; the stories use it, too."""

import re
import shlex

import pytest

from tests.mcp.conftest import Gateway, RawClient, files_server, words
from tests.mcp.test_story import PAGE, printed
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
