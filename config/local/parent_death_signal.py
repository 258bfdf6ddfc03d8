"""Run a command that ends when the process that started it ends, however that one ends.

Used as `python -I -S leash.py SIGNAL PARENT COMMAND …`. It stands between parent and command
because the kernel forgets the wish on some changes of credentials (entering a user namespace is
one), so it has to be made last, just before the command. It imports nothing of ours, to start
quickly.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(number: int) -> None:
    """Ask the kernel for this signal when our parent dies. Linux only; elsewhere a no-op."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def leashed(command: list[str], *, ends_with: signal.Signals) -> list[str]:
    """The command line that runs `command` on a leash held by this very process."""
    return [sys.executable, "-I", "-S", __file__, ends_with.name, str(os.getpid()), *command]


def main(arguments: list[str]) -> None:
    name, parent, *command = arguments
    number = signal.Signals[name]
    die_with_parent(number)
    if os.getppid() != int(parent):  # it died before we could ask
        raise SystemExit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
