"""Whether this process was told to end: what has not begun is left to others, at once.

A worker's pool is told by its main process, which alone hears SIGTERM, through memory that they
share since the fork. It only ever shortens a wait: who does not look ends later, and by a lease.
"""

import mmap

_TOLD = mmap.mmap(-1, 1)
"""One byte, shared with every process that is forked from this one."""


def begin() -> None:
    """From now on nobody in this process, or forked from it, takes up anything new."""
    _TOLD[0] = 1


def is_on() -> bool:
    """Whether `begin` was called here, or where we were forked from."""
    return _TOLD[0] == 1
