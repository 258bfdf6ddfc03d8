"""What one workspace that asks without end costs the others.

    python -m bench noisy

`noisy_ratio` is the 95th percentile of an agent's `begin` in a quiet workspace while eight agents
of another ask as fast as they can and wait for nothing, over the same without them; the noisy one
has a limit (`AMENDS_RATE_WORKSPACE`), as docs/running.md advises. By turns, medians of the rounds.
`noisy_unlimited_ratio` is the same without the limit. The noise is a process of its own.
"""

import statistics
import subprocess
import sys
import time
from typing import Any

from bench.begin import Caller
from bench.servers import Desk, p95

AGENTS = 8
PER_MINUTE = 1_200
ROUNDS, CALLS, WARM_UP = 5, 200, 50
SETTLE_SECONDS = 2.0
"""Until the noise is at its rate, and a burst of its limit is used up."""

NOISE = """
import sys, threading
from bench.begin import Caller
url, token, agents = sys.argv[1:]
def make(name):
    caller, number = Caller(url, token, name), 0
    while True:
        number += 1
        caller.ask("pay.refund", f"{name}_{number}", number, f"try-{number}")
for one in range(int(agents)):
    threading.Thread(target=make, args=[f"noise{one}"]).start()
"""


def noisy(running: Desk, *, small: bool) -> dict[str, Any]:
    import django

    django.setup()
    from bench.generate import cast
    from workspaces.models import Workspace

    quiet, loud = cast("quiet"), cast("loud")
    running.start_web()
    caller, calls = Caller(running.url, quiet.tokens[0], "quiet"), CALLS // 4 if small else CALLS
    for _ in range(WARM_UP):
        caller.begin()
    found: dict[str, Any] = {}
    for name, limit in (("noisy", PER_MINUTE), ("noisy_unlimited", None)):
        Workspace.objects.filter(pk=loud.workspace.pk).update(rate_workspace=limit)
        rounds = [_round(running.url, caller, loud.tokens[0], calls) for _ in range(ROUNDS)]
        found[f"{name}_ratio"] = round(statistics.median(b / a for a, b in rounds), 2)
        found[f"{name}_p95_ms"] = round(statistics.median(b for _, b in rounds) * 1000, 2)
    found["quiet_p95_ms"] = round(statistics.median(a for a, _ in rounds) * 1000, 2)
    return found


def _round(url: str, caller: Caller, token: str, calls: int) -> tuple[float, float]:
    """The 95th percentile alone, and beside the noise, in seconds."""
    alone = p95(caller.begin() for _ in range(calls))
    command = [sys.executable, "-W", "ignore", "-c", NOISE, url, token, str(AGENTS)]
    with subprocess.Popen(command) as noise:
        try:
            time.sleep(SETTLE_SECONDS)
            beside = p95(caller.begin() for _ in range(calls))
        finally:
            noise.kill()
    return alone, beside
