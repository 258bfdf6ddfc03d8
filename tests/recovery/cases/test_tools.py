"""The page of tools leads on: to what went wrong with each, what was decided, what undoes it."""

import re
from dataclasses import replace
from html import unescape

import pytest

from approvals import inbox, inventory, policy
from approvals.models import Approval
from recovery.triage import triage
from tests.approvals.cast import asker, put_in_force, refund
from tests.people import logged_in

pytestmark = pytest.mark.django_db

TOOLS = ("tickets.update", "users.update")


@pytest.fixture
def desk(acme, ben, cleo, ada, begin_run, shop_connection):
    """Of each tool one call failed, and one was decided on."""
    ask = asker(acme, ben)
    for tool in TOOLS:
        run = begin_run(f"run_of_{tool}")
        run.does(tool, ("ticket", f"main/{tool}", {"priority": "low"}, {"priority": "high"}))
        run.ends("failed", failed_action=run.fails(tool, message=f"refused by {tool}"))
        asked = ask(calls=[replace(refund(), operation=tool)])
        inbox.reject(asked, by=cleo, seen=asked.digest, reason="not today")
    triage.look()
    return logged_in(ada)


def test_each_tool_leads_to_what_went_wrong_what_was_decided_and_what_undoes_it(desk):
    lines = desk.get("/w/acme/tools/").text.split("</tr>")
    assert desk.get("/w/acme/insights/").context["cards"][0]["value"] == "2"
    for tool, other in (TOOLS, TOOLS[::-1]):
        [line] = [one for one in lines if tool.replace(".", ".<wbr>") in one]
        wrong, undone_by, decided, pause = map(unescape, re.findall(r'href="([^"]*)"', line))

        failed = desk.get(wrong)
        history = desk.get(decided)
        connection = desk.get(undone_by)

        assert failed.context["cards"][0]["value"] == "1"
        for about, is_there in ((tool, True), (other, False)):
            [asked] = Approval.objects.filter(calls__contains=[{"operation": about}])
            assert (f"/approvals/{asked.pk}/" in history.text) is is_there
        assert connection.status_code == 200
        assert "restore_row" in connection.text
        assert f'value="{tool}"' in desk.get(pause).text, "the form is filled in"


def test_because_says_only_what_the_answer_beside_it_does_not(acme, ada, begin_run):
    rules = {
        "mail.*": {"approval": "AUTO"},
        "mail.print": {"approval": "AUTO"},
        "mail.burn": {"approval": "DENY"},
        "mail.fold": {"when": "args.pages > 3", "approval": "AUTO"},
        "mail.stamp": {"approval": "AUTO", "words": "a stamp goes without asking"},
        "mail.weigh": {"risk": "LOW"},
        "cash.*": {"approval": "MANUAL"},
    }
    put_in_force(acme, ada, {"policies": rules})
    run = begin_run()
    for tool in (*(one for one in rules if "*" not in one), "mail.send", "cash.pay", "door.open"):
        run.does(tool, planned={"args": {"pages": 9}})
    known = policy.active(acme)

    found = inventory.tools(acme, known, [one.newest for one in inventory.listed(acme, known)])

    assert {one.tool: (one.answer, one.because) for one in found} == {
        "mail.send": ("AUTO", "rule mail.*"),
        "mail.print": ("AUTO", "its own rule"),
        "mail.burn": ("DENY", "its own rule"),
        "mail.fold": ("AUTO", "rule mail.fold when args.pages > 3"),
        "mail.stamp": ("AUTO", "a stamp goes without asking"),
        "mail.weigh": ("AUTO", "mail.weigh is judged by its risk"),
        "cash.pay": ("MANUAL", "cash.* needs 1 person who may approve"),
        "door.open": ("AUTO", "no rule"),
    }
    read = logged_in(ada).get("/w/acme/tools/").text
    assert "its own rule" in read
