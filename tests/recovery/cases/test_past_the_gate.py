"""What ran past the gate is a case, however it is told; what was imported is listed instead."""

import dataclasses
import json
from datetime import timedelta

import pytest
from django.utils import timezone

from approvals import card_context, dry_run, inbox, versions
from approvals.models import Approval, PolicyVersion
from approvals.policy import active
from ledger.models import Action, Run
from recovery.casework import closing
from recovery.models import Case, CaseOutcome
from recovery.triage import triage
from tests.approvals.cast import put_in_force
from tests.approvals.door import Agent, planned
from tests.people import logged_in
from tests.recovery.cases.cast import AgentRun
from workspaces import keys
from workspaces.models import User

pytestmark = pytest.mark.django_db(transaction=True)

DELETE = {
    "tool": "repos.delete",
    "targets": [{"type": "repository", "id": "acme/site"}],
    "key": "key-1",
    "class": "external_irreversible",
}
TICKET = ("ticket", "main/T-182", {"priority": "low"}, {"priority": "high"})
GONE = {"target": {"type": "repository", "id": "acme/site"}, "before": {"name": "site"}}


def success_alone(run):
    run.send("action.planned", "act_1", **DELETE)
    run.send("action.succeeded", "act_1")


def success_with_a_fence_that_nobody_gave(run):
    run.send("action.planned", "act_1", **DELETE)
    run.send("action.succeeded", "act_1", attempt="1", fence=1)


def unknown_alone(run):
    run.send("action.planned", "act_1", **DELETE)
    run.send("action.failed", "act_1", attempt="1", outcome="unknown")


def out_of_order(run):
    run.send("action.succeeded", "act_1", attempt="1")
    triage.look()
    assert not Case.objects.exists(), "the plan may be on its way"
    run.send("action.started", "act_1", attempt="1")
    run.send("action.planned", "act_1", **DELETE)


def effects_without_a_plan(run):
    run.send("action.succeeded", "act_1", effects=[GONE])
    run.ends()


def success_without_a_plan(run):
    run.send("action.succeeded", "act_1")
    run.ends("cancelled")


def late_after_the_case_was_closed(run):
    run.does("repos.delete")
    run.ends()
    case = run.case()
    ada = User.objects.get(email__startswith="ada")
    known = {"outcome": CaseOutcome.EXPECTED, "reason": "we know that one", "seen": case.revision}
    closing.close(case, by=ada, **known)
    run.send("action.planned", "act_9", **(DELETE | {"key": "key-9"}))
    run.send("action.succeeded", "act_9")


@pytest.mark.parametrize(
    "story",
    [
        success_alone,
        success_with_a_fence_that_nobody_gave,
        unknown_alone,
        out_of_order,
        effects_without_a_plan,
        success_without_a_plan,
        late_after_the_case_was_closed,
    ],
    ids=lambda story: story.__name__,
)
def test_what_ran_without_a_grant_is_a_case_whatever_events_came(begin_run, ada, story):
    run = begin_run()

    story(run)

    case = run.case()
    assert case is not None
    assert case.state == "open"
    is_planned = story not in {effects_without_a_plan, success_without_a_plan}
    assert ("unapproved" if is_planned else "unplanned") in case.reasons


def test_what_is_known_to_have_come_to_nothing_or_needs_nobody_is_none(begin_run):
    run = begin_run()
    run.send("action.planned", "act_1", **DELETE)
    run.send("action.failed", "act_1", attempt="1", outcome="no_effect")
    run.send("action.planned", "act_2", tool="tickets.read", **{"class": "read_only"})
    run.send("action.succeeded", "act_2")
    run.ends()

    assert run.case() is None


def test_what_has_no_plan_is_not_hidden_by_a_run_that_goes_on(begin_run, ada):
    """An agent that says from time to time that it lives ends no run, and is never silent."""
    run = begin_run()
    run.send("action.succeeded", "act_1", effects=[GONE])
    assert run.case() is None, "the plan may be on its way"

    PolicyVersion.objects.update(activated_at=timezone.now() - timedelta(hours=1))
    Action.objects.update(finished_at=timezone.now() - timedelta(minutes=16))
    run.send("run.checkpoint", name="still_here")

    case = run.case()
    assert case is not None
    assert case.reasons == ["unplanned"]


@pytest.mark.parametrize("told", ["nothing else", "its plan, late", "that the run is over"])
def test_a_policy_that_comes_into_force_meanwhile_hides_nothing(begin_run, acme, ada, told):
    """Each action is judged by the one that was in force when it ran."""
    run = begin_run()
    if told == "nothing else":
        run.send("action.planned", "act_1", **DELETE)
    run.send("action.succeeded", "act_1", effects=[GONE])
    for text in ('{"due": {"low": "6d"}}', '{"policies": {"repos.*": {"approval": "AUTO"}}}'):
        versions.activate(versions.save(acme, text, by=ada), by=ada)
    if told == "its plan, late":
        run.send("action.planned", "act_1", **DELETE)
    if told == "that the run is over":
        run.ends()

    case = run.case()

    assert case is not None
    assert case.reasons == ["unplanned" if told == "that the run is over" else "unapproved"]


def test_a_policy_that_is_stricter_since_accuses_nobody(begin_run, acme, ada):
    versions.activate(
        versions.save(acme, '{"policies": {"repos.*": {"approval": "AUTO"}}}', by=ada), by=ada
    )
    run = begin_run()
    success_alone(run)
    first = PolicyVersion.objects.filter(workspace=acme).order_by("number").first()
    versions.activate(first, by=ada)
    run.ends()

    assert run.case() is None


class Importer(AgentRun):
    """Sends what happened elsewhere, under a key for that."""

    def __init__(self, agent, run):
        super().__init__(agent, run)
        self.key, self.token = keys.create_key(
            agent, by=None, name="history", scopes=["ingest", "import"]
        )
        self.actor = dataclasses.replace(
            self.actor, key_prefix=self.key.prefix, scopes=frozenset(self.key.scopes)
        )


def test_an_imported_run_opens_no_case_for_it_and_is_listed_as_would_have_asked(
    agent, policy, acme, ada
):
    imported = Importer(agent, "run_old")
    imported.begins(source="reported")
    imported.does("repos.delete", ("repository", "acme/site", None, None))
    imported.does("tickets.read", planned={"class": "read_only"})
    imported.ends()

    assert imported.case() is None

    found = dry_run.would_have_asked(acme, active(acme))
    assert (found.runs, found.judged, found.asked, found.denied) == (1, 2, 1, 0)
    assert [(one.run, one.tool, one.answer) for one in found.rows] == [
        ("run_old", "repos.delete", "MANUAL")
    ]
    browser = logged_in(ada)
    page = browser.get("/w/acme/policies/reported/").content.decode()
    assert "would have asked for 1 and denied 0" in page
    assert 'href="/w/acme/runs/run_old/"' in page
    assert "passed no gate here" in browser.get("/w/acme/runs/run_old/").content.decode()


def test_an_import_that_went_wrong_is_a_case_like_any_other(agent, policy):
    imported = Importer(agent, "run_old")
    imported.begins(source="reported")
    imported.does("tickets.update", ("ticket", "main/T-182", {"p": 1}, {"p": 2}))
    imported.ends("failed")

    assert imported.case().reasons == ["failed_with_effects"]


def test_an_agent_cannot_hide_behind_an_import_of_its_own(agent, policy):
    """What its own key tells of the imported run passed no gate that it should not have."""
    imported = Importer(agent, "run_old")
    imported.begins(source="reported")
    acting = AgentRun(agent, "run_old")
    acting.n = 7
    acting.does("repos.delete", ("repository", "acme/site", None, None))

    assert imported.case().reasons == ["unapproved"]


def test_an_agent_cannot_mark_its_own_run_as_imported(agent, policy):
    for scopes, status in ((["ingest", "begin"], 403), (["ingest", "import"], None)):
        token = keys.create_key(agent, by=None, name="k", scopes=scopes)[1]
        started = {"id": f"e-{status}", "type": "run.started", "run": "run_1"} | {
            "data": {"source": "reported"}
        }

        answer = Agent(token).request("POST", "/api/v1/events", [started]).json()["results"][0]

        assert answer.get("problem", {}).get("status") == status, json.dumps(answer)
    assert Run.objects.get().flags == ["reported"]
    with pytest.raises(ValueError, match="both act and import"):
        keys.create_key(agent, by=None, name="k", scopes=["ingest", "begin", "import"])


@pytest.mark.parametrize(
    ("tool", "said", "reason"),
    [
        ("tickets.read", {}, "failed_without_effects"),
        ("tickets.read", {"class": "internal_update"}, "failed_with_effects"),
        ("tickets.update", {}, "failed_with_effects"),
    ],
)
def test_a_call_that_tells_nothing_of_itself_is_what_the_catalogue_says(
    agent, policy, tool, said, reason
):
    """As over plain HTTP. The gate says so in the ledger; an agent may raise a class, and nobody
    but the gate may say there that a call reads.
    """
    acting = Agent(keys.create_key(agent, by=None, name="k")[1])
    for run in ("run_1", "run_2"):  # once by the slow path, once by the fast
        body = planned(tool, run, attempt=run, key=run)
        del body["data"]["class"]
        body["data"] |= said
        acting.send("run.started", run)
        acting.succeeded(acting.begin(body), attempt=run)
        acting.send("run.failed", run)
    triage.look()

    assert [case.reasons for case in Case.objects.all()] == [[reason]] * 2
    own = {"id": "e-1", "type": "action.started", "run": "run_1", "action": "act_9"}
    told = [own | {"data": {"attempt": "own", "class": "read_only"}}]
    [answer] = acting.request("POST", "/api/v1/events", told).json()["results"]
    assert answer["problem"]["type"].endswith("reserved")


def test_what_people_let_follow_the_pivot_is_no_case_and_the_card_says_why_they_are_asked(
    agent, acme, ada, ben
):
    """Under `order: ASK`; what they approved before the pivot had passed they are asked anew."""
    rules = {"crm.*": {"approval": "AUTO"}, "pay.*": {"approval": "MANUAL"}}
    put_in_force(acme, ada, {"policies": rules, "order": "ASK"})
    acting = Agent(keys.create_key(agent, by=None, name="k")[1])

    def begins(n, tool="crm.update", **more):
        own = {"action": f"act_{n}", "key": f"key-{n}", "attempt": f"a{n}", "args": {"n": n}}
        said = acting.begin(planned(tool, **own, **more))
        triage.look()
        return said

    def approves():
        question = Approval.objects.latest("pk")
        inbox.grant(question, by=ben, seen=question.digest, reason="fine")
        return question

    acting.send("run.started")
    assert begins(1, "pay.card").json()["answer"] == "wait"
    approves()
    acting.succeeded(begins(2, saga="pivot"), attempt="a2")

    for n, tool in ((3, "crm.update"), (1, "pay.card")):
        assert begins(n, tool).json()["answer"] == "wait", tool
        told = [row["value"] for row in card_context.why(approves()) if row["name"] == "Rule"]
        assert told[-1].startswith("The order of its run asks: after the pivot only")
        assert not any("without asking" in one for one in told)
        acting.succeeded(begins(n, tool), attempt=f"a{n}")
    assert not Case.objects.exists()

    versions.activate(versions.save(acme, json.dumps({"policies": rules}), by=ada), by=ada)
    acting.succeeded(begins(4), attempt="a4")
    triage.look()
    assert [one["action"] for one in Case.objects.get().evidence] == ["act_4"]


@pytest.mark.parametrize(
    ("keys_of_both", "told"),
    [("ab", "under two keys"), ("aa", "under one key, past the desk"), ((None, None), "")],
    ids=["two keys", "one key, by two spools while the desk was away", "without a key"],
)
def test_the_same_call_twice(begin_run, keys_of_both, told):
    run = begin_run()
    for key in keys_of_both:
        run.does("tickets.update", TICKET, planned={"args": {"to": "high"}, "key": key})
    run.ends()

    case = run.case()
    assert (case.reasons if case else []) == (["same_call_twice"] if told else [])
    assert case is None or told in case.evidence[0]["words"]


@pytest.mark.parametrize(
    ("to", "change", "reason"),
    [
        ("high", {}, "same_call_twice"),
        ("low", {}, "key_reused"),
        ("high", {"compensated": "compensated"}, None),
        ("high", {"state": "failed"}, None),
    ],
    ids=["the same call", "another call", "the first is undone", "the first had no effect"],
)
def test_one_key_of_ones_own_in_two_runs_by_two_spools_is_a_case_of_the_later_one(
    begin_run, to, change, reason
):
    """While the desk was away; with it the second call would have got the first one's answer."""
    for name, said in (("run_1", "high"), ("run_2", to)):
        run = begin_run(name)
        run.does("tickets.update", TICKET, planned={"args": {"to": said}, "key": "invoice 7"})
        run.ends()
        triage.look()
        assert name == "run_2" or not Case.objects.exists()
        Action.objects.filter(run__run="run_1").update(**change)

    case = run.case()
    assert (case.reasons if case else []) == ([reason] if reason else [])
    assert case is None or "run_1" in case.evidence[0]["words"]


def test_what_was_imported_beside_is_no_second_call_under_its_key(begin_run, agent, policy):
    for run in (Importer(agent, "run_old").begins(source="reported"), begin_run("run_2")):
        run.does("tickets.update", TICKET, planned={"key": "invoice 7"})
        run.ends()
        assert run.case() is None
