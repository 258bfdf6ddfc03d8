"""How a doubt about a try ends: it was looked for and is not there, or a person says so."""

import pytest

from connectors import registry
from connectors.contract import Answer, Finding
from connectors.models import Channel, Delivery
from ledger.models import Effect
from recovery.cases.lifecycle import OutOfDate
from recovery.casework import settling
from recovery.engine import failure_paths, outbound_calls, plan_lifecycle, protocol, queries, steps
from recovery.models import Plan, Step
from recovery.run_facts.runs import facts_of
from tests.locks import comes_before_the_commit
from tests.recovery.engine import by_hand
from tests.recovery.engine.desk import (
    advance,
    in_hand,
    looked_at,
    make_due,
    plan_for,
    states,
)
from workspaces.moves import CannotMove

pytestmark = pytest.mark.django_db


def advance_once(plan):
    make_due(plan)
    by_hand.advance_once(plan.pk)


def no_longer_as_approved(plan):
    """It is left to people as it is about to be sent."""
    plan.steps.update(digest="0" * 64)


def test_what_a_probe_has_ruled_out_is_in_doubt_no_more(one_thing, world, outside, ada):
    """Though it is left to people, for another reason, before it is tried once more."""
    outside.mischief("a", fail=1)
    plan = plan_for(one_thing, world, "refund")
    for _ in range(3):
        advance_once(plan)
    assert states(plan) == ["ready"]  # a probe has shown that the first try did nothing
    no_longer_as_approved(plan)

    advance(plan)

    step = plan.steps.get()
    assert (step.was, step.state, step.is_lost) == ("claimed", "needs_human", False)
    assert facts_of(one_thing.run).steps_to_settle() == ""
    plan_lifecycle.supersede(plan, by=ada, why="A new plan takes its place.")
    assert states(plan) == ["cancelled"]


def test_what_a_person_has_ruled_out_is_in_doubt_in_no_later_plan(one_thing, world, outside, ada):
    outside.mischief("a", fail=1)
    earlier = plan_for(one_thing, world, "refund_unseen")
    for _ in range(2):
        advance_once(earlier)
    plan_lifecycle.stop(earlier, by=ada)
    advance(earlier)
    one_thing.refresh_from_db()
    settled = settling.settle_step(
        earlier.steps.get(),
        outcome="no_effect",
        evidence="It is not among their refunds.",
        by=ada,
        seen=one_thing.revision,
    )
    assert settled.state == "skipped"
    advance(earlier)
    plan = plan_for(one_thing, world, "refund_unseen")
    advance_once(plan)
    no_longer_as_approved(plan)

    advance(plan)

    step = plan.steps.get()
    assert (step.state, step.key) == ("needs_human", settled.key)
    assert not step.is_lost


def test_a_refusal_for_the_last_time_after_what_was_ruled_out_is_a_refusal(
    one_thing, world, outside
):
    outside.mischief("a", fail=1)
    for _ in range(2):
        outside.mischief("a", refuse="not today")
    plan = plan_for(one_thing, world, "refund")

    advance(plan)

    step = plan.steps.get()
    assert (step.state, step.tries, step.is_lost) == ("needs_human", 3, False)
    assert step.note.startswith("Refused 3 times")


@pytest.mark.parametrize(("outcome", "is_lost"), [("applied", False), ("unknown", True)])
def test_an_answer_that_comes_after_it_was_ruled_out_takes_its_place(
    one_thing, world, outside, outcome, is_lost
):
    """Its worker was held up, and may have sent it after all."""
    plan = plan_for(one_thing, world, "refund")
    advance_once(plan)
    held = in_hand(plan)
    found = looked_at(held)
    intent = by_hand.intend(held, found.operation, found.observation)
    for _ in range(2):
        advance_once(plan)
    first = plan.steps.get().attempts.get()
    assert (states(plan), first.outcome) == (["ready"], "absent")

    assert not by_hand.settles(intent, found.operation, Answer(outcome=outcome))

    first.refresh_from_db()
    assert first.outcome == outcome
    Step.objects.filter(plan=plan).update(was="claimed", state="needs_human")
    assert plan.steps.get().is_lost == is_lost


def test_what_our_own_try_may_have_changed_is_in_doubt_and_no_drift(
    one_thing, world, outside, ada, monkeypatch
):
    """A refund shows at its target as somebody's change would, and its answer was lost."""
    outside.mischief("a", leaves={"v": 99}, fail_after=1)
    cannot_tell = Finding(found="cannot_tell")
    monkeypatch.setattr(type(registry.get("outside")), "probe", lambda *_: cannot_tell)
    plan = plan_for(one_thing, world, "refund")

    advance(plan)

    step = plan.steps.get()
    assert (step.was, step.state, step.is_lost) == ("claimed", "needs_human", True)
    assert step.drift == [{"field": "v", "was": 1, "agent_wrote": 2, "now": 99}]
    assert facts_of(one_thing.run).steps_to_settle().startswith("Settle step 1 first")
    one_thing.refresh_from_db()
    seen = one_thing.revision
    words = "It is among their refunds."
    settled = settling.settle_step(step, outcome="applied", evidence=words, by=ada, seen=seen)
    assert (settled.state, settled.drift) == ("applied", None)
    assert outside.effects() == ["a"]


@pytest.mark.parametrize(("operation", "outcome"), [("marked", "unknown"), ("refund", "absent")])
def test_a_further_try_of_an_earlier_plan_holds_up_nothing_that_cannot_be_done_twice(
    one_thing, world, outside, operation, outcome
):
    """It was put back exactly, and a look shows that it is not; or the try was ruled out."""
    earlier = plan_for(one_thing, world, operation)
    earlier.steps.update(generation=2, key="amends-further")
    outside.mischief("a", fail=1)
    for _ in range(2):
        advance_once(earlier)
    earlier.steps.get().attempts.update(outcome=outcome)
    Step.objects.filter(plan=earlier).update(was="needs_human", state="skipped")
    Plan.objects.filter(pk=earlier.pk).update(was="running", state="finished")
    plan = plan_for(one_thing, world, operation)

    advance(plan)

    assert (states(plan), outside.effects()) == (["verified"], ["a"])


def test_a_step_that_waits_to_be_asked_again_is_left_to_people_as_its_plan_is_stopped(
    one_thing, world, outside, ada
):
    """It was done, and nobody here knows: it is not called “not done”."""
    outside.mischief("a", fail_after=1)
    plan = plan_for(one_thing, world, "refund_unseen")
    for _ in range(3):
        advance_once(plan)
    assert states(plan) == ["ready"]  # to be asked again under its key
    with pytest.raises(CannotMove, match="under way"):
        plan_lifecycle.supersede(plan, by=ada, why="A new plan takes its place.")

    stopped = plan_lifecycle.stop(plan, by=ada)
    advance(plan)

    step = plan.steps.get()
    assert (stopped.cancelled, step.was, step.state) == (0, "ready", "needs_human")
    assert step.is_lost
    assert facts_of(one_thing.run).steps_to_settle().startswith("Settle step 1 first")


def test_what_is_refused_once_more_as_its_plan_is_stopped_is_in_doubt_as_before(
    one_thing, world, outside, ada
):
    outside.mischief("a", fail_after=1)
    plan = plan_for(one_thing, world, "refund_unseen")
    for _ in range(3):
        advance_once(plan)
    intent = by_hand.intend(held := in_hand(plan), (found := looked_at(held)).operation, None)
    plan_lifecycle.stop(plan, by=ada)
    assert by_hand.settles(intent, found.operation, Answer(outcome="no_effect", detail="busy"))

    advance(plan)

    step = plan.steps.get()
    assert (step.was, step.state, step.is_lost) == ("ready", "needs_human", True)


def said(step, case, ada, outcome, **more):
    case.refresh_from_db()
    words = {"outcome": outcome, "evidence": "I looked.", "by": ada, "seen": case.revision}
    return settling.settle_step(step, **words, **more)


def test_what_a_person_says_and_a_probe_under_way_are_not_both_written(
    one_thing, world, outside, ada, monkeypatch
):
    """Whoever comes second, and did not see what the first has found, writes nothing."""
    outside.mischief("a", fail=1)
    plan = plan_for(one_thing, world, "refund")
    advance_once(plan)
    advance_once(plan)
    assert states(plan) == ["unknown"]
    absent = Finding(found="absent")

    def probe(*_):
        said(plan.steps.get(), one_thing, ada, "applied")
        return absent

    monkeypatch.setattr(outbound_calls, "probe", probe)
    make_due(plan)
    assert not failure_paths.probe(plan.steps.get().pk)
    assert states(plan) == ["applied"]
    assert plan.steps.get().attempts.get().outcome == "unknown"

    Step.objects.update(was="intended", state="unknown", tries=3)
    one_thing.refresh_from_db()
    seen = one_thing.revision
    monkeypatch.setattr(outbound_calls, "probe", lambda *_: absent)
    assert failure_paths.probe(plan.steps.get().pk)
    assert states(plan) == ["needs_human"]
    with pytest.raises(OutOfDate):
        settling.settle_step(
            plan.steps.get(), outcome="applied", evidence="I saw it", by=ada, seen=seen
        )


@pytest.mark.parametrize("operation", ["slowly", "mail"])
def test_what_a_person_has_not_found_is_not_tried_before_a_probe_would_have_shown_it(
    one_thing, world, outside, ada, operation, client
):
    """The first call may be on its way, and a look at its target not show it yet."""
    outside.mischief("a", fail_after=1)
    plan = plan_for(one_thing, world, operation)
    advance_once(plan)
    by_hand.advance_once(plan.pk)
    unknown = plan.steps.get()
    assert (unknown.state, outside.effects()) == ("unknown", ["a"])
    client.force_login(ada)
    page = client.get(f"/w/{one_thing.workspace.slug}/cases/{one_thing.pk}/settle/").text
    assert "once the first call can no longer be on its way" in page

    said(unknown, one_thing, ada, "no_effect", again=True)
    by_hand.advance(plan.pk)

    step = plan.steps.get()
    assert (step.state, step.wake_at, step.tries) == ("ready", unknown.wake_at, 1)
    assert outside.effects() == ["a"]


def sent_and_left_to_people(plan):
    """A first try on its way, whose worker stands still, and what was looked for of it."""
    advance_once(plan)
    held = in_hand(plan)
    found = looked_at(held)
    first = by_hand.intend(held, found.operation, found.observation)
    for _ in range(2):
        advance_once(plan)
    assert states(plan) == ["needs_human"]
    return first, found.operation


def test_who_is_about_to_rule_it_out_sees_an_answer_that_came_after_all(
    one_thing, world, outside, ada
):
    plan = plan_for(one_thing, world, "mail")
    first, operation = sent_and_left_to_people(plan)
    one_thing.refresh_from_db()
    seen = one_thing.revision

    assert not by_hand.settles(first, operation, Answer(outcome="applied"))

    with pytest.raises(OutOfDate):
        settling.settle_step(
            plan.steps.get(), outcome="no_effect", evidence="Not there", by=ada, seen=seen
        )


@pytest.mark.parametrize("claimed", [False, True])
def test_what_is_answered_after_a_person_has_ruled_it_out_is_not_done_again(
    one_thing, world, outside, ada, claimed
):
    """Its worker stood still, and wrote the answer down as the second try was about to go out."""
    plan = plan_for(one_thing, world, "mail")
    first, operation = sent_and_left_to_people(plan)
    said(plan.steps.get(), one_thing, ada, "no_effect", again=True)
    if claimed:
        in_hand(plan)

    assert not by_hand.settles(first, operation, Answer(outcome="applied"))

    step = plan.steps.get()
    assert (step.state, step.generation) == ("needs_human", 2)
    assert step.note.startswith("It happened")
    assert said(step, one_thing, ada, "applied").state == "applied"


@pytest.mark.django_db(transaction=True)
def test_what_is_claimed_as_its_first_try_is_answered_is_not_done_again(
    one_thing, world, outside, ada
):
    plan = plan_for(one_thing, world, "mail")
    first, operation = sent_and_left_to_people(plan)
    said(plan.steps.get(), one_thing, ada, "no_effect", again=True)

    comes_before_the_commit(
        lambda: protocol.claim_all([steps.load(plan.steps.get().pk)]),
        lambda: by_hand.settles(first, operation, Answer(outcome="applied")),
    )

    assert states(plan) == ["needs_human"]


@pytest.mark.parametrize(
    "second", ["on the wire", "ended", "lost", "left to people", "said to be done", "skipped"]
)
def test_that_a_try_happened_which_a_person_has_ruled_out_is_told_though_another_was_sent(
    one_thing, world, outside, ada, second
):
    """The second try stood there as the only one, and where it was lost a third could follow."""
    workspace = one_thing.workspace
    Channel.objects.create(workspace=workspace, name="pager", kind="mail", subjects=["*"])
    plan = plan_for(one_thing, world, "mail")
    first, operation = sent_and_left_to_people(plan)
    said(plan.steps.get(), one_thing, ada, "no_effect", again=True)
    intent = by_hand.intend(in_hand(plan), operation, None)
    applied = Answer(outcome="applied")

    if second == "ended":
        by_hand.settles(intent, operation, applied)
    if second not in {"on the wire", "lost"}:
        advance(plan)
    if second == "said to be done":
        said(plan.steps.get(), one_thing, ada, "applied")
    if second == "skipped":
        said(plan.steps.get(), one_thing, ada, "no_effect")
    by_hand.settles(first, operation, applied)
    if second == "on the wire":
        by_hand.settles(intent, operation, applied)
    advance(plan)

    step = plan.steps.get()
    told = Delivery.objects.latest("pk").message["text"]
    assert told.startswith("It happened: an earlier try")
    is_twice = second in {"on the wire", "ended", "said to be done"}
    assert ("once more since" in told) == is_twice
    if second in {"ended", "skipped"}:
        assert step.state == {"ended": "reported"}.get(second, second)
        return
    assert (step.state, step.note in told) == ("needs_human", True)
    said(step, one_thing, ada, "applied")
    advance(plan)
    assert states(plan) == ["reported"]


def test_an_answer_that_is_written_as_another_try_is_about_to_be_sent_comes_after_it(
    one_thing, world, outside, ada, monkeypatch
):
    """It waited for the step, and read as known to whoever had asked for the other one."""
    plan = plan_for(one_thing, world, "mail")
    first, operation = sent_and_left_to_people(plan)
    said(plan.steps.get(), one_thing, ada, "no_effect", again=True)
    second = by_hand.intend(in_hand(plan), operation, None)
    waited = queries.KEEP_SQL.replace("_timestamp()", "_timestamp() - interval '1 hour'")
    monkeypatch.setattr(protocol, "KEEP_SQL", waited)

    for one in (first, second):
        by_hand.settles(one, operation, Answer(outcome="applied"))
    advance(plan)

    step = plan.steps.get()
    assert (step.state, step.note) == ("needs_human", f"{steps.HAPPENED} {steps.TWICE}")


@pytest.mark.parametrize(
    ("compensated", "words"), [("none", "counts as standing"), ("compensated", "was done twice")]
)
def test_of_what_was_left_and_happened_after_all_it_is_told_how_its_effect_stands_now(
    one_thing, world, outside, ada, compensated, words
):
    """A later plan had undone it, and people were told that it counts as standing."""
    workspace = one_thing.workspace
    Channel.objects.create(workspace=workspace, name="pager", kind="mail", subjects=["*"])
    plan = plan_for(one_thing, world, "mail")
    first, operation = sent_and_left_to_people(plan)
    said(plan.steps.get(), one_thing, ada, "no_effect")
    Effect.objects.filter(steps__plan=plan).update(compensated=compensated)

    by_hand.settles(first, operation, Answer(outcome="applied"))

    assert states(plan) == ["skipped"]
    assert words in Delivery.objects.latest("pk").message["text"]


@pytest.mark.parametrize("answer", ["unknown", "no_effect"])
def test_what_happened_after_all_is_not_sent_again_as_its_second_try_did_nothing(
    one_thing, world, outside, ada, answer
):
    """A probe did not find the second try, or it was refused, and it was sent once more."""
    plan = plan_for(one_thing, world, "refund")
    advance_once(plan)
    held = in_hand(plan)
    found = looked_at(held)
    first = by_hand.intend(held, found.operation, found.observation)
    Step.objects.update(was="unknown", state="needs_human", lease_until=None)
    said(plan.steps.get(), one_thing, ada, "no_effect", again=True)
    second = by_hand.intend(in_hand(plan), found.operation, found.observation)

    by_hand.settles(first, found.operation, Answer(outcome="applied"))
    by_hand.settles(second, found.operation, Answer(outcome=answer))
    advance(plan)

    assert outside.effects() == []
    step = plan.steps.get()
    assert (step.state, step.is_lost) == ("needs_human", False)
    assert step.note == f"{steps.HAPPENED} {steps.NOTHING_MORE}"


def test_one_more_try_of_what_is_known_to_have_happened_and_does_not_show_ends_as_any(
    one_thing, world, outside, ada
):
    """It was left to people as done twice by mistake, though they had asked for just that."""
    outside.mischief("a", leaves={"v": 2})
    plan = plan_for(one_thing, world)
    advance(plan)
    assert states(plan) == ["needs_human"]
    one_thing.refresh_from_db()
    step = plan.steps.get()
    settling.try_again(step, reason="It was lost there", by=ada, seen=one_thing.revision)

    advance(plan)

    assert (states(plan), outside.effects()) == (["verified"], ["a", "a"])
