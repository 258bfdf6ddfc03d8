"""Quick starts: the first program of an agent for each framework, as the page of a new key shows it.

One entry is one framework. The programs of frameworks stand word for word in docs/frameworks.md, the
one of plain HTTP in docs/http.md, and tests run all of them.
"""

# ruff: noqa: E501 - the lines are as the pages of the docs have them

from typing import NamedTuple


class QuickStart(NamedTuple):
    """`install` and `program` as they are pasted; the key comes from the environment."""

    slug: str
    name: str
    install: str
    program: str
    note: str
    language: str = "Python"


PYTHON = """\
import amends

notes = {}
desk = amends.connect()  # AMENDS_URL, AMENDS_KEY
with desk.run("Try the desk") as run:
    args = {"text": "hello"}
    with run.action("notes.write", target=("note", "n-1"), args=args, before=None) as act:
        notes["n-1"] = act.perform(dict, **args)
        act.succeeded(after=notes["n-1"])
desk.close()
"""
_DECLARED = """\
desk = amends.connect()
move = amends.declare(target=("reservation", "{reservation}"), before=lambda reservation, **_: airline.get(reservation),
                      after=lambda _, reservation, **__: airline.get(reservation))
"""
_RUN = 'with desk.run("Move my return flight", on_behalf_of={"id": "mia", "name": "Mia Li"}):\n    '
LANGCHAIN = f"""\
import amends
from amends.adapters.langchain import AmendsMiddleware
from langchain.agents import create_agent

{_DECLARED}\
agent = create_agent(model, [update_flight], middleware=[AmendsMiddleware(desk, {{"update_flight": move}})])
{_RUN}agent.invoke({{"messages": [("user", "Move my return flight to HAT019")]}})
"""
OPENAI_AGENTS = f"""\
import amends
from agents import Agent, Runner
from amends.adapters.openai_agents import gated

{_DECLARED}\
agent = gated(desk, Agent(name="trips", model=model, tools=[update_flight]), {{"update_flight": move}})
{_RUN}Runner.run_sync(agent, "Move my return flight to HAT019")
"""
PYDANTIC_AI = f"""\
import amends
from amends.adapters.pydantic_ai import AmendsToolset
from pydantic_ai import Agent
from pydantic_ai.toolsets import FunctionToolset

{_DECLARED}\
agent = Agent(model, toolsets=[AmendsToolset(FunctionToolset([update_flight]), desk, {{"update_flight": move}})])
{_RUN}agent.run_sync("Move my return flight to HAT019")
"""
GOOGLE_ADK = f"""\
import asyncio

import amends
from amends.adapters.google_adk import gated
from google.adk.agents import Agent
from google.adk.runners import InMemoryRunner

{_DECLARED}\
runner = InMemoryRunner(Agent(name="trips", model=model, tools=gated(desk, [update_flight], {{"update_flight": move}})))
{_RUN}asyncio.run(runner.run_debug("Move my return flight to HAT019"))
"""
CURL = """\
run=run_$(date +%s)
ask() {
  curl --silent --show-error --fail-with-body "$AMENDS_URL$1" --data-binary @- \\
    --header "Authorization: Bearer $AMENDS_KEY" --header "Content-Type: application/json"
}

ask /api/v1/events <<END
[{"id": "$run-started", "type": "run.started", "run": "$run", "data": {"request": "Try the desk"}}]
END

ask /api/v1/actions/begin <<END
{"type": "action.planned", "run": "$run", "action": "act_1", "n": 1, "attempt": "$run-try-1",
 "data": {"tool": "notes.write", "targets": [{"type": "note", "id": "n-1"}], "args": {"text": "hello"},
          "before": [null]}}
END
# {"answer": "proceed", ...}: now make the call, and say how it went.

ask /api/v1/events <<END
[{"id": "$run-written", "type": "action.succeeded", "run": "$run", "action": "act_1", "n": 1,
  "data": {"attempt": "$run-try-1", "after": {"text": "hello"}}},
 {"id": "$run-completed", "type": "run.completed", "run": "$run", "data": {}}]
END
"""
YOURS = "Put your model and your tools in place of model, update_flight and airline."

QUICK_STARTS = (
    QuickStart("python", "Plain Python", "pip install ./sdk", PYTHON,
               "It writes into a dict and nowhere else."),
    QuickStart("langchain", "LangChain and LangGraph", 'pip install "./sdk[langchain]"', LANGCHAIN,
               YOURS),
    QuickStart("openai-agents", "OpenAI Agents SDK", 'pip install "./sdk[openai-agents]"',
               OPENAI_AGENTS, YOURS),
    QuickStart("pydantic-ai", "Pydantic AI", 'pip install "./sdk[pydantic-ai]"', PYDANTIC_AI,
               YOURS),
    QuickStart("google-adk", "Google ADK", 'pip install "./sdk[google-adk]"', GOOGLE_ADK, YOURS),
    QuickStart("http", "Plain HTTP", "", CURL, "It makes no call at all, and says that it wrote.",
               "shell"),
)  # fmt: skip
