"""F01 to F06, F19, F20, F23, F25: processes that die, stop, lie about time, or are replaced."""

import os
import signal
import threading
from pathlib import Path

from approvals.models import Approval
from recovery import tasks
from recovery.models import Case, Step, StepAttempt
from tests.crash.catalogue import FAULTS, Fault, fault
from tests.crash.oracle import rest, until
from tests.crash.storm import LOSSES, PLANS, Storm, stopped
from tests.crash.versions import of_old, old_code
from tests.recovery.engine.desk import plan_for
from workspaces.wake import wake

ASTRAY = Path(__file__).parent.parent / "astray"
"""Where Python finds the wrong clock when it starts."""

LOST = 4
"""So many answers are lost at once that the connection is not yet left alone."""


def killed_at(point: str) -> Fault:
    def work(storm: Storm) -> None:
        thrice = sorted(storm.chance.sample(range(1, 15), 3))
        storm.begin(FAULT=f"{point}:kill:{'+'.join(map(str, thrice))}")

    return work


for _name, _point in {
    "F01 killed after claim": "claimed",
    "F02 killed after intent": "intended",
    "F04 killed after the answer": "answered",
    "F04 killed while settling": "settling",
    "F02 killed while intending": "intending",
}.items():
    FAULTS[_name] = killed_at(_point)


@fault("F03 killed between effect and answer")
def kill_after_sending(storm: Storm) -> None:
    for number in range(PLANS):
        storm.outside.mischief(f"s{number}{storm.chance.randrange(3)}", sleep_after=0.8)
    storm.begin()
    until(lambda: len(storm.outside.journal()) > 2, 20, "effects")
    storm.workers[0].kill()
    storm.worker()


@fault("F05 whole workers killed")
def kill_whole_workers(storm: Storm) -> None:
    storm.begin()
    for _ in range(2):
        storm.some_time(0.2, 1.5)
        storm.workers[-1].kill()
        storm.worker()


@fault("F06 poison step")
def poison(storm: Storm) -> None:
    poisoned = plan_for(storm.make("poison", 1), storm.connection)
    storm.begin(count=3)
    wake(tasks.run_plan, poisoned.pk)
    rest(storm.plans, 60)
    until(lambda: poisoned.steps.filter(state="needs_human").exists(), 120, "people are asked")


@fault("F19 stopped past the lease")
def stop_past_lease(storm: Storm) -> None:
    storm.begin(FAULT=f"checked:stop:{storm.chance.randrange(1, 6)},intended:stop:7")
    storm.worker()
    until(lambda: any(stopped(worker) for worker in storm.workers), 30, "a worker stops")
    rest(storm.plans, 90)
    for pid in {pid for worker in storm.workers for pid in stopped(worker)}:
        os.kill(pid, signal.SIGCONT)
    storm.some_time(2, 3)


@fault("F20 clocks astray")
def clocks_astray(storm: Storm) -> None:
    """An hour ahead, an hour behind: no lease is stolen, nothing expires, no live run is taken."""
    approval = storm.ask_for(storm.plan("asked"), expires_seconds=1800)
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
    storm.begin(sweeps=False)  # nobody comes back to what is unknown
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
