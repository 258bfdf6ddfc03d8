"""The list of faults: a name, and what it breaks while a storm is at work."""

from collections.abc import Callable

from tests.crash.storm import Storm

Fault = Callable[[Storm], None]

FAULTS: dict[str, Fault] = {}


def fault(name: str) -> Callable[[Fault], Fault]:
    """Put it on the list, under the number that it has in docs/faults.md and a few words."""

    def register(work: Fault) -> Fault:
        FAULTS[name] = work
        return work

    return register
