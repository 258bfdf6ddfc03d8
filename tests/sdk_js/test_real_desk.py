"""The client in TypeScript against the desk itself: Ben decides, Ada lets a failed run go on."""

import subprocess
from pathlib import Path

import pytest

from approvals import inbox
from tests import npm
from tests.sdk.conftest import northwind, token, web  # noqa: F401 - fixtures
from tests.sdk.test_real_gate import action_of, ben, when_asked  # noqa: F401
from tests.sdk.test_real_resume import ada, resume  # noqa: F401

pytestmark = pytest.mark.django_db(transaction=True)
AGENT = Path(__file__).parent / "agents" / "trip.ts"


@pytest.fixture
def agent(web, token, tmp_path):  # noqa: F811
    """A process of the agent; gives all that was done outside so far."""

    def acts(how, spool="spool"):
        outside = tmp_path / "outside"
        command = [npm.NODE, AGENT, web.url, token, tmp_path / spool, outside, how]
        subprocess.run([str(word) for word in command], timeout=120, check=True)
        return outside.read_text("utf-8").splitlines()

    return acts


def test_a_risky_call_waits_for_ben_who_sees_what_will_run(agent, northwind, ben):  # noqa: F811
    from ledger.desk_events import masking_key

    thread = when_asked(
        lambda asked: inbox.grant(asked, by=ben, seen=asked.digest, reason="checked with Mia")
    )
    outside = agent("charges")
    thread.join()

    kept = action_of("run_4", "charge_card")
    card = masking_key(northwind).placeholder("card", "4242424242424242")
    assert outside == ["charged 9007199254740993"]
    assert kept.args == {"amount": 9007199254740993, "card": card}
    assert (kept.state, kept.result) == ("succeeded", {"charged": 9007199254740993})
    assert kept.run.state == "completed"


def test_what_was_allowed_for_one_account_is_paid_to_no_other(agent, ben):  # noqa: F811
    """Under the same key: only the same account in another spelling is the same payment."""
    thread = when_asked(lambda asked: inbox.grant(asked, by=ben, seen=asked.digest))
    outside = agent("pays")
    thread.join()

    assert outside[:3] == ["paid DE89370400440532013000", *["told that it was paid"] * 2]
    assert outside[3:10] == ["KeyReused"] * 7
    assert outside[10:] == ["Refused"], "a placeholder without a mark compares with nothing"


def test_a_failed_run_goes_on_on_another_machine_and_does_nothing_twice(agent, ada):  # noqa: F811
    assert agent("fails") == ["moved", "NoEffect"]
    resume(ada)

    outside = agent("goes on", spool="of another machine")

    assert outside[2:] == ['goes on with {"next":"mail"}', "moved before", "mailed"]
    kept = action_of("order-4711", "send_mail")
    assert (kept.state, kept.run.state) == ("succeeded", "completed")
