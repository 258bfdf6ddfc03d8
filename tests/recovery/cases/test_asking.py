"""A probe ends a doubt by itself, and only if it proves something."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from connectors import calllog, calls, connections
from connectors.contract import Target
from connectors.models import CallLog, Connection
from ledger.models import Action, Attempt, Event
from recovery.engine import preconditions
from recovery.models import Case, Suggestion
from recovery.run_facts.runs import facts_of
from recovery.triage import outcome_probes
from tests.people import person, team
from tests.recovery.cases.conftest import POLICY
from tests.recovery.cases.test_api import Caller
from tests.worlds import kept
from workspaces.models import Act

PROBED = POLICY.replace(
    '"tickets.*":       {connection: shop, operation: restore_row, args: {to: before}}',
    '"tickets.*": {connection: shop, operation: restore_row, args: {to: before},'
    " probe: {connection: shop, operation: restore_row, args: {to: args.to}}}",
)


@pytest.fixture
@kept(in_turn=True)
def probed(acme, policy):
    from approvals import versions

    return versions.activate(versions.save(acme, PROBED, by=None), by=None)


@pytest.fixture  # not kept: its call may be on its way for some seconds
def doubtful(probed, begin_run, ticket):
    run = begin_run()
    args = {"to": ticket | {"priority": "high"}}
    run.plans("tickets.update", ("ticket", "main/T-182"), args=args, before=[ticket])
    run.ends("failed")
    return run


def test_a_call_that_a_probe_finds_did_happen(doubtful, shop_connection):
    action = Action.objects.get()
    calls.apply(
        shop_connection,
        "restore_row",
        action.args,
        Target("ticket", "main/T-182"),
        key=action.key,
        sent_at=timezone.now(),
    )
    assert doubtful.case().suggestion == Suggestion.SETTLE

    assert outcome_probes.sweep() == 1

    case = doubtful.case()
    assert (case.suggestion, case.unknown_count) == (Suggestion.COMPENSATE, 0)
    told = Event.objects.get(type="action.settled")
    assert (told.actor_kind, told.actor, told.data["outcome"]) == ("desk", "probe", "applied")


@pytest.fixture
def found(doubtful, shop_connection):
    """The call was made, though nobody told; its case."""
    action = Action.objects.get()
    target = Target("ticket", "main/T-182")
    now = timezone.now()
    calls.apply(shop_connection, "restore_row", action.args, target, key=action.key, sent_at=now)
    return doubtful.case()


def test_who_says_the_opposite_of_what_the_system_shows_has_to_say_that_it_is_wrong(
    client, acme, found
):
    client.force_login(person("olga", team(acme, "seniors", "view", "recover")))
    path = f"/w/acme/cases/{found.pk}/settle/"
    said = {"outcome": "no_effect", "evidence": "I see no T-182", "revision": found.revision}

    page = client.post(path, said)

    assert "The system says that it happened: A probe found it." in page.text
    assert not Event.objects.filter(type="action.settled").exists()
    [box] = re.findall(r"<input[^>]*against_probe[^>]*>", page.text)
    assert "required" not in box, "who was wrong answers as the system does, without it"
    assert "I see no T-182" in page.text
    client.post(path, said | {"against_probe": "1"})
    told = Event.objects.get(type="action.settled")
    assert told.data["outcome"] == "no_effect"
    assert told.data["evidence"] == {
        "text": "I see no T-182", "against_probe": "A probe found it.",
    }  # fmt: skip


def test_who_says_what_the_system_shows_is_asked_nothing_more(client, acme, found):
    client.force_login(person("olga", team(acme, "seniors", "view", "recover")))
    said = {"outcome": "applied", "evidence": "T-182 is high", "revision": found.revision}

    client.post(f"/w/acme/cases/{found.pk}/settle/", said)

    told = Event.objects.get(type="action.settled")
    assert told.data["evidence"] == {"text": "T-182 is high"}


@pytest.mark.parametrize("wrong", [{"outcome": "perhaps"}, {"action": "act_9"}])
def test_a_system_is_not_asked_about_what_cannot_be_said(client, acme, ada, found, wrong):
    api = Caller(client, acme, ada)
    calls_before = CallLog.objects.count()
    said = {"outcome": "no_effect", "action": "act_1", "revision": found.revision}

    status, _ = api.post(f"/cases/{found.pk}/settle", evidence="x", **(said | wrong))

    assert status in {404, 422}
    assert CallLog.objects.count() == calls_before


def test_over_http_the_opposite_is_a_conflict_of_its_own_type(client, acme, ada, found):
    api = Caller(client, acme, ada)
    _, case = api.get(f"/cases/{found.pk}")
    [call] = case["in_doubt"]["actions"]
    said = {"action": call["action"], "outcome": "no_effect", "revision": case["revision"]}

    status, problem = api.post(f"/cases/{found.pk}/settle", evidence="none there", **said)

    assert (status, problem["type"]) == (409, "urn:amends:problem:probe-disagrees")
    assert call["probe"].startswith("shop · restore_row, on ticket main/T-182")
    status, settled = api.post(
        f"/cases/{found.pk}/settle", evidence="wrong database", against_probe=True, **said
    )
    assert (status, settled["unknown"], settled["in_doubt"]["actions"]) == (200, 0, [])


def test_who_loads_the_page_again_and_again_leaves_a_dead_system_alone(
    client, acme, doubtful, shop_connection
):
    client.force_login(person("olga", team(acme, "seniors", "view", "recover")))
    gone = shop_connection.settings | {"database": "gone"}
    Connection.objects.update(settings=gone)

    for _ in range(2 * calllog.FAILURES_MAX):
        page = client.get(f"/w/acme/cases/{doubtful.case().pk}/settle/")

    assert Connection.objects.get().failures_in_a_row == calllog.FAILURES_MAX
    [probe] = page.context["probes"]
    assert probe["words"].startswith("The probe was not made: shop failed 5 times in a row")


def test_absence_proves_nothing_while_the_call_may_be_on_its_way(doubtful):
    doubtful.case()

    assert outcome_probes.sweep() == 0
    assert doubtful.case().probes == 1
    assert outcome_probes.sweep() == 0, "not before its time"
    assert doubtful.case().probes == 1


def test_another_call_in_doubt_is_asked_for_though_the_first_was_settled_meanwhile(
    probed, begin_run
):
    run, target = begin_run(), ("ticket", "main/T-182")
    first = run.plans("tickets.update", target)
    lost = {"attempt": "1", "outcome": "unknown", "error": {"type": "Timeout"}}
    run.send("action.failed", first, **lost)
    run.case()
    Case.objects.update(probes=outcome_probes.PROBES_MAX)

    run.send("action.succeeded", first, attempt="1", effects=[])
    run.send("action.failed", run.plans("tickets.update", target), **lost)

    assert run.case().unknown_count == 1
    assert run.case().probes == 0
    assert outcome_probes.in_doubt().exists()


def test_absence_after_the_horizon_is_a_proof(doubtful):
    doubtful.case()
    long_ago = timezone.now() - timedelta(hours=1)
    Action.objects.update(started_at=long_ago)
    Attempt.objects.update(started_at=long_ago)

    assert outcome_probes.sweep() == 1

    assert doubtful.case().suggestion == Suggestion.RESUME


def test_absence_before_the_horizon_of_the_last_try_proves_nothing(doubtful):
    """When an earlier one began says nothing of it."""
    doubtful.case()
    Action.objects.update(started_at=timezone.now() - timedelta(hours=1))
    Attempt.objects.update(started_at=timezone.now())

    assert outcome_probes.sweep() == 0

    assert doubtful.case().suggestion == Suggestion.SETTLE


def test_the_horizon_begins_when_the_agent_waited_no_longer(doubtful, shop_connection):
    """It may have waited for longer than we would."""
    action, limit = Action.objects.get(), timedelta(seconds=15)
    known = calls.operation_of(shop_connection, "restore_row")
    operation = replace(known, horizon_seconds=30)
    begun = timezone.now()
    told = begun + timedelta(minutes=2)
    Attempt.objects.update(started_at=begun, finished_at=None)
    assert preconditions.shown_by(action, operation) == begun + limit + timedelta(seconds=30)

    Attempt.objects.update(finished_at=told)

    assert preconditions.shown_by(action, operation) == told + timedelta(seconds=30)


def test_the_horizon_of_a_call_whose_begin_was_not_told_has_an_end(doubtful, shop_connection):
    """It moved on with every look, so that no absence was ever a proof."""
    told = timezone.now() - timedelta(hours=1)
    known = calls.operation_of(shop_connection, "restore_row")
    operation = replace(known, horizon_seconds=30)
    Action.objects.update(started_at=None)
    Attempt.objects.update(started_at=None, finished_at=told)

    found = preconditions.shown_by(Action.objects.get(), operation)

    assert found == told + timedelta(seconds=15 + 30)


def test_of_a_try_that_somebody_else_has_settled_the_limit_still_counts(doubtful, shop_connection):
    """Its agent had given up on it, and the call may have been on its way for as long as any."""
    begun, told = timezone.now(), timezone.now() + timedelta(seconds=1)
    known = calls.operation_of(shop_connection, "restore_row")
    operation = replace(known, horizon_seconds=30)
    Action.objects.update(state="succeeded", settled_by="probe")
    Attempt.objects.update(started_at=begun, finished_at=told, state="succeeded")

    found = preconditions.shown_by(Action.objects.get(), operation)

    assert found == begun + timedelta(seconds=15 + 30)


def test_a_connection_that_leads_elsewhere_since_the_call_is_not_asked(
    doubtful, shop_connection, ada
):
    """What was not there in the other database was told as never done."""
    long_ago = timezone.now() - timedelta(hours=1)
    Action.objects.update(started_at=long_ago)
    Attempt.objects.update(started_at=long_ago)
    case = doubtful.case()

    def change(**settings):
        shop_connection.refresh_from_db()
        now = shop_connection.settings | settings
        connections.update(shop_connection, now, by=ada, revision=shop_connection.revision)

    def enter(user):
        login = {"user": user, "password": "x"}
        connections.set_secret(shop_connection, "observe", login, by=ada)

    def asked():
        return outcome_probes.ask(facts_of(case.run), Action.objects.get())

    user = shop_connection.observe_secret.open()["user"]
    change(tables=shop_connection.settings["tables"] | {"orders": {"key": ["id"]}})
    enter(user)
    assert asked().outcome == "no_effect", "that another table may be restored changes nothing"

    enter("another_role")
    assert "the account to observe, changed by Ada at" in asked().words
    Act.objects.filter(type="connection.secret_set").delete()
    change(database="another")
    told = asked()
    assert (told.outcome, "Since then: database, changed by Ada" in told.words) == ("", True)

    assert outcome_probes.sweep() == 0
    assert doubtful.case().suggestion == Suggestion.SETTLE


def test_a_call_that_was_told_late_is_asked_about_by_when_it_was_made(
    probed, begin_run, ticket, shop_connection, ada
):
    """The desk was away from its agent, and the other database had moved meanwhile."""
    run, hour_ago = begin_run(), timezone.now() - timedelta(hours=1)
    moved = shop_connection.settings | {"database": "another"}
    connections.update(shop_connection, moved, by=ada, revision=shop_connection.revision)
    run.time = hour_ago.isoformat()
    args = {"to": ticket | {"priority": "high"}}
    run.plans("tickets.update", ("ticket", "main/T-182"), args=args, before=[ticket])
    run.ends("failed")
    action = Action.objects.get()
    assert action.started_at > hour_ago

    told = outcome_probes.ask(facts_of(run.case().run), action)

    assert "Since then: database, changed by Ada" in told.words


def test_of_a_call_without_a_key_a_probe_proves_nothing(doubtful, shop_connection, ada, client):
    """Its marker was looked for under no key, was not there, and the call read as not made."""
    calls.apply(
        shop_connection,
        "restore_row",
        Action.objects.get().args,
        Target("ticket", "main/T-182"),
        key="what the agent has sent",
        sent_at=timezone.now(),
    )
    long_ago = timezone.now() - timedelta(hours=1)
    Action.objects.update(key="", started_at=long_ago)
    Attempt.objects.update(started_at=long_ago)
    case = doubtful.case()

    assert outcome_probes.sweep() == 0

    asked = outcome_probes.ask(facts_of(case.run), Action.objects.get())
    assert (asked.outcome, "no key" in asked.words) == ("", True)
    assert doubtful.case().suggestion == Suggestion.SETTLE
    client.force_login(ada)
    page = client.get(f"/w/acme/cases/{case.pk}/settle/").text
    assert "no key, by which the probe would look for it, so the desk cannot ask" in page
    assert not re.search("A probe asks|It is asked again|<dt>Key", page)


def test_that_a_masked_value_is_not_found_proves_nothing(doubtful, shop_connection):
    """Nobody here knows what was sent, so that it may be there under its own value."""
    long_ago = timezone.now() - timedelta(hours=1)
    Action.objects.update(args={"to": {"token": "⟦masked:token⟧"}}, started_at=long_ago)
    Attempt.objects.update(started_at=long_ago)

    asked = outcome_probes.ask(facts_of(doubtful.case().run), Action.objects.get())

    assert (asked.finding.found, asked.outcome) == ("absent", "")
    assert "masked" in asked.words


def test_what_a_probe_saw_of_one_try_says_nothing_of_another_that_came_meanwhile(
    doubtful, shop_connection
):
    case = doubtful.case()
    long_ago = timezone.now() - timedelta(hours=1)
    Action.objects.update(started_at=long_ago)
    Attempt.objects.update(started_at=long_ago)
    facts = facts_of(case.run)
    [action] = facts.unknown()
    asked = outcome_probes.ask(facts, action)
    assert asked.outcome == "no_effect"

    doubtful.send("action.started", action.action, attempt="another")

    assert not outcome_probes.settle(case, action, asked)
    assert not Event.objects.filter(type="action.settled").exists()
