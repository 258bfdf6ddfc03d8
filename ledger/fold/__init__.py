"""The fold: from the events of an action or a run to the row that says what is known of it.

Pure functions. What is known only grows, and the fold is the join of all statements, so neither the
order in which events came nor how often they came makes a difference (DESIGN §4, "The fold").
"""

from ledger.fold.actions import ActionRow, fold_action
from ledger.fold.attempts import AttemptRow
from ledger.fold.effects import EffectRow
from ledger.fold.meaning import MOVES_ACTION, MOVES_RUN, moves_action, moves_run
from ledger.fold.runs import CheckpointRow, RunRow, checkpoint_of, fold_run

__all__ = [
    "MOVES_ACTION",
    "MOVES_RUN",
    "ActionRow",
    "AttemptRow",
    "CheckpointRow",
    "EffectRow",
    "RunRow",
    "checkpoint_of",
    "fold_action",
    "fold_run",
    "moves_action",
    "moves_run",
]
