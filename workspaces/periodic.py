"""What is done again and again: each floor states its jobs in a module `periodic`.

A job must do no harm when two processes run it at the same time, and must bound its own work: the
next turn comes soon. `scheduler` jobs may be late; `sweeper` jobs re-drive what a lost message left
behind.
"""

from collections.abc import Callable
from dataclasses import dataclass

from django.utils.module_loading import autodiscover_modules

SCHEDULER, SWEEPER = "scheduler", "sweeper"


@dataclass(frozen=True)
class Job:
    """One thing to do every so many seconds, measured from end to start."""

    name: str
    seconds: float
    work: Callable[[], object]
    process: str


_jobs: dict[str, Job] = {}


def every(
    seconds: float, *, name: str, process: str = SCHEDULER
) -> Callable[[Callable[[], object]], Callable[[], object]]:
    """Register the decorated function; `name` is what /statusz and the logs call it
    ("ledger.seal")."""

    def register(work: Callable[[], object]) -> Callable[[], object]:
        if name in _jobs:
            raise ValueError(f"Two jobs are named {name}.")
        _jobs[name] = Job(name, seconds, work, process)
        return work

    return register


def jobs(process: str | None = None) -> list[Job]:
    """All jobs that any floor states, or those of one process."""
    autodiscover_modules("periodic")
    return [job for job in _jobs.values() if process in (None, job.process)]
