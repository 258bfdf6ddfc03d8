"""What recovery does again and again."""

from recovery import sweeper
from recovery.casework import bulk, cases
from recovery.corrections import aftercare
from recovery.triage import automatic, outcome_probes, triage, verification
from workspaces.periodic import SWEEPER, every

SWEEP_SECONDS = 1.0
LOOK_SECONDS = 0.5
"""A failure is in the queue within two seconds, and a quiet look costs one index."""


@every(SWEEP_SECONDS, name="recovery.sweep", process=SWEEPER)
def sweep() -> object:
    return sweeper.sweep()


@every(LOOK_SECONDS, name="recovery.triage")
def look() -> object:
    return triage.look()


@every(5.0, name="recovery.silence")
def listen() -> object:
    return triage.listen_for_silence()


@every(2.0, name="recovery.automatic")
def compensate() -> object:
    return automatic.sweep()


@every(2.0, name="recovery.probes")
def ask_for_the_unknown() -> object:
    return outcome_probes.sweep()


@every(1.0, name="recovery.readback")
def read_back() -> object:
    return verification.sweep()


@every(1.0, name="recovery.bulk")
def work_off_bulk_jobs() -> object:
    return bulk.sweep()


@every(5.0, name="recovery.resumes")
def bring_back_unanswered() -> object:
    return triage.look(triage.overdue())


@every(30.0, name="recovery.claims")
def let_go() -> object:
    return cases.let_idle_claims_go()


@every(2.0, name="recovery.corrections")
def draft_corrections() -> object:
    return aftercare.draft_due() + aftercare.publish_due() + aftercare.follow_deliveries()
