"""A call that is left while the desk is asked is not begun, and one that is left half-way may have
been made.
"""

import subprocess

import pytest

from tests.adapters.conftest import bare_environment, each, environment_of
from tests.sdk.conftest import KEY

MIA = ["assign_licence", {"licence": "L-21", "holder": "mia"}]
pytestmark = [pytest.mark.timeout(900)]

INTERRUPTED = """
import asyncio, sys, urllib.request
import amends
from claude_agent_sdk import ClaudeAgentOptions, ToolPermissionContext
from amends.adapters.claude_agent_sdk import gated

waits = asyncio.Event()
def on_wait(_):
    loop.call_soon_threadsafe(waits.set)

desk = amends.connect(*sys.argv[1:3], spool="spool", on_wait=on_wait)
options = gated(desk, ClaudeAgentOptions(setting_sources=[]))

async def story():
    global loop
    loop = asyncio.get_running_loop()
    async with desk.run("Write"):
        context = ToolPermissionContext(tool_use_id="one")
        asked = asyncio.ensure_future(options.can_use_tool("Write", {"path": "a"}, context))
        await waits.wait()
        asked.cancel()
        await asyncio.wait({asked})
        print("others:", len(asyncio.all_tasks()) - 1)
    await desk.async_driver.close()

asyncio.run(story())
desk.close()
"""


@pytest.mark.parametrize("framework", each(["claude_agent_sdk"]))
def test_a_call_that_the_program_no_longer_asks_for_is_not_waited_for(
    framework, small_desk, tmp_path
):
    """Once people agreed it would be begun, and nobody would make it or say so."""
    small_desk.control(modes={"Write": "wait"})

    done = subprocess.run(
        [environment_of(framework), "-c", INTERRUPTED, small_desk.url, KEY],
        env=bare_environment(tmp_path), cwd=tmp_path,
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip

    assert done.stdout.split() == ["others:", "0"], done.stderr


@pytest.mark.parametrize("agents", each(["pydantic_ai"]), indirect=True)
def test_a_tool_that_takes_too_long_for_its_framework_may_have_been_done(agents, small_desk):
    """Pydantic AI has the model call it again, and leaves the first call to itself."""
    said = agents.plays(small_desk.url, KEY, [MIA, MIA], fault="takes too long")

    assert said["ran"] == [("assign_licence", "L-21")]
    [failed] = [one for one in small_desk.journal() if one["type"] == "action.failed"]
    assert failed["data"]["outcome"] == "unknown"
    assert "may have happened" in " ".join(said["told"])


@pytest.mark.parametrize("agents", each(["ai", "google_adk"]), indirect=True)
def test_an_error_that_a_server_of_tools_tells_is_a_failure(agents, small_desk):
    said = agents.plays(small_desk.url, KEY, [MIA], fault="fails at its server")

    assert said["ran"] == [("assign_licence", "L-21")]
    [ended] = [one for one in small_desk.journal() if one["type"].startswith("action.")]
    assert ended["data"].get("outcome") == "unknown"
    assert "no seat is free" in said["told"][0]
