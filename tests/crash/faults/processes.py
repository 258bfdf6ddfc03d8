"""F01 to F06, F19, F20, F23, F25: processes that die, stop, lie about time, or are replaced."""

import os
import signal
import threading
import time
from pathlib import Path

from approvals.models import Approval
from recovery import tasks
from recovery.engine.protocol import CLAIMS_MAX
from recovery.engine.steps import action_of, run_of
from recovery.models import Case, Step, StepAttempt
from recovery.models.plans import StepState
from tests.crash.catalogue import FAULTS, Fault, fault
from tests.crash.oracle import at_rest, rest, until
from tests.crash.storm import LOSSES, PLANS, Storm, children, stopped, talk_to_broker
from tests.crash.versions import of_old, old_code
from tests.recovery.engine.desk import plan_for
from workspaces.clock import database_time
from workspaces.wakeups import wake

ASTRAY = Path(__file__).parent.parent / "astray"
"""Where Python finds the wrong clock when it starts."""

TAKEN_BACK_SECONDS_MAX = 10.0
UNCLAIMED_SECONDS_MAX = 30.0
TAKEN = "was taken from us"
"""What a worker says when it finds that a step is no longer its own."""

LOST = 4
"""So many answers are lost at once that the connection is not yet left alone."""


def killed_at(point: str) -> Fault:
    def work(storm: Storm) -> None:
        thrice = sorted(storm.chance.sample(range(1, 15), 3))
        storm.begin(FAULT=f"{point}:kill:{'+'.join(map(str, thrice))}")
        rest(storm.plans)
        AFTERWARDS[point](storm)

    return work


def nothing_was_sent(storm: Storm) -> None:
    """Ready again after the lease, and nothing was ever in doubt because of it."""
    taken_back(storm)
    assert any(event.type == "step.ready" for event in storm.stolen())


def absence_was_shown(storm: Storm) -> None:
    """Unknown, a probe that says it did not happen, and one more try under the same key."""
    taken_back(storm)
    assert any(event.type == "step.unknown" for event in storm.stolen())
    absent = {(event.run, event.action) for event in storm.told("no_effect")}
    assert absent, "no probe found that nothing had happened"
    for plan in storm.plans:
        for step in plan.steps.all():
            if (run_of(plan), action_of(step)) in absent:
                assert step.attempts.count() > 1
            assert set(step.attempts.values_list("key", flat=True)) == {step.key}


def it_was_found(storm: Storm) -> None:
    """Unknown, a probe that finds it, and the probe's evidence kept."""
    taken_back(storm)
    found = storm.told("applied", was="unknown")
    assert found, "no probe found what had happened"
    assert all((event.data or {})["evidence"] for event in found)


def it_was_read_back(storm: Storm) -> None:
    """The effect is known: whoever goes on reads it back, and intends nothing more."""
    applied = {(one.run, one.action): one.place for one in storm.told("applied")}
    assert len(applied) == PLANS * 3
    assert all(one.place < applied[one.run, one.action] for one in storm.told("intended"))


AFTERWARDS = {
    "claimed": nothing_was_sent,
    "intending": nothing_was_sent,
    "intended": absence_was_shown,
    "answered": it_was_found,
    "settling": it_was_found,
    "settled": it_was_read_back,
    "ending": it_was_read_back,
}


def taken_back(storm: Storm) -> None:
    """What a dead worker held was taken from it, after its lease and at most ten seconds later."""
    seconds = storm.seconds_after_lease()
    assert seconds, "nothing was taken back"
    assert min(seconds) >= 0
    assert max(seconds) <= TAKEN_BACK_SECONDS_MAX, seconds


for _name, _point in {
    "F01 killed after claim": "claimed",
    "F02 killed after intent": "intended",
    "F04 killed after the answer": "answered",
    "F04 killed while settling": "settling",
    "F04 killed before reading back": "settled",
    "F04 killed while ending": "ending",
    "F02 killed while intending": "intending",
}.items():
    FAULTS[_name] = killed_at(_point)


@fault("F03 killed between effect and answer")
def kill_after_sending(storm: Storm) -> None:
    slow = [f"s{number}{storm.chance.randrange(3)}" for number in range(PLANS)]
    for name in slow:
        storm.outside.mischief(name, sleep_after=30)
    storm.begin()
    until(
        lambda: not set(slow).isdisjoint(storm.outside.effects()),
        30,
        "an effect without its answer",
    )
    storm.workers[0].kill()
    storm.worker()
    rest(storm.plans)
    it_was_found(storm)


@fault("F05 whole workers killed")
def kill_whole_workers(storm: Storm) -> None:
    """First one that has taken every message and begun nothing: only the sweeper knows of them."""
    for number in range(PLANS):
        storm.outside.mischief(f"s{number}2", sleep_before=0.7)
    storm.workers = [storm.processes.worker(concurrency=PLANS, **storm.environment)]
    for pid in children(storm.workers[0].pid)[1:]:
        os.kill(pid, signal.SIGSTOP)
    storm.plans += [storm.plan(f"s{number}") for number in range(PLANS)]
    storm.hint()
    until(lambda: messages_taken() == PLANS, 30, "every message taken")
    storm.workers[0].kill()
    killed = database_time()
    assert storm.told("claimed") == []
    with storm.processes.side_by_side():
        storm.sweepers = [storm.processes.sweeper(**storm.environment)]
        storm.worker()
    for _ in range(2):
        storm.some_time(0.2, 1.5)
        until(lambda: is_in_hand(storm) or at_rest(storm.plans), 30, "a step in hand")
        storm.workers[-1].kill()
        storm.worker()
    rest(storm.plans)
    begun = storm.told("claimed", position=1)
    assert {event.run for event in begun} == {run_of(plan) for plan in storm.plans}
    first = {event.run: event.received_at for event in reversed(begun)}
    assert max((one - killed).total_seconds() for one in first.values()) < UNCLAIMED_SECONDS_MAX
    taken_back(storm)


def is_in_hand(storm: Storm) -> bool:
    """Whether a worker holds a step: killed between two, it leaves nothing to be taken back."""
    held = (StepState.CLAIMED, StepState.INTENDED)
    return Step.objects.filter(plan__in=storm.plans, state__in=held).exists()


def messages_taken() -> int:
    """Messages that workers have in hand, once none is left to be taken."""
    talk = talk_to_broker()
    return 0 if talk.llen("engine") else int(talk.hlen("unacked"))


@fault("F06 poison step")
def poison(storm: Storm) -> None:
    """People are asked after so many claims, and then nobody is sent for it any more."""
    poisoned = plan_for(storm.make("poison", 1), storm.connection)
    storm.begin(count=3)
    wake(tasks.run_plan, poisoned.pk)
    rest(storm.plans, 60)
    until(lambda: poisoned.steps.filter(state="needs_human").exists(), 120, "people are asked")
    assert poisoned.steps.get().claims == CLAIMS_MAX
    storm.some_time(2, 3)
    before = storm.messages()
    storm.some_time(6, 8)
    assert storm.messages() <= before + 1, "it is looked at seldom, and goes round no more"
    storm.plans.append(poisoned)
    storm.for_people |= {step.key for step in poisoned.steps.all()}


@fault("F19 stopped past the lease")
def stop_past_lease(storm: Storm) -> None:
    """For three leases. Whoever wakes up then sends nothing, and nothing that it writes counts."""
    storm.begin(FAULT=f"checked:stop:{storm.chance.randrange(1, 6)},intended:stop:7")
    storm.worker()
    until(lambda: any(stopped(worker) for worker in storm.workers), 30, "a worker stops")
    began = time.monotonic()
    rest(storm.plans, 90)
    until(lambda: storm.not_met() == [], 30, "the other stops, too")
    lease = float((storm.told("claimed")[0].data or {})["lease_seconds"])
    time.sleep(max(0.0, began + 3 * lease - time.monotonic()))
    done, told = storm.outside.journal(), len(storm.told())
    for pid in {pid for worker in storm.workers for pid in stopped(worker)}:
        os.kill(pid, signal.SIGCONT)
    withheld = StepAttempt.objects.filter(
        step__plan__in=storm.plans, detail__contains="the lease would not outlast the call"
    )
    until(withheld.exists, 30, "the send was stopped by what was left of the lease")
    until(lambda: any(TAKEN in one.said() for one in storm.workers), 30, "a write was refused")
    storm.some_time(2, 3)
    assert storm.outside.journal() == done
    assert len(storm.told()) == told


@fault("F20 clocks astray")
def clocks_astray(storm: Storm) -> None:
    """An hour ahead, an hour behind: no lease is stolen, nothing expires, no live run is taken."""
    approval = storm.ask_for(lambda: storm.plan("asked"), expires_seconds=1800)
    storm.make_live_run("alive")
    for number in range(4):
        storm.outside.mischief(f"s{number}2", sleep_before=0.7)  # there is time to steal it
    path = astray(storm.environment["PYTHONPATH"])
    storm.begin(count=4, PYTHONPATH=path, ASTRAY_SECONDS="3600")
    with storm.processes.side_by_side():
        storm.processes.scheduler(**storm.environment)
        storm.worker(ASTRAY_SECONDS="-3600")
        storm.worker(ASTRAY_SECONDS="300")
    for _ in range(5):
        storm.hint()
        storm.some_time(0.3, 1.0)
    mine = [plan for plan in storm.plans if plan.approval_id is None]
    rest(mine, 90)

    assert approvals_waiting() == [approval.pk]
    storm.grant(approval)
    storm.hint()
    rest(storm.plans, 60)
    assert storm.stolen() == []
    assert not Case.objects.filter(run__run="run_alive").exists()


def astray(path: str) -> str:
    return os.pathsep.join([str(ASTRAY), path])


def approvals_waiting() -> list[int]:
    return list(Approval.objects.filter(state="waiting").values_list("pk", flat=True))


@fault("F23 key expired at the provider")
def key_expired(storm: Storm) -> None:
    """The first try was made longer ago than the provider remembers: it is not repeated."""
    storm.operations = ("refund_unseen",)
    for number in range(LOST):
        storm.outside.mischief(f"s{number}2", **storm.chance.choice(LOSSES))
    storm.connection.concurrency = PLANS  # else a step waits for its system ...
    storm.connection.save(update_fields=["concurrency"])
    storm.begin(sweeps=False)  # ... and nobody comes back to it, nor to what is unknown
    unknown = Step.objects.filter(plan__in=storm.plans, state="unknown")
    until(lambda: unknown.count() == LOST, 60, "the newest step of some plans is unknown")
    storm.for_people |= set(storm.age_tries(seconds=120))
    storm.sweepers = [storm.processes.sweeper(**storm.environment)]
    rest(storm.plans)

    assert {step.state for step in Step.objects.filter(key__in=storm.for_people)} == {"needs_human"}
    assert StepAttempt.objects.filter(key__in=storm.for_people).count() == LOST


@fault("F25 rolling deploy")
def rolling(storm: Storm) -> None:
    storm.lose_answers(0.3)
    storm.begin()
    storm.sweepers.append(storm.processes.sweeper(**storm.environment))
    for _ in range(3):
        storm.some_time(1, 3)
        old = storm.workers.pop()
        threading.Thread(target=old.stop).start()
        storm.worker()


@fault("F25 old and new code at once")
def old_and_new(storm: Storm) -> None:
    """Workers and sweepers of two versions on the same plans, the old ones replaced on the way."""
    old = of_old(old_code(storm.processes.folder))
    storm.lose_answers(0.3)
    storm.begin(count=0)
    with storm.processes.side_by_side():
        storm.sweepers.append(storm.processes.sweeper(**storm.environment | old))
        storm.workers.append(storm.processes.worker(**storm.environment | old))
    storm.plans += [storm.plan(f"s{number}") for number in range(PLANS)]
    storm.hint()
    for version in (old, {}, {}):
        storm.some_time(1, 3)
        threading.Thread(target=storm.workers.pop(0).stop).start()
        storm.workers.append(storm.processes.worker(**storm.environment | version))
        storm.hint()
