"""Law 1: one byte changed after the people's yes stops the act, and says which.

Ben approves the plan; then, before anything is sent, somebody changes one thing.
"""

import json
import re

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from approvals import grants, inbox
from approvals.models import Approval, Requirement
from connectors import accounts, connections, registry
from ledger import disclosure
from recovery.cases.lifecycle import OutOfDate
from recovery.casework import bulk
from recovery.engine import approved_calls, plan_lifecycle
from recovery.models import BulkItem, Plan, Step
from recovery.planning import plans
from recovery.views import plan_card
from tests.approvals.cast import now, put_in_force
from tests.people import person, team
from tests.recovery.engine import by_hand
from tests.recovery.engine.desk import advance, asked, plan_for, send_event, states
from tests.recovery.engine.test_starting import state_of
from tests.worlds import kept
from workspaces import keys, teams

pytestmark = pytest.mark.django_db


@pytest.fixture
@kept(in_turn=True)
def approved(case, world, outside, ada, ben):
    """A plan that Ben approved, started, with nothing sent."""
    plan = plan_for(case, world)
    approval = asked(plan, ada)
    inbox.grant(approval, by=ben, seen=approval.digest, reason="checked")
    by_hand.advance_once(plan.pk)
    assert (state_of(plan), outside.effects()) == ("running", [])
    return plan


def newest(plan):
    return plan.steps.get(position=1)


def fields_of(step):
    assert step.state == "needs_human"
    return [one["field"] for one in step.evidence["diff"]]


def test_law_1_a_changed_argument_stops_the_act_and_is_named(approved, outside):
    Step.objects.filter(pk=newest(approved).pk).update(args={"id": "c", "to": {"v": 9}})

    advance(approved)

    step = newest(approved)
    assert "not the call that was approved" in step.note
    assert [one for one in fields_of(step) if one.startswith("args")]
    [change] = [one for one in step.evidence["diff"] if one["field"] == "args.to.v"]
    assert change["now"] == 9
    assert "c" not in outside.effects()


def test_law_1_a_changed_target_stops_the_act_and_is_named(approved, outside):
    Step.objects.filter(pk=newest(approved).pk).update(target_id="d")
    outside.seed({"d": {"v": 2}})

    advance(approved)

    assert "target_id" in fields_of(newest(approved))
    assert not {"c", "d"} & set(outside.effects())


def test_law_1_a_changed_end_state_stops_the_act_and_is_named(approved, outside):
    """What must be true afterwards decides whether anything is sent, and what is called restored:
    with another one, "v 2" would be "as it should be already"."""
    wanted = newest(approved).post_condition
    assert wanted["fields"] == {"v": 1}
    changed = wanted | {"fields": {"v": 1, "w": 1}}
    Step.objects.filter(pk=newest(approved).pk).update(post_condition=changed)

    advance(approved)

    assert [one for one in fields_of(newest(approved)) if one.startswith("must_be_true")]
    assert "c" not in outside.effects()


@pytest.fixture
def told_anew(one_thing, handy, world, acme, ada):
    """The agent tells of another state once a plan is on the page, and nothing else changes."""
    args = {"id": "target.id", "to": "{'v': 1}"}
    twin = {"connection": "world", "operation": "restore", "args": args}
    document = {"policies": {"world.*": {"approval": "MANUAL"}}, "twins": {"things.*": twin}}
    put_in_force(acme, ada, document)
    told = {"tool": "things.set", "targets": [{"type": "thing", "id": "a"}]}

    def tell():
        send_event(handy, "run_1", "action.planned", "act_1", **told, before=[{"v": 9}])

    return tell


def test_what_is_restored_is_what_was_on_the_page(told_anew, one_thing, ada):
    drawn = plans.draft(one_thing)
    told_anew()

    with pytest.raises(OutOfDate, match="has changed since you saw it"):
        plans.submit(
            one_thing,
            digest=drawn.digest,
            restores=drawn.restores,
            revision=drawn.case.revision,
            by=ada,
            reason="x",
        )

    assert plans.draft(one_thing).steps[0].step.before == [{"v": 9}]


def test_many_at_once_restore_what_was_on_the_page(told_anew, one_thing, acme, ada):
    (drawn,) = bulk.dry_run(acme, "compensate", by=ada).eligible
    seen = bulk.FrozenCase(one_thing.pk, drawn.case.revision, drawn.digest, drawn.restores)
    told_anew()
    job = bulk.start(acme, "compensate", by=ada, reason="x", frozen=[seen])

    assert bulk.sweep() == 1

    assert "has changed since you saw it" in job.items.get().detail
    assert not Plan.objects.exists()


HIDDEN = re.compile(r'name="(digest|restores|revision|item)" value="([^"]+)"')


def test_the_pages_send_back_what_they_showed_to_be_restored(told_anew, one_thing, ada, client):
    client.force_login(ada)
    alone, many = f"/w/acme/cases/{one_thing.pk}/compensate/", "/w/acme/bulk/new/"
    of_one = dict(HIDDEN.findall(client.get(alone).content.decode()))
    of_many = client.get(many, {"act": "compensate", "q": "is:open"}).content.decode()
    told_anew()

    refused = client.post(alone, of_one | {"act": "commit", "why": "x"})
    client.post(many, dict(HIDDEN.findall(of_many)) | {"act": "compensate", "why": "x"})
    bulk.sweep()

    assert (refused.status_code, sorted(of_one)) == (409, ["digest", "restores", "revision"])
    assert "has changed since you saw it" in BulkItem.objects.get().detail


def test_over_http_what_was_shown_to_be_restored_is_sent_back(told_anew, one_thing, ada, client):
    _, secret = keys.create_token(one_thing.workspace, by=ada, name="test")
    client.defaults["HTTP_AUTHORIZATION"] = f"Bearer {secret}"
    case = f"/api/v1/cases/{one_thing.pk}"

    def post(address, **said):
        return client.post(address, json.dumps(said), "application/json").json()

    shown = client.get(f"{case}/preview").json()
    seen = {name: shown[name] for name in ("digest", "restores", "revision")}
    (of_many,) = post("/api/v1/bulk/preview", verb="compensate", q="is:open")["eligible"]
    item = {name: of_many[name] for name in ("case", *seen)}
    told_anew()

    assert post(f"{case}/compensate", **seen, reason="x")["status"] == 409
    post("/api/v1/bulk", verb="compensate", reason="x", cases=[item])
    bulk.sweep()

    assert item == {"case": one_thing.pk} | seen
    assert "has changed since you saw it" in BulkItem.objects.get().detail


def test_what_was_seen_with_an_older_version_is_submitted(told_anew, one_thing, acme, ada):
    """Which froze the digest alone."""
    (drawn,) = bulk.dry_run(acme, "compensate", by=ada).eligible
    seen = bulk.FrozenCase(one_thing.pk, drawn.case.revision, drawn.digest)
    job = bulk.start(acme, "compensate", by=ada, reason="x", frozen=[seen])

    assert bulk.sweep() == 1

    assert (job.items.get().state, Plan.objects.get().digest) == ("done", drawn.digest)


def test_an_older_worker_finds_the_call_as_it_knows_it(case, world):
    """Its digest is over these facts, and no other."""
    (step, *_) = plan_for(case, world).steps.order_by("position")
    facts = approved_calls.facts_of(step, step.connection).as_json()

    assert step.before == [{"v": 1}]
    assert (facts.pop("key"), facts.pop("more"), facts.pop("targets")) == ("", {}, [])
    assert sorted(facts) == [
        "args",
        "connection",
        "connection_digest",
        "connector_version",
        "fingerprint",
        "must_be_true",
        "operation",
        "target_id",
        "target_type",
    ]


def test_law_1_a_target_that_was_touched_since_stops_the_act_field_by_field(approved, outside):
    outside.seed({"c": {"v": 7}})

    advance(approved)

    step = newest(approved)
    assert step.state == "drifted"
    [change] = step.drift
    assert (change["field"], change["agent_wrote"], change["now"]) == ("v", 2, 7)
    assert "c" not in outside.effects()


def test_law_1_changed_settings_of_the_connection_stop_the_act(approved, world, ada, outside):
    connections.update(world, {"url": outside.url + "/"}, by=ada, revision=world.revision)

    advance(approved)

    assert fields_of(newest(approved)) == ["connection_digest"]
    assert states(approved) == ["needs_human"] * 3
    assert outside.effects() == []


def test_law_1_another_version_of_the_connector_stops_the_act(approved, outside, monkeypatch):
    monkeypatch.setattr(type(registry.get("outside")), "version", "1.1")

    advance(approved)

    step = newest(approved)
    assert fields_of(step) == ["connector_version"]
    assert (step.evidence["diff"][0]["approved"], step.evidence["diff"][0]["now"]) == (
        "outside@1.0",
        "outside@1.1",
    )
    assert outside.effects() == []


@pytest.mark.parametrize("purpose", connections.PURPOSES)
def test_law_1_credentials_of_another_account_stop_the_act(logged_in, approved, outside, purpose):
    """Nothing of the settings had changed, and it was done in another customer's account."""
    logged_in("eve", purposes=[purpose])

    advance(approved)

    step = newest(approved)
    assert fields_of(step) == [f"connection account to {purpose}"]
    (row,) = plan_card.differences(step, sensitive=True)
    assert (row["was"], row["now"]) == ("mia", "eve")
    assert row["field"] == {"observe": "reads as", "compensate": "writes as"}[purpose]
    assert row["note"].startswith("changed by Ada at ")
    (row,) = plan_card.differences(step, sensitive=False)
    assert (row["was"], row["now"]) == (disclosure.HIDDEN, disclosure.HIDDEN)
    assert states(approved) == ["needs_human"] * 3
    assert outside.effects() == []


@pytest.mark.parametrize("what", ["account", "settings"])
def test_who_changed_the_connection_is_looked_up_once_for_all_the_steps_that_it_stopped(
    logged_in, approved, world, client, ada, what
):
    """A page of two hundred such steps asked four hundred times."""
    if what == "account":
        logged_in("eve")
    else:
        settings = world.settings | {"url": f"{world.settings['url']}/"}
        connections.update(world, settings, by=ada, revision=world.revision)
    advance(approved)
    client.force_login(ada)

    with CaptureQueriesContext(connection) as asked_for:
        page = client.get(f"/w/acme/cases/{approved.case_id}/")

    assert states(approved) == ["needs_human"] * 3
    assert page.text.count("changed by Ada" if what == "account" else "url, by Ada") >= 3
    acts = [one["sql"] for one in asked_for if "connection.updated" in one["sql"]]
    assert len(acts) == 1


def test_a_secret_that_is_renewed_for_the_same_account_goes_on_working(logged_in, approved):
    logged_in("mia", password="another one")

    advance(approved)

    assert states(approved) == ["verified"] * 3


def test_a_credential_that_does_not_say_whose_it_is_counts_as_its_account(
    logged_in, case, world, outside, monkeypatch
):
    monkeypatch.setattr(type(registry.get("outside")), "account", lambda *_: None)
    accounts._known.clear()
    plan = plan_for(case, world)
    assert plan.accounts["world"]["compensate"].startswith("credential ")

    logged_in("mia", purposes=["compensate"])
    advance(plan)

    assert fields_of(newest(plan)) == ["connection account to compensate"]
    assert outside.effects() == []


def test_a_plan_of_an_older_version_is_bound_to_no_account(logged_in, case, world, ada, ben):
    plan = plan_for(case, world)
    plan.accounts = None
    plan.save()
    approval = asked(plan, ada)
    inbox.grant(approval, by=ben, seen=approval.digest, reason="checked")
    logged_in("eve")

    advance(plan)

    assert states(plan) == ["verified"] * 3


@pytest.mark.parametrize("said", [{"world": {"observe": "eve", "compensate": "eve"}}, None])
def test_law_1_a_plan_whose_row_says_another_account_is_bound_to_the_approved_one(
    logged_in, approved, outside, said
):
    """Who writes rows could put it beside credentials of theirs; nothing of it was approved."""
    Plan.objects.update(accounts=said)
    logged_in("eve")

    advance(approved)

    step = newest(approved)
    assert (step.state, step.note) == ("needs_human", grants.OTHER_ACCOUNTS)
    assert outside.effects() == []


def test_whose_account_it_is_was_on_the_page_and_is_in_what_is_approved(
    logged_in, told_anew, one_thing, acme, ada, ben
):
    seen = plans.draft(one_thing)
    assert ("As", "mia") in seen.steps[0].preview.rows
    logged_in("eve")
    known = {"revision": seen.case.revision, "by": ada, "reason": "x"}

    with pytest.raises(OutOfDate, match="has changed since you saw it"):
        plans.submit(one_thing, digest=seen.digest, restores=seen.restores, **known)

    now = plans.draft(one_thing)
    plan = plans.submit(one_thing, digest=now.digest, restores=now.restores, **known)
    approval = Approval.objects.get(pk=plan.approval_id)
    assert now.digest == seen.digest, "older workers hold it against what they know"
    assert approval.subject["accounts"] == {"world": {"observe": "eve", "compensate": "eve"}}
    assert ["As", "eve"] in approval.previews[0]["rows"]


def test_law_1_other_accounts_beside_the_plan_than_were_approved_start_nothing(
    logged_in, told_anew, one_thing, ada, ben
):
    seen = plans.draft(one_thing)
    known = {"revision": seen.case.revision, "by": ada, "reason": "x"}
    plan = plans.submit(one_thing, digest=seen.digest, **known)
    run = plan.case.run
    assert plan_lifecycle.why_outdated(plan, run) == ""

    for other in (None, {"world": {"observe": "mia", "compensate": "eve"}}):
        plan.accounts = other
        assert "were not approved so" in plan_lifecycle.why_outdated(plan, run)


def test_law_1_another_digest_of_the_approval_stops_the_act(approved, outside):
    by_hand.advance_once(approved.pk)
    Approval.objects.update(digest="0" * 64)

    advance(approved)

    assert states(approved) == ["verified", "needs_human", "needs_human"]
    assert outside.effects() == ["c"]


def test_what_was_approved_is_read_once_and_not_for_every_step(approved):
    with CaptureQueriesContext(connection) as asked_for:
        advance(approved)

    assert states(approved) == ["verified"] * 3
    assert len([one for one in asked_for if '"approvals_approval"."calls"' in one["sql"]]) <= 1


def test_law_1_a_stricter_rule_stops_the_act_and_is_said(approved, acme, ada, outside):
    rule = {"approval": "DENY", "words": "Nothing is restored this week"}
    put_in_force(acme, ada, {"policies": {"world.*": rule}})

    advance(approved)

    step = newest(approved)
    assert "Nothing is restored this week" in step.note
    changed = {one["field"]: (one["approved"], one["now"]) for one in step.evidence["diff"]}
    assert changed["rule.answer"] == ("AUTO", "DENY")
    assert changed["rule.because"][1] == "Nothing is restored this week"
    assert "rule.fresh log-in" not in fields_of(step), "only what differs"
    assert outside.effects() == []


@pytest.mark.parametrize(
    ("who", "now_to", "goes_on"),
    [("nora", "", False), ("nora", "leads", False), ("nora", "night", True), ("ben", "", True)],
)
def test_what_the_second_team_approved_stops_once_no_rule_asks_it(
    case, world, outside, acme, ada, ben, who, now_to, goes_on
):
    first, night = ben.groups.get().team, team(acme, "night", "view", "approve")
    people = {"ben": ben, "nora": person("nora", night)}
    person("lea", team(acme, "leads", "view", "approve"))

    def escalating(to, after):
        rule = {"approval": "MANUAL", "requires": [{"group": first.name}]}
        later = {"escalate": {"after": after, "group": to}} if to else {}
        put_in_force(acme, ada, {"policies": {"world.*": rule | later}})

    escalating("night", "10m")
    plan = plan_for(case, world)
    approval = asked(plan, ada)
    Approval.objects.update(escalated_at=Now())
    Requirement.objects.update(team=first, escalated_to=night)
    inbox.grant(approval, by=people[who], seen=approval.digest)
    by_hand.advance_once(plan.pk)

    escalating(now_to, "1h")
    advance(plan)

    assert outside.effects() == (["c", "b", "a"] if goes_on else [])
    if not goes_on:
        assert "rule.asked later" in fields_of(newest(plan))


@pytest.mark.parametrize(("who", "goes_on"), [("ada", False), ("ben", True)])
def test_what_somebody_approved_of_their_own_stops_once_no_rule_lets_them(
    case, world, outside, acme, ada, ben, who, goes_on
):
    own = {"approval": "MANUAL", "selfApproval": True}
    put_in_force(acme, ada, {"policies": {"world.*": own}})
    teams.add(ben.groups.get().team, ada, by=None)
    plan = plan_for(case, world)
    approval = asked(plan, ada)
    Approval.objects.update(self_approval=True)
    by = {"ada": ada, "ben": ben}[who]
    inbox.grant(approval, by=by, seen=approval.digest, login_at=now())
    by_hand.advance_once(plan.pk)

    put_in_force(acme, ada, {"policies": {"world.*": {"approval": "MANUAL"}}})
    advance(plan)

    assert outside.effects() == (["c", "b", "a"] if goes_on else [])
    if not goes_on:
        assert "rule.one's own" in fields_of(newest(plan))
