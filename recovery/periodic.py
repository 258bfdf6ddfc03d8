"""What recovery does again and again."""

from recovery import tasks
from recovery.casework import bulk, cases, closing
from recovery.corrections import contesting, publishing
from recovery.triage import (
    advice,
    automatic,
    case_projection,
    outcome_probes,
    triage,
    verification,
)
from workspaces.periodic import SWEEPER, every

LOOK_SECONDS = 0.5
"""A failure is in the queue within two seconds, and a quiet look costs one index."""

every(1.0, name="recovery.sweep", process=SWEEPER)(tasks.sweep)
every(LOOK_SECONDS, name="recovery.triage", where=[triage.unseen])(triage.look)
every(5.0, name="recovery.advice")(advice.renew)
every(5.0, name="recovery.silence", where=[triage.silent])(triage.listen_for_silence)
every(2.0, name="recovery.automatic", where=[automatic.unconsidered])(automatic.sweep)
every(2.0, name="recovery.probes", where=[outcome_probes.in_doubt])(outcome_probes.sweep)
every(1.0, name="recovery.readback", where=[verification.due])(verification.sweep)
every(1.0, name="recovery.bulk", where=[bulk.under_way])(bulk.sweep)
every(5.0, name="recovery.resumes")(lambda: triage.look(triage.overdue()))
every(30.0, name="recovery.claims")(cases.let_idle_claims_go)
every(2.0, name="recovery.corrections", where=publishing.QUEUES)(publishing.sweep)
every(60.0, name="recovery.residues")(closing.remind)
every(60.0, name="recovery.contests")(contesting.remind)
every(5.0, name="recovery.runs")(case_projection.carry_runs)
every(60.0, name="recovery.words")(case_projection.words_walk.goes_on)
