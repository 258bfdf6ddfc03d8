"""The pages on a large desk: queue, search and everything else, as a browser waits for them.

Times are of whole requests to a real web process over one open connection, so they are a little
more than the server's own. The small desk and the large one are asked by turns: what disturbs one
disturbs the other.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import quote

from bench.servers import Browser, Desk, Made, Servers, median_of, p95

ROUNDS = 3
ASKED = 40
LARGE_RUNS, SMALL_RUNS = 1_000_000, 10_000

# A rare word, some in a case of a hundred, and one that is in every request; each with two filters.
TERMS = (
    "R000011", "run_0009981", "Lisbon", "Reykjavik", "lind*", '"window seat"', "instalment",
    "please", "Eve Field", "booking",
)  # fmt: skip
FILTERS = ("risk:high agent:airline-desk", "is:unclaimed risk:>low", "is:irreversible age:<60d",
           "tool:charge_payment_card -is:unknown")  # fmt: skip


@contextmanager
def desks(servers: Servers, runs: tuple[int, ...]) -> Iterator[list[tuple[Desk, Made]]]:
    """A living desk of each size, with its web process."""
    with ExitStack() as stack:
        found = []
        for count in runs:
            desk = stack.enter_context(servers.desk(f"lists_{count}"))
            print(f"  making {count:,} runs", file=sys.stderr)
            made = Made(**desk.run("bench.generate", "--runs", str(count)))
            desk.start_web()
            found.append((desk, made))
        yield found


def measure(servers: Servers, wanted: set[str], *, small: bool) -> dict[str, Any]:
    sizes = (SMALL_RUNS // 5, SMALL_RUNS * 2) if small else (SMALL_RUNS, LARGE_RUNS)
    with desks(servers, sizes) as ((little_desk, little), (large_desk, large)):
        found: dict[str, Any] = {"runs": large.runs, "generate_s": large.seconds}
        if "queue" in wanted:
            found |= queue((little_desk.url, little), (large_desk.url, large))
        if "search" in wanted:
            found |= search(large_desk.url, large)
        if "pages" in wanted:
            found |= pages(large_desk.url, large)
    return found


def queue(little: tuple[str, Made], large: tuple[str, Made]) -> dict[str, float]:
    """The first page, as it is when one comes to work."""

    def once() -> dict[str, float]:
        times: dict[str, list[float]] = {"small": [], "large": []}
        browsers = {"small": Browser(little[0], little[1].cookie),
                    "large": Browser(large[0], large[1].cookie)}  # fmt: skip
        paths = {"small": little[1].page("queue/"), "large": large[1].page("queue/")}
        for number in range(ASKED + 5):
            for size, browser in browsers.items():
                took = browser.took(paths[size])
                times[size] += [took] if number >= 5 else []
        return {"queue_small_p95_ms": p95(times["small"]), "queue_p95_ms": p95(times["large"]),
                "queue_growth": p95(times["large"]) / p95(times["small"])}  # fmt: skip

    return median_of(once() for _ in range(ROUNDS))


def search(url: str, made: Made) -> dict[str, float]:
    """Every term with every pair of filters."""
    asked = [f"{term} {pair}" for term in TERMS for pair in FILTERS]
    browser = Browser(url, made.cookie)

    def once() -> dict[str, float]:
        times = {q: browser.took(made.page(f"queue/?q={quote(q)}")) for q in asked}
        worst = max(times, key=lambda q: times[q])
        print(f"  slowest search: {worst} ({times[worst]:.0f} ms)", file=sys.stderr)
        return {"search_p95_ms": p95(times.values())}

    once()
    return median_of(once() for _ in range(ROUNDS))


def places(made: Made) -> list[str]:
    """Every place of the console that a GET can reach.

    A bare number is the id of a case and of an approval; any other id leads straight to its page.
    """
    case, event = f"cases/{made.case}/", f"ledger/{made.event}/"
    return [
        "queue/", f"queue/?peek={made.case}", "queue/?sort=newest", "queue/?q=is:mine",
        "queue/?q=is:unknown", "queue/?q=is:closed", "queue/fresh/?since=2026-01-01T00:00:00Z",
        "causes/", "causes/?view=regressed", "causes/?view=growing", "views/", "bulk/",
        "queue/suggest/?q=tool:", f"x/{made.approval}", case, case + "progress/",
        f"cases/{made.case_in_doubt}/settle/", case + "compensate/", case + "resume/",
        case + "close/", f"cases/{made.closed_case}/",
        "approvals/", f"approvals/{made.approval}/", "approvals/history/", "approvals/health/",
        "approvals/grants/",
        "approvals/history/?q=is:fast+asked:30d", "channels/", "bulk/new/?q=risk:high", "runs/",
        f"runs/{made.run}/", "runs/?q=Lisbon", "ledger/", "ledger/?kind=action", event,
        "ledger/verify/", "corrections/", "policies/", "tools/", "connectors/", "insights/",
        "settings/", "settings/members/", "settings/keys/", "audit/",
    ]  # fmt: skip


def pages(url: str, made: Made) -> dict[str, Any]:
    browser = Browser(url, made.cookie)
    decider = Browser(url, made.approver_cookie)
    there: dict[str, list[float]] = {}
    for place in places(made):
        who = decider if place.startswith("approvals/") else browser
        statuses = (200, 204, 302, 404)
        if _is_there(who, made.page(place)):
            there[place] = [who.took(made.page(place), statuses) for _ in range(ASKED)]
    slowest = sorted(there, key=lambda place: p95(there[place]), reverse=True)
    for place in slowest[:8]:
        print(f"  {place}: {p95(there[place]):.0f} ms", file=sys.stderr)
    return {"pages_p95_ms": p95(there[slowest[0]]), "slowest_page": slowest[0],
            "pages": len(there)}  # fmt: skip


def _is_there(who: Browser, path: str) -> bool:
    """Whether this desk has the page; anything that is neither there nor absent fails here."""
    try:
        who.took(path, (200, 204))
    except AssertionError as refused:
        print(f"  not measured: {refused.args[0]}", file=sys.stderr)
        return False
    return True
