"""The lines of docs/frameworks.md are run as they are printed, each beside its framework."""

import re
import subprocess

import pytest

from tests.adapters.conftest import FRAMEWORKS, HERE, ROOT, bare_environment, each, environment_of
from tests.sdk.conftest import KEY
from tests.sdk.test_docs import AIRLINE

PAGE = ROOT / "docs" / "frameworks.md"
TITLES = {
    "AG2": "ag2",
    "Claude Agent SDK": "claude_agent_sdk",
    "CrewAI": "crewai",
    "Google ADK": "google_adk",
    "LangChain and LangGraph": "langchain",
    "Microsoft Agent Framework": "agent_framework",
    "OpenAI Agents SDK": "openai_agents",
    "Pydantic AI": "pydantic_ai",
    "Strands Agents": "strands",
    "smolagents": "smolagents",
}
TOOL = '''
def update_flight(reservation: str, flight: str) -> dict:
    """Move a reservation to another flight."""
    return airline.update(reservation, flight=flight)
'''


def lines_of(framework):
    """What the page prints for it."""
    parts = re.split(r"^## (.+)$", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    pages = dict(zip(parts[1::2], parts[2::2], strict=True))
    (title,) = [one for one, name in TITLES.items() if name == framework]
    return re.findall(r"```python\n(.*?)```", pages[title], re.DOTALL)[0]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("framework", each(FRAMEWORKS))
def test_the_ten_lines_of_a_framework_connect_it(framework, small_desk, tmp_path):
    lines = lines_of(framework)
    script = tmp_path / "agent.py"
    models = (HERE / "agents" / "models.py").read_text("utf-8")
    script.write_text(f"{AIRLINE}{TOOL}{models}\n{lines}", "utf-8")
    here = bare_environment(tmp_path / "home") | {
        "AMENDS_URL": small_desk.url,
        "AMENDS_KEY": KEY,
        "AMENDS_SPOOL": str(tmp_path / "spool"),
        "FRAMEWORK": framework,
    }

    subprocess.run([environment_of(framework), script], env=here, check=True, timeout=180)

    assert len([line for line in lines.splitlines() if line.strip()]) <= 14
    assert small_desk.types() == ["run.started", "action.succeeded", "run.completed"]
    assert small_desk.journal("begin")[0]["data"]["before"] == [{"flight": "HAT001"}]
    [effect] = small_desk.journal()[1]["data"]["effects"]
    assert effect["after"] == {"flight": "HAT019"}
