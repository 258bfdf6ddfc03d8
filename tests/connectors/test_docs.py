"""A newcomer copies the guide's connector and its test, and both work."""

import re
import sys
import types
from pathlib import Path

import pytest

from connectors.conformance import (
    PROMISES,
    PromiseBroken,
    Trial,
    a_lost_answer_is_no_refusal,
)
from connectors.contract import Refused, Target
from connectors.registry import faults_of

GUIDE = Path(__file__).parents[2] / "docs" / "connectors.md"


@pytest.fixture
def pager_class():
    [source] = re.findall(r"```python\n(# amends_pager\.py.*?)```", GUIDE.read_text(), re.DOTALL)
    module = types.ModuleType("amends_pager")
    sys.modules["amends_pager"] = module
    exec(compile(source, "amends_pager.py", "exec"), module.__dict__)  # noqa: S102 - our own guide
    yield module.Pager
    del sys.modules["amends_pager"]


@pytest.fixture
def trial(pager_class, outsides, outbound):
    pager = outsides("pager")
    outbound.append("127.0.0.1")

    def set_to(state):
        return lambda: pager.ask("POST", "/alarms/a-1", {"state": state})

    return Trial(
        connector=pager_class(),
        operation="silence",
        settings={"url": pager.at["url"]},
        credential={"token": "canary-pager"},
        target=Target("alarm", "a-1"),
        args={"reason": "raised by mistake"},
        expected={"state": "ringing"},
        arrange=set_to("ringing"),
        effects=lambda: int(pager.ask("GET", "/alarms/a-1")["state"] == "silent"),
        disturb=set_to("escalated"),
        unreachable={"url": "http://127.0.0.1:9"},
    )


def test_the_guides_connector_is_whole(pager_class):
    assert list(faults_of(pager_class(), "pager")) == []


def test_whoever_takes_a_lost_answer_for_a_refusal_is_told(trial, pager_class, monkeypatch):
    """The mistake that costs most: the desk would believe it and do it a second time."""
    right = pager_class._send

    def send(self, call, method, body=b""):
        try:
            return right(self, call, method, body)
        except Exception as lost:
            raise Refused("The pager did not answer.") from lost

    monkeypatch.setattr(pager_class, "_send", send)

    with pytest.raises(PromiseBroken, match="answer 1 was lost, and it is said to be undone"):
        a_lost_answer_is_no_refusal(trial)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_the_guides_connector_keeps_its_promises(trial, promise):
    promise(trial)
