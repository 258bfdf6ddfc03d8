"""What cannot be undone is never called restored, whatever is done to the record of it."""

import itertools
from typing import Any

import pytest

from amends.protocol.vocabulary import EventType
from ledger import desk_events
from ledger.models import Action, Effect, Event
from ledger.replaying import rebuild
from recovery import corrections
from recovery.casework import closing, resuming, settling
from recovery.engine import plan_lifecycle
from recovery.models import Case, CaseState, Correction, Residue
from recovery.planning import plans
from recovery.planning.drafting import DriftState
from recovery.run_facts.runs import facts_of
from recovery.triage import triage
from recovery.views import compensate
from tests.recovery.cases.cast import undone
from tests.recovery.cases.conftest import POLICY

PARCEL = ("ticket", "main/T-182")
CALLED_IRREVERSIBLE = (
    '"tickets.*":       {class: internal_update}',
    '"tickets.*":       {class: external_irreversible, risk: low}',
)


def activate(acme, **changed):
    from approvals import versions

    document = POLICY
    for old, new in changed.values():
        assert old in document
        document = document.replace(old, new)
    versions.activate(versions.save(acme, document, by=None), by=None)


@pytest.fixture
def called_irreversible(request, acme, policy):
    """The same update of a row, called irreversible by catalogue, twin, or the agent's own word."""
    who = request.param
    if who == "catalogue":
        activate(acme, tools=CALLED_IRREVERSIBLE)
    if who == "twin":
        twin = '"tickets.*":       {connection: shop, operation: restore_row'
        activate(acme, twins=(twin, f"{twin}, reversibility: irreversible"))
    return who


def theirs(run="run_1"):
    return Effect.objects.get(action__run__run=run)


def looked_at_again(case, ada):
    """Undone, and looked at once more."""
    undone(case, ada)
    triage.look()
    return Case.objects.get(pk=case.pk)


@pytest.mark.parametrize("called_irreversible", ["catalogue", "twin", "agent"], indirect=True)
def test_a_repaired_record_of_an_irreversible_call_is_not_a_restored_effect(
    called_irreversible, begin_run, shop, ticket, ada, desk
):
    run = begin_run()
    high = ticket | {"priority": "high"}
    shop.execute("UPDATE tickets SET priority = 'high', version = version + 1")
    said = {"reversibility": "irreversible"} if called_irreversible == "agent" else {}
    action = run.plans("tickets.update", PARCEL)
    effect = {"target": {"type": PARCEL[0], "id": PARCEL[1]}, "before": ticket, "after": high}
    run.send(EventType.ACTION_SUCCEEDED, action, attempt="1", effects=[effect | said])
    run.is_verified(action, ok=False)
    run.ends()

    case = looked_at_again(run.case(), ada)

    assert shop.execute("SELECT priority FROM tickets").fetchone() == ("normal",)
    assert theirs().compensated == "repaired"
    assert Action.objects.get(run__run="run_1").compensated == "repaired"
    assert (case.state, case.outcome, case.suggestion) == (CaseState.OPEN, "", "close")
    assert case.reversibility == "irreversible"
    page = desk.get(f"/w/acme/cases/{case.pk}/").content.decode()
    assert "record repaired; could not be undone" in page
    [said] = desk.get(f"/w/acme/cases/{case.pk}/close/").context["standing"]
    assert said["reversibility"] == "irreversible"

    desk.post(
        f"/w/acme/cases/{case.pk}/close/",
        {"ending": "partly", "why": "The parcel is gone", "revision": case.revision,
         "owner": ada.pk, "due": "2100-01-01"},
    )  # fmt: skip

    case.refresh_from_db()
    assert (case.state, case.outcome) == (CaseState.CLOSED, "partly")
    assert Residue.objects.get().effect == theirs(), "repaired, and residue"
    [left] = Event.objects.get(type="case.closed").data["standing"]
    assert left["undone"] == "repaired"
    told = corrections.draft(case)[0].facts["items"][0]
    assert (told["outcome"], told["word"]) == ("repaired", "Record repaired; could not be undone")
    assert "cannot be taken back" in told["did"]


def test_a_killed_irreversible_call_that_happened_is_left_though_nobody_told_its_effect(
    begin_run, shop, ticket, ada, desk
):
    run = begin_run()
    high = ticket | {"priority": "high"}
    shop.execute("UPDATE tickets SET priority = 'high', version = version + 1")
    run.does("tickets.update", (*PARCEL, ticket, high))
    run.plans("mail.send")
    run.ends("failed")
    case = run.case()
    (action,) = settling.facts_now(case).unknown()
    page = desk.get(f"/w/acme/cases/{case.pk}/settle/").content.decode()
    assert "It cannot be undone" in page
    assert "to be undone if a way back is known" not in page
    case = settling.settle_action(
        case, action, outcome="applied", evidence="in the log", by=ada, seen=case.revision
    )

    case = looked_at_again(case, ada)

    assert shop.execute("SELECT priority FROM tickets").fetchone() == ("normal",)
    assert (case.state, case.outcome) == (CaseState.OPEN, ""), "the mail is out there"
    assert case.suggestion_reason == "mail.send cannot be undone: say who looks after what is left."
    shown = desk.get(f"/w/acme/cases/{case.pk}/").context["effects"]
    assert [one["standing"] for one in shown] == ["cannot be undone", "put back"]
    with pytest.raises(closing.CannotClose, match="Say what is left"):
        closing.close(case, outcome="partly", reason="x", by=ada, seen=case.revision)
    desk.post(
        f"/w/acme/cases/{case.pk}/close/",
        {"ending": "partly", "why": "We wrote to them", "revision": case.revision,
         "owner": ada.pk, "due": "2100-01-01"},
    )  # fmt: skip
    residue = Residue.objects.get()
    assert (residue.text, residue.effect) == ("mail.send happened", None)
    answer = Event.objects.get(type="case.closed").data["standing"]
    assert [(one["tool"], one["target"]) for one in answer] == [("mail.send", None)]
    corrections.draft(case)
    items = {one["outcome"]: one for one in Correction.objects.get().facts["items"]}
    assert items.keys() == {"restored", "not_undone"}
    assert items["not_undone"]["did"] == "It cannot be taken back."


def test_a_failed_run_of_one_irreversible_call_without_a_told_effect_is_a_case(begin_run, ada):
    run = begin_run()
    action = run.plans("mail.send")
    run.send(EventType.ACTION_SUCCEEDED, action, attempt="1")
    run.ends("failed")

    case = run.case()

    assert case.reasons == ["failed_with_effects"]
    assert case.suggestion == "close", "taking it up again would send it twice"


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_a_call_of_which_nobody_told_what_it_changed_is_a_case_and_is_not_restored(
    acme, begin_run, shop, ticket, ada, state
):
    """It has no target, and its agent said no more than that it went well."""
    run = begin_run()
    shop.execute("UPDATE tickets SET priority = 'high', version = version + 1")
    run.does("tickets.update", (*PARCEL, ticket, ticket | {"priority": "high"}))
    untold = run.plans("payments.charge", **{"class": "external_reversible"})
    run.send(EventType.ACTION_SUCCEEDED, untold, attempt="1")
    alone = begin_run(run="run_2")
    second = alone.plans("payments.charge", **{"class": "external_reversible"})
    alone.send(EventType.ACTION_SUCCEEDED, second, attempt="1")
    for one in (run, alone):
        one.ends(state)

    case, other = looked_at_again(run.case(), ada), alone.case()

    assert other.reasons == [f"{state}_with_effects"]
    look = "payments.charge happened, and nobody told what it changed: look there."
    for one in (case, other):
        assert (one.state, one.suggestion, one.suggestion_reason) == ("open", "close", look)


CLAIMS = ("read_only", "internal_update", "external_irreversible")
TOLD: list[list[dict[str, Any]] | None] = [None, [], [{"before": {"a": 1}, "after": {"a": 2}}]]


@pytest.mark.parametrize("tool", ["tickets.read", "tickets.update", "mail.send", "payments.charge"])
def test_what_ends_a_plan_and_what_a_page_shows_call_the_same_untold_and_the_same_lasting(
    begin_run, tool, subtests
):
    """The end of a plan asks the database in three looks; pages have the facts of the run."""
    for number, (claims, said) in enumerate(itertools.product(CLAIMS, TOLD)):
        run, parcel = begin_run(f"run_{number}"), f"p-{number}"
        action = run.plans(tool, (PARCEL[0], parcel), **{"class": claims})
        target = {"target": {"type": PARCEL[0], "id": parcel}}
        told = {} if said is None else {"effects": [target | one for one in said]}
        run.send(EventType.ACTION_SUCCEEDED, action, attempt="1", **told)
        run.ends("failed")
        facts, case = facts_of(run.row), run.case()

        untold = [one for one in facts.actions if facts.is_untold(one)]

        if case is not None:
            left = bool(untold or facts.standing() or facts.irreversible())
            with subtests.test(claims=claims, said=said):
                assert plan_lifecycle.is_restored(case, run.row) is not left


def test_a_call_of_which_its_agent_says_that_it_changed_nothing_keeps_no_case_open(
    acme, begin_run, shop, ticket, ada, client
):
    run = begin_run()
    shop.execute("UPDATE tickets SET priority = 'high', version = version + 1")
    run.does("tickets.update", (*PARCEL, ticket, ticket | {"priority": "high"}))
    idle = run.plans("tickets.assign", **{"class": "external_reversible"})
    run.send(EventType.ACTION_SUCCEEDED, idle, attempt="1", effects=[])
    run.ends("failed")

    case = looked_at_again(run.case(), ada)

    assert (case.state, case.outcome) == ("closed", "restored")
    client.force_login(ada)
    page = client.get(f"/w/acme/runs/{run.row.run}/").text
    assert "The agent says that it changed nothing." in page
    told = Event.objects.filter(run=run.row.run)
    hers = told.filter(actor_kind="person").earliest("place")
    step = told.filter(place__lte=hers.place).count()
    assert "said by person Ada" in client.get(f"/w/acme/runs/{run.row.run}/?step={step}").text


def test_a_resumed_run_is_answered_the_first_result_of_what_only_its_record_was_repaired(
    acme, begin_run, shop, ticket, ada
):
    activate(acme, tools=CALLED_IRREVERSIBLE)
    run = begin_run()
    high = ticket | {"priority": "high"}
    shop.execute("UPDATE tickets SET priority = 'high', version = version + 1")
    run.does("tickets.update", (*PARCEL, ticket, high))
    run.ends("failed")

    case = looked_at_again(run.case(), ada)

    [step] = resuming.preview(case).steps
    assert step.label == "skip", "doing it again would do it twice outside"


def test_no_page_takes_an_agents_milder_word_over_the_catalogues(acme, begin_run, policy, desk):
    """It calls a mail a reading that can be undone exactly; the catalogue calls mails otherwise."""
    run = begin_run()
    action = run.plans("mail.send", ("mail", "M-1"), **{"class": "read_only"})
    mail = {"target": {"type": "mail", "id": "M-1"}, "after": {"to": "eve"}, "summary": "sent"}
    run.send("action.succeeded", action, attempt="1", effects=[mail | {"reversibility": "exact"}])
    run.ends("failed")
    case = run.case()

    page = desk.get(f"/w/acme/cases/{case.pk}/").context
    [item] = [one for one in page["story"]["items"] if one["kind"] == "action"]
    peek = desk.get(f"/w/acme/queue/?peek={case.pk}").context["peek"]

    assert (item["word"], item["reversibility"]) == ("", "irreversible")
    assert [one["reversibility"] for one in page["effects"]] == ["irreversible"]
    assert [one["reversibility"] for one in peek["effects"]] == ["irreversible"]
    replayed = desk.get(f"/w/acme/runs/{run.run}/").content.decode()
    assert "as the agent says" in replayed, "what is on the record there is the agent's own word"


def test_a_change_that_an_agent_calls_a_reading_and_tells_nothing_of_may_have_taken_effect(
    begin_run, policy
):
    """The catalogue calls it a change: it is not said that nothing took effect, so do it again."""
    run = begin_run()
    action = run.plans("tickets.update", PARCEL, **{"class": "read_only"})
    run.send(EventType.ACTION_SUCCEEDED, action, attempt="1")
    run.is_verified(action, ok=False)
    run.ends("failed")

    case = run.case()

    assert "failed_without_effects" not in case.reasons
    assert case.suggestion == "close"
    assert case.suggestion_reason.endswith("happened, and nobody told what it changed: look there.")


def test_the_word_about_an_effect_only_grows_and_a_rebuild_says_the_same(acme, begin_run, ticket):
    run = begin_run()
    action = run.does("tickets.update", (*PARCEL, ticket, ticket | {"priority": "high"}))
    seen = []
    for outcome in ("repaired", "corrected", "repaired"):
        data = {"positions": [0], "outcome": outcome}
        saying = desk_events.EventDraft(EventType.ACTION_COMPENSATED, run.run, action, data)
        desk_events.append_completions(acme, desk_events.parse_all(acme, [saying]), {})
        seen.append((theirs().compensated, Action.objects.get().compensated))

    assert seen == [
        ("repaired", "repaired"),
        ("corrected", "corrected"),
        ("corrected", "corrected"),
    ]
    list(rebuild(acme.pk))
    assert (theirs().compensated, Action.objects.get().compensated) == seen[-1]


def test_an_effect_of_which_nobody_says_how_it_is_undone_is_not_called_unknown(
    acme, begin_run, policy, desk, shop, ticket
):
    """Beside *Reported done* that reads as if nobody knew whether it happened. Where a twin is
    registered the plan says how it is undone; where none is, the badge says what is unknown."""
    run = begin_run()
    changed = (f"main/{ticket['id']}", ticket, ticket | {"priority": "high"})
    for tool, target in (("tickets.update", "ticket"), ("notes.write", "note")):
        run.does(tool, (target, *changed))
    run.ends("failed")
    case = run.case()

    page = desk.get(f"/w/acme/cases/{case.pk}/")

    told = {one["tool"]: one["reversibility"] for one in page.context["story"]["items"]}
    assert told == {"tickets.update": "", "notes.write": "unknown"}
    assert [one["reversibility"] for one in page.context["effects"]] == ["unknown", ""]
    assert page.text.count("Undo unknown") == 2, "once in the story, once among the effects"
    replayed = desk.get(f"/w/acme/runs/{run.run}/").text
    assert "as the agent says" not in replayed


def test_a_correction_that_was_not_sent_is_not_called_unchanged(acme, policy, raised):
    twin = '"tickets.*":       {connection: shop, operation: restore_row'
    activate(acme, twins=(twin, f"{twin}, reversibility: irreversible"))
    draft = plans.draft(raised.case())
    (one,) = draft.steps
    one.drift_state, one.seen = DriftState.UNCHANGED, None

    (shown,) = compensate.outlook(draft, sensitive=True)["steps"]

    assert (shown["drift_tone"], shown["drift_words"]) == ("calm", "not sent yet"), "no tick"
