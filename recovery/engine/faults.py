"""Named crash points, so that a test can end a process at the worst moment.

`FAULT=point:effect:nth`, several divided by commas, and nothing at all where it is not set.
Effects: `kill` (SIGKILL), `stop` (SIGSTOP), `raise`, `cut` (the database connection goes), or
seconds to sleep. `nth` is the how-manieth passing of the point (`2+5` the second and the fifth,
`*` each), counted over all processes that share `FAULT_FOLDER`.
"""

import logging
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

from django.db import connection

logger = logging.getLogger(__name__)


class Injected(BaseException):
    """We stopped because a test asked for it. It stands for the end of the process, so whoever
    catches what goes wrong with one plan must not catch it.
    """


class Fault(NamedTuple):
    effect: str
    nth: str


def _asked_for() -> dict[str, Fault]:
    faults = {}
    for one in filter(None, os.environ.get("FAULT", "").split(",")):
        name, effect, nth = one.split(":")
        faults[name] = Fault(effect, nth)
    return faults


FAULTS = _asked_for()


_passed: dict[str, int] = {}


def point(name: str) -> None:
    """Pass a crash point; costs a dictionary look-up where no fault is asked for."""
    fault = FAULTS.get(name)
    if fault is None:
        return
    count = _count(name)
    if fault.nth != "*" and str(count) not in fault.nth.split("+"):
        return
    logger.warning("fault at %s (%d): %s", name, count, fault.effect)
    _do(fault.effect)


def _count(name: str) -> int:
    folder = os.environ.get("FAULT_FOLDER")
    if folder is None:
        _passed[name] = _passed.get(name, 0) + 1
        return _passed[name]
    count = 1
    while True:
        try:
            Path(folder, f"{name}.{count}").touch(exist_ok=False)
        except FileExistsError:
            count += 1
        else:
            return count


def _do(effect: str) -> None:
    match effect:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "raise":
            raise Injected(effect)
        case "cut":
            connection.connection.pgconn.finish()
        case seconds:
            time.sleep(float(seconds))
