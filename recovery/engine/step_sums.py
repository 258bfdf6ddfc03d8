"""What a step gives back of the sums and counts of rules where it ends without an effect.

Its plan holds it from the yes on (`approvals.plan_sums`). A step that waits for people may still be
tried, so it holds on; one that is cancelled or skipped gives back, unless one of its tries may have
had its effect.
"""

from collections.abc import Iterable, Sequence

from approvals import plan_sums
from recovery.models import Step, StepAttempt


def give_back(steps: Sequence[Step]) -> None:
    """These steps were cancelled or skipped; in the same transaction."""
    tried = StepAttempt.objects.filter(step__in=steps).with_possible_effect()
    doubtful = set(tried.values_list("step", flat=True))
    without_effect([one for one in steps if one.pk not in doubtful])


def without_effect(steps: Iterable[Step]) -> None:
    """The same of steps that are known to have had none, such as by a person's word."""
    places: dict[int, list[int]] = {}
    for one in steps:
        places.setdefault(one.plan_id, []).append(one.position)
    for plan_id, positions in places.items():
        plan_sums.give_back(plan_id, positions)
