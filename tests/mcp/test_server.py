"""An agent reads its own record over MCP, and reports a mistake; against the real desk."""

import json

import pytest

from tests.mcp.conftest import Gateway, RawClient, words

pytestmark = [pytest.mark.django_db(transaction=True)]


def test_an_agent_asks_why_it_was_stopped_and_reports_its_own_mistake(
    real_desk, web, token, tmp_path
):
    with real_desk.run("Move it", run="run_1") as run:
        with run.action(
            "update_flight", target=("reservation", "X"), effect_class="read_only"
        ) as act:
            act.failed("there is no such flight", outcome="no_effect")
        run.fail(RuntimeError("no flight"))
    real_desk.flush(20)
    gateway = Gateway(web.url, token, tmp_path / "other.sqlite", [])
    gateway.command[3:] = ["mcp-server"]
    client = RawClient(gateway)

    tools = {one["name"]: one["annotations"] for one in client.ask("tools/list")["tools"]}
    reported = read(client.call("report_mistake", run="run_1", text="I moved the wrong one"))
    why = read(client.call("why_stopped", run="run_1"))
    cases = read(client.call("list_cases", run="run_1"))["cases"]
    case = read(client.call("read_case", case=reported["case"]))
    unknown = client.call("read_run", run="somebody_elses")
    client.leave()

    assert set(tools) == {"read_run", "list_cases", "read_case", "why_stopped", "report_mistake"}
    assert [name for name, said in tools.items() if not said["readOnlyHint"]] == ["report_mistake"]
    assert (why["state"], why["calls"][0]["tool"]) == ("failed", "update_flight")
    assert [one["id"] for one in cases] == [reported["case"]] == [case["id"]]
    assert unknown["isError"]
    assert "404" in words(unknown)


def read(result):
    return json.loads(words(result))
