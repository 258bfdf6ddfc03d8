"""A tool that itself asks somebody before it does anything: the framework pauses, and calls it
again with the answer. Until then it has done nothing, and what it is told is no word of the desk's.
"""

import pytest

from tests.adapters.conftest import each, outcomes
from tests.sdk.conftest import KEY

MIA = ["assign_licence", {"licence": "L-21", "holder": "mia"}]
pytestmark = [pytest.mark.timeout(900)]
of_adk = pytest.mark.parametrize("agents", each(["google_adk"]), indirect=True)
of_pydantic_ai = pytest.mark.parametrize("agents", each(["pydantic_ai"]), indirect=True)
of_langchain = pytest.mark.parametrize("agents", each(["langchain"]), indirect=True)


@of_adk
def test_a_tool_that_asks_for_a_confirmation_is_called_once_it_has_it(agents, small_desk):
    said = agents.plays(small_desk.url, KEY, [MIA], fault="asks", resumes=["yes"])

    assert said["ran"] == [("assign_licence", "L-21")]
    assert said["told"][0] == "waits for L-21 to mia?"
    assert outcomes(small_desk) == ["no_effect", "made"]


@pytest.mark.parametrize("waits", [False, True])
@of_adk
def test_what_the_framework_asks_for_is_asked_before_the_desk_is(agents, small_desk, waits):
    small_desk.control(modes={"assign_licence": "wait"} if waits else {})

    said = agents.plays(
        small_desk.url, KEY, [MIA], fault="asked by the framework", interrupts=True,
        resumes=["yes", "yes"],
    )  # fmt: skip

    assert said["ran"] == [("assign_licence", "L-21")]
    assert outcomes(small_desk) == ["made"]


@of_adk
def test_what_a_request_for_people_was_answered_is_not_said_to_the_tool(agents, small_desk):
    small_desk.control(modes={"assign_licence": "wait"})

    said = agents.plays(small_desk.url, KEY, [MIA], fault="asks", interrupts=True, resumes=["yes"])

    assert said["ran"] == []
    assert "a confirmation of its own" in said["error"]
    assert outcomes(small_desk) == ["no_effect"]


@pytest.mark.parametrize("waits", [False, True])
@of_pydantic_ai
def test_what_a_deferral_for_people_was_answered_is_not_said_to_what_asks_within(
    agents, small_desk, waits
):
    small_desk.control(modes={"assign_licence": "wait"} if waits else {})

    said = agents.plays(
        small_desk.url, KEY, [MIA], fault="asks", interrupts=True, resumes=["yes", "yes"]
    )

    assert said["ran"] == []
    assert "an approval of its own" in said["error"]
    assert outcomes(small_desk) == ["no_effect"]


@pytest.mark.parametrize("fault", ["asked first", "asked around"])
@of_pydantic_ai
def test_what_is_asked_around_the_gate_and_what_people_are_asked_are_two(agents, small_desk, fault):
    small_desk.control(modes={"assign_licence": "wait"})

    said = agents.plays(
        small_desk.url, KEY, [MIA], fault=fault, interrupts=True, resumes=["yes", "yes"]
    )

    assert said["ran"] == [("assign_licence", "L-21")]
    assert said["told"][0] == "waits for ap_1"
    assert outcomes(small_desk) == ["made"]


@pytest.mark.parametrize("awaited", [False, True])
@of_langchain
def test_a_tool_that_asks_first_is_called_with_the_answer(agents, small_desk, awaited):
    said = agents.plays(
        small_desk.url, KEY, [MIA], fault="asks", resumes=["do it"], awaited=awaited
    )

    assert said["ran"] == [("assign_licence", "L-21")]
    assert said["told"][0] == "waits for L-21 to mia?"
    assert outcomes(small_desk) == ["no_effect", "made"]


@of_langchain
def test_what_a_pause_for_people_was_answered_is_not_said_to_the_tool(agents, small_desk):
    """It asks something else, and would take the answer for its own."""
    small_desk.control(modes={"assign_licence": "wait"})

    said = agents.plays(
        small_desk.url, KEY, [MIA], fault="asks", interrupts=True, resumes=["do it"]
    )

    assert said["ran"] == []
    assert "asks something of its own" in said["error"]
    assert outcomes(small_desk) == ["no_effect"]


@of_langchain
def test_an_agent_that_a_tool_calls_pauses_for_people_and_goes_on(agents, small_desk):
    """Both are behind the gate, and all that the graph is resumed with was said to it."""
    small_desk.control(modes={"assign_licence": "wait"})

    said = agents.plays(
        small_desk.url, KEY, [MIA], fault="handed over", interrupts=True, resumes=["go on"]
    )

    assert said["ran"] == [("assign_licence", "L-21")]
    assert said["told"][0] == "waits for ap_1"
    assert "mia" in said["told"][1]
    assert outcomes(small_desk) == ["no_effect", "made", "made"]


@of_langchain
def test_what_was_done_before_another_pauses_is_not_told_as_not_done(agents, small_desk):
    said = agents.plays(small_desk.url, KEY, [MIA], fault="reviewed", resumes=["yes"])

    assert said["ran"] == [("assign_licence", "L-21")]
    assert outcomes(small_desk) == ["unknown"]


@pytest.mark.parametrize("interrupts", [False, True])
@pytest.mark.parametrize("where", ["asks in a graph", "asks in a task"])
@of_langchain
def test_what_was_done_before_a_part_of_the_tool_asks_is_not_told_as_not_done(
    agents, small_desk, where, interrupts
):
    said = agents.plays(
        small_desk.url, KEY, [MIA], fault=where, resumes=["yes"], interrupts=interrupts
    )

    assert said["ran"] == [("assign_licence", "L-21")]
    assert outcomes(small_desk) == ["unknown"]
    assert said["told"][0] == "waits for L-21, well done?"


@of_langchain
def test_a_tool_that_a_middleware_behind_the_gate_brings_along_is_not_called(agents, small_desk):
    """Nothing would hold it to what was agreed to."""
    said = agents.plays(small_desk.url, KEY, [MIA], fault="supplied")

    assert said["ran"] == []
    assert "NOT made" in said["told"][0]
    assert small_desk.journal("begin") == []
