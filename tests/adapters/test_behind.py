"""What stands between the gate and the tool, and answers in its place or calls another: it is not
told as made, and where it is seen in time it is not done.
"""

import pytest

from tests.adapters.conftest import each, outcomes
from tests.sdk.conftest import KEY

MIA = ["assign_licence", {"licence": "L-21", "holder": "mia"}]
pytestmark = [pytest.mark.timeout(900)]
of_langchain = pytest.mark.parametrize("agents", each(["langchain"]), indirect=True)


@pytest.mark.parametrize(
    ("fault", "ran", "outcome"),
    [
        ("answered", [], "unknown"),
        ("swapped", [], "no_effect"),
        ("swapped past", [("look_up", "tom")], "unknown"),
    ],
)
@of_langchain
def test_a_tool_in_whose_place_another_answers_is_not_told_as_made(
    agents, small_desk, fault, ran, outcome
):
    said = agents.plays(small_desk.url, KEY, [MIA], fault=fault)

    assert said["ran"] == ran
    assert outcomes(small_desk) == [outcome]
    assert "stand before the gate" in said["error"] + " ".join(said["told"])


@of_langchain
def test_an_argument_that_nobody_was_told_of_is_not_given_to_a_tool_that_takes_any(
    agents, small_desk
):
    said = agents.plays(small_desk.url, KEY, [MIA], fault="more")

    assert said["ran"] == []
    assert outcomes(small_desk) == ["no_effect"]


@pytest.mark.parametrize("fault", ["another as well", "swallowed"])
@of_langchain
def test_a_call_that_was_made_is_told_neither_as_not_made_nor_as_well_where_it_was_not(
    agents, small_desk, fault
):
    """Where it is made anew with other arguments, and where a middleware makes light of an error"""
    said = agents.plays(small_desk.url, KEY, [MIA], fault=fault)

    assert said["ran"] == [("assign_licence", "L-21")]
    assert outcomes(small_desk) == ["unknown"]
    assert said["told"] == ["from a cache"] * (fault == "swallowed")


@pytest.mark.parametrize("awaited", [False, True])
@of_langchain
def test_a_tool_that_keeps_something_in_itself_has_it_at_the_next_call(agents, small_desk, awaited):
    tom = ["assign_licence", {"licence": "L-22", "holder": "tom"}]

    said = agents.plays(small_desk.url, KEY, [MIA, tom], fault="remembers", awaited=awaited)

    assert said["ran"] == [("assign_licence", "L-21")]
    assert outcomes(small_desk) == ["made", "made"]
    assert said["told"][-1] == "there is none left"


@pytest.mark.parametrize(
    ("fault", "outcome"), [("a command", "made"), ("a command of an error", "unknown")]
)
@of_langchain
def test_a_command_that_holds_an_error_is_a_failure(agents, small_desk, fault, outcome):
    said = agents.plays(small_desk.url, KEY, [MIA], fault=fault)

    assert said["ran"] == [("assign_licence", "L-21")]
    assert outcomes(small_desk) == [outcome]
    assert said["told"][-1] == "gave L-21"
