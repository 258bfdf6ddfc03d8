"""Eve is forgotten after her case: nothing of her is left on any floor, and every page opens."""

import json
from functools import partial
from itertools import chain

import pytest
from django.db.models.functions import Now

from amends.protocol.proofs import LogKey, verify
from amends.protocol.vocabulary import EventType
from approvals import versions
from approvals.models import ToolShape
from connectors import calllog, channels
from connectors.calllog import CallRecord
from connectors.contract import Target
from connectors.models import CallOutcome, Connection, Delivery
from ledger import audit, desk_events, erasure, finding, logkeys, proofs, retention, sealer
from ledger.models import Action, Event, Run
from ledger.replaying import rebuild
from recovery import corrections
from recovery.casework import bulk
from recovery.corrections import contesting, publishing
from recovery.models import (
    BulkJob,
    Case,
    CaseState,
    Cause,
    Contest,
    Correction,
    Plan,
    SavedView,
    Step,
    StepAttempt,
)
from recovery.planning import plans
from recovery.triage import causes, triage
from recovery.triage.causes import Fingerprint
from tests.ledger.test_erasure import tables_that_say
from tests.ledger.test_retention import LATER, SOON
from tests.locks import comes_before_the_commit
from tests.recovery.cases.cast import AgentRun, stands, submitted
from tests.recovery.cases.conftest import POLICY
from tests.recovery.engine import by_hand
from tests.recovery.engine.desk import case_of
from workspaces import outbox
from workspaces.erasure_registry import ERASED
from workspaces.models import Agent

# Her name, her address, and who stands in the snapshot of her ticket.
CANARIES = ("Eve Adams", "eve@example.com", "Nora")


@pytest.fixture
def told(raised, ada):
    """Her case, compensated, closed, and the correction mailed to her; and the link to it."""
    case = raised.case()
    plan = submitted(case, ada, reason="Eve Adams asked")
    by_hand.advance(plan.pk)
    assert publishing.draft_due() == 1
    correction = Correction.objects.get()
    found = corrections.publish(
        correction, by=ada, seen=correction.revision, ways=(publishing.LINK, publishing.MAIL)
    )
    Run.objects.update(lease_until=None)
    link = corrections.link_of(found).removeprefix("http://localhost")
    sealer.seal(case.workspace)
    return Case.objects.get(), link


def test_the_canary_sings_before(told):
    for word in CANARIES:
        assert len(tables_that_say(word)) >= 3, word
    _, link = told
    assert Delivery.objects.filter(recipient="eve@example.com").exists()
    assert tables_that_say(link.split("/")[2]) == {"connectors_delivery": 1}


def test_nothing_of_her_is_left_on_any_floor(told, ada, client, acme):
    case, link = told
    assert client.get(link).status_code == 200
    failed_for(Step.objects.get(), "DataError: “Eve Adams” is too long")

    erasure.erase(case.workspace, person="eve", by=ada)

    assert {word: tables_that_say(word) for word in CANARIES} == {word: {} for word in CANARIES}
    assert tables_that_say(link.split("/")[2]) == {}
    assert client.get(link).status_code == 404
    client.force_login(ada)
    root = f"/w/{acme.slug}"
    for page in (
        f"{root}/cases/{case.pk}/", f"{root}/queue/?q=is:closed", f"{root}/runs/",
        f"{root}/runs/{case.run.run}/", f"{root}/corrections/", f"{root}/ledger/",
        f"{root}/corrections/{Correction.objects.get().pk}/", f"{root}/audit/",
        f"{root}/approvals/history/", f"{root}/tools/",
    ):  # fmt: skip
        assert client.get(page).status_code == 200, page


def failed_for(step, detail):
    target = Target(step.target_type, step.target_id)
    line = CallRecord(step.connection, "observe", step.operation, target)
    line.ended(CallOutcome.FAILED, detail)
    calllog.write([line])
    assert Connection.objects.get(pk=step.connection_id).last_error == detail


@pytest.fixture
def of_others(agent, policy, shop, ticket, ada):
    """Bob's run changed a ticket of hers; it was put right, she was told, the case is closed."""
    hers = ticket | {"id": "T-Canary", "assignee": "Canary"}
    stands(shop, hers | {"priority": "high"})
    run = AgentRun(agent, "run_bob")
    run.send("run.started", request="Bob asks", on_behalf_of={"id": "bob", "name": "Bob"})
    for person, target in (("eve", "main/T-Canary"), ("bob", "main/T-182")):
        action = run.plans("tickets.update", ("ticket", target))
        effect = {"target": {"type": "ticket", "id": target}, "before": hers}
        effect |= {"after": hers | {"priority": "high"}, "affects": {"id": person, "name": person}}
        if person == "eve":
            effect["affects"] = {
                "id": "eve",
                "name": "Eve Canary",
                "contact": "eve@example.com",
                "language": "de",
            }
        else:
            effect |= {"before": ticket, "after": ticket}
        run.send("action.succeeded", action, attempt="1", effects=[effect])
        run.is_verified(action, ok=person == "bob")
    run.ends("failed", error={"type": "Failed", "message": "no room"})
    case = run.case()
    Cause.objects.filter(pk=case.cause_id).update(message="Canary has no seat")
    by_hand.advance(submitted(case, ada, reason="Canary asked").pk)
    triage.look()
    publishing.draft_due()
    for letter in Correction.objects.filter(person_id="eve"):
        found = corrections.publish(letter, by=ada, seen=letter.revision, ways=(publishing.LINK,))
        corrections.hand_on(found, by=ada, seen=found.revision, how="Canary was told by telephone")
    Run.objects.update(lease_until=None)
    sealer.seal(case.workspace)
    return Case.objects.get()


def test_what_the_desk_undid_of_what_others_did_to_her_is_forgotten_in_its_own_record_too(
    of_others, ada, client
):
    assert of_others.state == CaseState.CLOSED
    assert "ledger_event" in tables_that_say("Canary was told by telephone")
    assert {"ledger_event", "ledger_action", "recovery_step"} <= tables_that_say("Canary").keys()
    hers = Step.objects.get(target_id="main/T-Canary")
    tried = StepAttempt.objects.get(step=hers)
    digests = {Plan.objects.get().digest, hers.digest, hers.key, tried.key}
    # What its case was taken for before more was known; and the words by which runs are found.
    other = Fingerprint("tickets.update", "T", "Canary timed out")
    before = causes.keep(of_others.workspace, other)
    finding.catch_up()
    assert "ledger_run" in tables_that_say("canary")
    forgotten = Run.objects.create(
        workspace=of_others.workspace, run="run_old", state="failed", forgotten_at=Now()
    )
    Case.objects.filter(pk=case_of(forgotten).pk).update(cause=of_others.cause)
    hook = {"url": "https://hooks.example/", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
    channels.create(of_others.workspace, "crm", "webhook", secret=hook, by=ada)
    alarm = channels.Message("Critical: changed T-Canary", "Look at it.\nRun run_bob.")
    channels.announce(of_others.workspace, "case.critical", alarm, key="case 1")

    erasure.erase(of_others.workspace, person="eve", by=ada)

    assert tables_that_say("Canary") == tables_that_say("eve@example.com") == {}
    assert tables_that_say("canary") == {}
    finding.catch_up()
    assert tables_that_say("canary") == {}
    assert finding.narrowed(Run.objects.all(), of_others.workspace, "bob", sees=True).count() == 1
    assert causes.keep(of_others.workspace, other) == before
    before.refresh_from_db()
    assert before.message == "Canary timed out", "it is another's now"
    Cause.objects.all().update(message="")
    published = Event.objects.get(type="correction.published")
    assert published.data is None, "it named her"
    assert [one for one in digests if tables_that_say(one)] == [], "no salt is in these"
    assert Run.objects.get(run="run_bob").request == "Bob asks"
    assert Action.objects.get(action="act_2").targets == [{"type": "ticket", "id": "main/T-182"}]
    sealer.seal(of_others.workspace)
    assert all(finding.ok for finding in audit.audit_all(of_others.workspace))
    rows = {one.run: (one.state, one.request) for one in Run.objects.all()}
    sum(rebuild(of_others.workspace_id))
    assert rows == {one.run: (one.state, one.request) for one in Run.objects.all()}
    assert tables_that_say("Canary") == {}
    client.force_login(ada)
    ours = Run.objects.get(run__startswith="desk-plan-")
    for page in (f"cases/{of_others.pk}/", "runs/run_bob/", f"runs/{ours.run}/", "audit/"):
        assert client.get(f"/w/acme/{page}").status_code == 200, page


def test_lists_that_name_her_and_messages_to_programs_forget_her_and_a_neighbours_stay(
    told, ada, acme, globex, dev
):
    """By her id, by her name or a part of it, or only by the run that was hers."""
    case, _ = told
    secret = {"url": "https://hooks.example/", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
    for workspace, who in ((acme, ada), (globex, dev)):
        hook = {"secret": secret, "subjects": ["case.*"], "by": who}
        channels.create(workspace, "crm", "webhook", **hook)
        said = channels.Message(
            "Canary", "Canary waits", facts={"run": case.run.run, "to": "Canary"}
        )
        channels.announce(workspace, "case.critical", said, key="case 1")
        alarm = channels.Message("Critical: Canary waits", f"Look at it.\nRun {case.run.run}.")
        channels.announce(workspace, "case.critical", alarm, key="case 2")
        other = channels.Message("Critical: a neighbour", f"Look at it.\nRun {case.run.run}0.")
        channels.announce(workspace, "case.critical", other, key="case 3")
        named = {"workspace": workspace, "owner": who}
        SavedView.objects.create(
            **named, name="Canary: Eve Adams", slug="eve-adams", query="risk:low"
        )
        SavedView.objects.create(**named, name="Canary", slug="hers", query="customer:eve")
        SavedView.objects.create(**named, name="Others", slug="others", query="dams is:open")
        for part in ("adam", "customer:ada*,mia", '-"eve ada" is:open'):
            SavedView.objects.create(**named, name="Part", slug=f"p-{part[-2:]}", query=part)
        BulkJob.objects.create(
            workspace=workspace, verb="close", query="customer:eve Canary", reason="For Canary",
            started_by=who,
        )  # fmt: skip
        begun = {"verb": "close", "query": "customer:eve*", "reason": "For Canary"}
        desk_events.record(workspace, EventType.CASE_BULK_STARTED, by=who, data=begun)
        for asked in ("q: customer:eve, sort: Canary", "q: nobody, sort: a neighbour"):
            taken = {"list": "queue", "filter": asked}
            outbox.record(workspace, EventType.DATA_EXPORTED, by=who, data=taken)
    desk_events.take_in()
    in_hand = Delivery.objects.filter(workspace=acme, message__title="Canary").get()

    erasure.erase(acme, person="eve", by=ada)
    in_hand.tries = 1
    channels._put_off(in_hand, "Canary answered 500")

    unsaid = Delivery.objects.filter(workspace=acme, message__title=ERASED)
    assert set(unsaid.values_list("state", flat=True)) == {"failed"}, "nobody is sent them"
    left = {"connectors_delivery": 2, "recovery_savedview": 2, "recovery_bulkjob": 1,
            "ledger_event": 2, "workspaces_act": 1}  # fmt: skip
    others = {"connectors_delivery": 2, "ledger_event": 2, "workspaces_act": 2}
    assert tables_that_say("a neighbour") == others
    assert tables_that_say("Canary") == left
    for one in (Delivery, SavedView, BulkJob):
        found = one.objects.exclude(workspace=acme)
        assert str(list(found.values())).count("Canary") >= left[one._meta.db_table]
    hers = SavedView.objects.filter(workspace=acme).exclude(slug="others")
    assert {one.slug for one in hers} == {f"erased-{one.pk}" for one in hers}
    assert SavedView.objects.filter(name="Others", query__startswith="dams").count() == 2
    assert SavedView.objects.filter(name="Part").count() == 3, "a neighbour's"


def test_the_reason_of_a_job_that_names_her_is_forgotten_in_the_cases_of_others_too(
    told, agent, shop, ticket, ada, acme, leads
):
    """Two of Bob's cases were acted on because Eve called: one closed, one put before people."""
    asks = POLICY.replace("LOW, approval: AUTO}\n  twins", "LOW, approval: MANUAL}\n  twins")
    versions.activate(versions.save(acme, asks, by=None), by=None)
    secret = {"url": "https://chat.example/"}
    channels.create(acme, "chat", "slack", by=ada, secret=secret, tier="headline")
    for number, act in enumerate(("close", "compensate")):
        run = AgentRun(agent, f"run_bob_{number}")
        run.send("run.started", request="Bob asks", on_behalf_of={"id": "bob", "name": "Bob"})
        row = ticket | {"id": f"T-{number}", "assignee": "Bob"}
        high = row | {"priority": "high"}
        stands(shop, high)
        done = run.does("tickets.update", ("ticket", f"main/{row['id']}", row, high))
        run.is_verified(done, ok=False)
        run.ends()
        case = run.case()
        assert case is not None
        seen = bulk.dry_run(acme, act, by=ada, ids=[case.pk])
        frozen = [bulk.FrozenCase(it.case.pk, it.case.revision, it.digest) for it in seen.eligible]
        bulk.start(acme, act, by=ada, reason="Canary: Eve Adams called", frozen=frozen)
        bulk.sweep()
    assert tables_that_say("Canary: Eve") == {
        "recovery_bulkjob": 2, "recovery_case": 1, "recovery_plan": 1, "approvals_approval": 1,
        "connectors_delivery": 1, "ledger_event": 5,
    }  # fmt: skip

    erasure.erase(acme, person="eve", by=ada)

    assert tables_that_say("Canary: Eve") == {}
    plan = Plan.objects.get(case__run__run="run_bob_1")
    assert (plan.state, plan.headline) == ("waiting", "Restore priority on ticket main/T-1")
    assert Event.objects.filter(type="case.opened", run="run_bob_0").exclude(data=None).exists()


def test_a_tool_that_was_announced_with_her_name_is_forgotten_and_others_are_not(
    told, ada, acme, globex, dev
):
    """As the one customer that an argument takes, or in the words that explain it."""
    elsewhere = Agent.objects.create(workspace=globex, name="other", owner=dev)
    hers = [{"enum": ["Eve Adams"]}, {"description": "eve alone"}, {"default": {"of": ["EVE"]}}]
    others = [{"enum": ["Evelyn"]}, {"description": "Never asked"}]
    for agent in (acme.agents.get(), elsewhere):
        for number, said in enumerate([*hers, *others]):
            schema = {"type": "object", "properties": {"customer": said}}
            now = {"since": Now(), "told_at": Now(), "digest": f"{number:064}"}
            ToolShape.objects.create(agent=agent, tool="pay", schema=schema, **now)

    erasure.erase(acme, person="eve", by=ada)

    kept = ToolShape.objects.filter(agent__workspace=acme).order_by("pk")
    assert [bool(one.schema) for one in kept] == [False] * 3 + [True] * 2
    assert [one.digest == f"{n:064}" for n, one in enumerate(kept)] == [False] * 3 + [True] * 2
    assert not ToolShape.objects.filter(agent=elsewhere, schema={}).exists()


def test_words_that_only_look_like_her_name_stay_on_the_record(told, ada, acme):
    words = "Never again, as Ada says"
    BulkJob.objects.create(workspace=acme, verb="close", reason=words, started_by=ada)
    begun = {"verb": "close", "query": "is:open", "reason": words}
    desk_events.record(acme, EventType.CASE_BULK_STARTED, by=ada, data=begun)

    erasure.erase(acme, person="eve", by=ada)

    assert tables_that_say("Never again") == {"recovery_bulkjob": 1, "ledger_event": 1}


def test_what_she_downloaded_before_still_proves_what_it_says(told, ada, client):
    case, link = told
    record = client.get(f"{link}record.json").text
    keys = [LogKey.parse(text) for text in logkeys.published(case.workspace)]
    assert verify(record, keys).event["type"] == "correction.published"

    erasure.erase(case.workspace, person="eve", by=ada)
    sealer.seal(case.workspace)

    assert verify(record, keys).event["type"] == "correction.published"
    new = proofs.proof_of(case.workspace, json.loads(record)["event"]["id"])
    assert verify(new, keys).leaf["type"] == "correction.published"
    assert all(finding.ok for finding in audit.audit(case.workspace))


def erased_behind(act, case):
    """She is erased at a moment when this act is done, and not committed yet."""
    return comes_before_the_commit(
        act, lambda: erasure.erase(case.workspace, person="eve", by=None)
    )


@pytest.mark.django_db(transaction=True)
def test_a_letter_that_is_on_its_way_out_as_she_is_erased_leaves_nothing_of_her(raised, ada):
    """What was said of it came after her events were emptied, and stayed in the ledger."""
    case = raised.case()
    by_hand.advance(submitted(case, ada).pk)
    publishing.draft_due()
    Run.objects.update(lease_until=None)
    [letter] = Correction.objects.all()
    ways = {"ways": (publishing.LINK, publishing.MAIL), "seen": letter.revision}

    erased_behind(lambda: corrections.publish(letter, by=ada, **ways), case)

    assert {word: tables_that_say(word) for word in CANARIES} == {word: {} for word in CANARIES}
    assert Event.objects.get(type="correction.published").data is None


def test_whoever_still_has_the_draft_of_a_letter_to_her_open_writes_nothing_into_it(
    raised, ada, client
):
    """Her name came back with the words that were typed before."""
    case = raised.case()
    by_hand.advance(submitted(case, ada).pk)
    publishing.draft_due()
    Run.objects.update(lease_until=None)
    [letter] = Correction.objects.all()

    erasure.erase(case.workspace, person="eve", by=None)
    client.force_login(ada)
    words = {"title": "Dear Eve Adams", "lead": "", "revision": letter.revision}
    answer = client.post(f"/w/acme/corrections/{letter.pk}/save/", words)

    assert "Somebody changed this correction since you saw it." in answer.text
    assert tables_that_say("Eve Adams") == {}


@pytest.mark.django_db(transaction=True)
def test_what_she_contests_as_she_is_erased_is_not_lost(told, ada):
    """Her case came back to the queue with nothing in it but ⟦erased⟧."""
    case, _ = told
    contest = partial(contesting.contest, Correction.objects.get(), ground="other", text="Not so")

    with pytest.raises(erasure.StillWorkedOn):
        erased_behind(contest, case)

    assert Contest.objects.get().text == "Not so"


def test_an_open_case_is_not_erased_under_the_hands_of_its_operator(raised, ada):
    case = raised.case()
    Run.objects.update(lease_until=None)
    with pytest.raises(erasure.StillWorkedOn):
        erasure.erase(case.workspace, person="eve", by=ada)


def test_retention_waits_for_an_open_case_and_for_a_correction_that_can_be_read(told, ada):
    case, _ = told
    assert [*chain(*retention.over(case.workspace, SOON))] == []

    correction = Correction.objects.get()
    corrections.revoke(correction, by=ada, seen=correction.revision, reason="Wrong")
    retention.keep_to_time(SOON)

    assert tables_that_say("Nora") == tables_that_say("eve@example.com") == {}
    case.refresh_from_db()
    assert (case.state, case.run.request) == (CaseState.CLOSED, "⟦erased⟧")
    retention.keep_to_time(LATER)
    assert Case.objects.count() == 1  # what happened stays, without the words
    assert all(finding.ok for finding in audit.audit(case.workspace))


def test_retention_keeps_what_an_open_case_rests_on(raised):
    case = raised.case()
    Run.objects.update(lease_until=None)

    retention.keep_to_time(SOON)

    assert [*chain(*retention.over(case.workspace, SOON))] == []
    draft = plans.draft(case)
    assert draft.digest
    assert tables_that_say("Nora").keys() >= {"ledger_event", "ledger_effect"}
