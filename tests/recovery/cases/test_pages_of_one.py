"""A page of one thing that holds many asks as often for nine of them as for two.

The walk goes over the URL configuration itself: a page with a parameter that is neither counted nor
said to hold no rows fails.
"""

import re

import pytest

from approvals import named_lists
from approvals.models import Approval
from connectors.models import CallLog, CallOutcome
from recovery import corrections
from recovery.casework import bulk
from tests.recovery.cases import test_lists
from tests.recovery.cases.cast import stands, submitted
from tests.recovery.cases.test_disclosure import W, routes
from tests.recovery.cases.test_lists import asked_again, asked_for
from tests.recovery.cases.test_roles import BY_ROUTE

pytestmark = pytest.mark.django_db
reader = test_lists.reader

TABS = ("evidence", "related", "activity", "correction")
# Each page, and of which of the things made below it is.
COUNTED = {
    **{f"cases/<int:pk>/?tab={tab}": "case" for tab in TABS},
    "cases/<int:pk>/outlook/": "case", "cases/<int:pk>/compensate/": "case",
    "cases/<int:pk>/resume/": "case", "cases/<int:pk>/close/": "case",
    "cases/<int:pk>/": "planned", "cases/<int:pk>/progress/": "planned",
    "cases/<int:pk>/settle/": "doubtful",
    "runs/<path:run>/": "run", "report/<path:run>/": "run",
    "causes/<str:fingerprint>/": "cause",
    "bulk/<int:pk>/": "job", "bulk/<int:pk>/progress/": "job",
    "corrections/<int:pk>/": "correction", "corrections/<int:pk>/preview/": "correction",
    "approvals/<int:pk>/": "approval",
    "policies/lists/<slug:name>/": "list", "connectors/<slug:name>/": "connection",
}  # fmt: skip
NO_ROWS = {
    "settings/keys/<int:pk>/first/": "one key", "residue/<int:pk>/": "one thing left over",
    "policies/<int:number>/": "one document", "views/<slug:slug>/": "leads to the queue",
    "ledger/<path:event>/": "one event", "ledger/event/<path:event>/": "one event",
    "ledger/proof/<path:event>/": "a file", "ledger/snapshots/<str:sha256>/": "a file",
    "approvals/<int:pk>/<slug:name>.json": "a file",
    "approvals/<int:pk>/signed/<int:decision>/": "a file",
    "approvals/<int:pk>/outcome/": "a part of its card",
    "approvals/<int:pk>/alike/": "counted where alike questions are told",
    "cases/<int:pk>/confirm/": "one plan", "x/<path:query>": "leads elsewhere",
}  # fmt: skip


def test_every_page_of_one_thing_is_counted_or_says_why_not():
    found = {one.removeprefix(W) for one in routes() if one.startswith(W) and "<" in one[len(W) :]}
    pages = {one for one in found if BY_ROUTE[W + one][0] is not None}

    assert pages - {one.partition("?")[0] for one in COUNTED} - set(NO_ROWS) == set()


@pytest.fixture
def works(begin_run, shop, shop_connection, ticket):
    """The case of a run that changed so many tickets, `each` somebody else's, and failed."""

    def tells(run, count, *, tool="tickets.update", kind="ticket", each=False, message=""):
        told = begin_run(run)
        for number in range(count):
            row = ticket | {"id": f"{run}-{number}", "priority": "high"}
            stands(shop, row)
            target = {"type": kind, "id": f"main/{row['id']}"}
            effect = {"target": target, "before": row | {"priority": "normal"}, "after": row}
            if each:
                effect["affects"] = {"id": f"eve-{number}"}
            action = told.plans(tool, (kind, target["id"]))
            told.send("action.succeeded", action, attempt="1", effects=[effect])
        told.ends("failed", failed_action=told.fails("mail.send", message=message or f"504 {run}"))
        return told.case()

    return tells


@pytest.fixture
def make(acme, ada, reader, works, begin_run, shop_connection):
    """Each of these things with so many of what it holds: where it is, by its name."""

    def things(name, count):
        case = works(f"run_{name}", count, each=True)
        assert len(corrections.draft(case)) == count
        planned = works(f"run_{name}_planned", count, tool="users.update", kind="customers")
        [correction] = corrections.draft(planned)
        plan = submitted(planned, ada)
        doubtful = begin_run(f"run_{name}_doubtful")
        for number in range(count):
            doubtful.plans("tickets.update", ("ticket", f"main/T-{name}-{number}"))
        doubtful.ends("failed")
        alike = [works(f"run_{name}_{one}", 1, message=f"broke {name}") for one in range(count)]
        assert {one.cause for one in alike} == {alike[0].cause}
        seen = bulk.dry_run(acme, "close", by=ada, ids=[one.pk for one in alike])
        frozen = [
            bulk.FrozenCase(one.case.pk, one.case.revision, one.digest) for one in seen.eligible
        ]
        assert len(frozen) == count
        kept = named_lists.create(acme, f"payees_{name}", "mail")
        for number in range(count):
            entry = named_lists.NewEntry(f"{name}{number}@example.com")
            named_lists.change(kept, by=ada, add=[entry])
            CallLog.objects.create(
                connection=shop_connection, method="observe", operation="restore_row",
                milliseconds=3, target=f"ticket/{number}", outcome=CallOutcome.APPLIED,
            )  # fmt: skip
        approval = Approval.objects.get(plan_id=plan.pk)
        return {
            "case": case.pk, "planned": planned.pk,
            "doubtful": doubtful.case().pk, "run": case.run.run,
            "cause": alike[0].cause.fingerprint,
            "job": bulk.start(acme, "close", by=ada, reason="Same cause", frozen=frozen).pk,
            "correction": correction.pk, "approval": approval.pk, "list": kept.name,
            "connection": shop_connection.name,
        }  # fmt: skip

    return things


def test_a_page_of_one_thing_asks_as_often_for_nine_that_it_holds_as_for_two(make, reader):
    def asked(places):
        found = {}
        for page, thing in COUNTED.items():
            path = re.sub(r"<[^>]*>", str(places[thing]), page)
            asked_for(reader, path)  # what a process learns once, it has learnt
            found[page] = asked_for(reader, path)
        return found

    few, many = asked(make("few", 2)), asked(make("many", 9))

    assert not (again := asked_again(few, many)), "\n".join(again)
