"""The desk's way to undo over a server: each key once, from the safe, and read again afterwards."""

import hashlib
import json
import os
import time

import httpx
import pytest

from amends import webhooks
from amends.mcp.mapping import Safe
from tests.mcp.conftest import SECRET, Gateway, RawClient, files_server, words
from tests.mcp.test_story import printed
from tests.sdk.conftest import KEY


@pytest.fixture
def written(desk_that_allows, tmp_path):
    """A file that an agent wrote over through the gateway: its path, and how it was."""
    path, tools = tmp_path / "notes" / "plan.txt", tmp_path / "files.toml"
    path.parent.mkdir()
    path.write_bytes(b"first\r\n")
    tools.write_text(printed("toml")[0])
    here = desk_that_allows.url, KEY, tmp_path / "agent.sqlite", files_server(path.parent)
    client = RawClient(Gateway(*here, "--tools", str(tools)))
    client.call("write_file", path=str(path), content="second")
    client.leave()
    [planned] = desk_that_allows.journal("begin")
    return path, planned["data"]["compensation"]["args"]["was"]


@pytest.fixture
def ask(desk_that_allows, tmp_path, written, twins):
    """Ask as the desk does; the answer."""
    tools = tmp_path / "files.toml"
    url = twins(desk_that_allows.url, KEY, files_server(written[0].parent), tools)

    def asking(do, was, *, key="key-1", path=written[0], operation="restore_file"):
        body = json.dumps(
            {"v": 1, "do": do, "operation": operation, "key": key, "args": {"was": was},
             "target": {"type": "file", "id": str(path)}}
        ).encode()  # fmt: skip
        at = int(time.time())
        signature = webhooks.sign(SECRET, message_id="m", timestamp=at, body=body)
        headers = {
            "webhook-id": "m", "webhook-timestamp": str(at), "webhook-signature": signature,
        }  # fmt: skip
        return httpx.post(url, content=body, headers=headers, timeout=60).json()

    return asking


def test_a_key_is_done_once_and_what_somebody_wrote_since_stays(written, ask):
    path, was = written
    assert ask("observe", was)["observed"]["state"]["bytes"] == len(b"second")

    done = ask("apply", was)
    assert (done["outcome"], done["observed"]["state"]) == ("applied", was)
    assert path.read_bytes() == b"first\r\n"
    path.write_bytes(b"third")

    assert ask("apply", was) == done
    assert ask("probe", was)["outcome"] == "applied"
    assert path.read_bytes() == b"third"


def test_what_is_not_kept_or_no_longer_what_it_was_is_not_written(written, ask, tmp_path):
    path, was = written
    [kept] = (tmp_path / "agent.sqlite.safe").iterdir()
    assert kept.stat().st_mode & 0o077 == 0
    kept.write_bytes(b"somebody else's words")

    assert ask("apply", was)["outcome"] == "no_effect"
    never = {"sha256": hashlib.sha256(b"never").hexdigest(), "bytes": 5}
    assert ask("apply", never, key="key-2")["outcome"] == "no_effect"
    assert ask("apply", {"sha256": "../../agent.sqlite"}, key="key-3")["outcome"] == "no_effect"
    assert ask("apply", None, key="key-4")["outcome"] == "no_effect", "nothing here removes a file"
    outside = ask("apply", was, key="key-5", path="/etc/hosts")
    assert outside["outcome"] == "unknown", "the server does not let it be read"
    assert path.read_bytes() == b"second"


def test_what_cannot_be_kept_is_not_overwritten(desk_that_allows, tmp_path):
    path, tools, safe = tmp_path / "notes" / "plan.txt", tmp_path / "files.toml", tmp_path / "safe"
    path.parent.mkdir()
    path.write_bytes(b"first")
    tools.write_text(printed("toml")[0])
    safe.write_text("no folder can be made here")
    here = desk_that_allows.url, KEY, tmp_path / "agent.sqlite", files_server(path.parent)
    client = RawClient(Gateway(*here, "--tools", str(tools), AMENDS_SAFE=str(safe)))

    result = client.call("write_file", path=str(path), content="second")
    client.leave()

    assert "NOT made: how it was cannot be kept" in words(result)
    assert path.read_bytes() == b"first"
    assert [one["data"]["outcome"] for one in desk_that_allows.journal()
            if one["type"] == "action.failed"] == ["no_effect"]  # fmt: skip


def test_the_safe_lets_go_of_what_no_run_of_the_last_month_has_touched(tmp_path):
    folder, day = tmp_path / "safe", 24 * 3600
    ages = {b"of last year": 401, b"of spring, used again": 300, b"of spring": 200, b"young": 29}
    Safe(folder).put(b"of spring, used again")
    for raw, days in ages.items():
        Safe(folder).put(raw)
        kept, then = folder / hashlib.sha256(raw).hexdigest(), time.time() - days * day
        os.utime(kept, (then, then))
    left = folder / f"{'0' * 64}.7.abc"
    left.write_bytes(b"of a gateway that was killed")
    os.utime(left, (1, 1))
    assert Safe(folder).get(hashlib.sha256(b"of spring, used again").hexdigest())

    Safe(folder).put(b"new")
    assert len(list(folder.iterdir())) == 4, "by age alone"
    Safe(folder, bytes_max=1).put(b"newer")

    names = {hashlib.sha256(raw).hexdigest()
             for raw in (b"of spring, used again", b"young", b"new", b"newer")}  # fmt: skip
    assert {one.name for one in folder.iterdir()} == names
    for one in folder.iterdir():  # as where the clock has gone two years ahead since
        os.utime(one, (one.stat().st_mtime - 730 * day,) * 2)
    Safe(folder, bytes_max=1).put(b"newest")
    assert {one.name for one in folder.iterdir()} > names
