"""`make mutants`: every written mutant, or those of some rooms, or those whose name has a word."""

import argparse
import queue
import shutil
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants import written
from tests.mutants.running import BROKEN, SURVIVED, Kept, Verdict, copy, run
from tests.mutants.written import Mutant

SHARE_MIN = 0.9
"""Of each room's mutants that are noticed."""


def main(arguments: list[str]) -> int:
    """Run them, print what became of each; 1 where a room has too many that nobody noticed."""
    asked = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    asked.add_argument("--room", action="append", choices=written.rooms(), help="only this room")
    asked.add_argument("-k", default="", help="only mutants whose name or file has this word")
    asked.add_argument("--jobs", type=int, default=2, help="copies of the repository side by side")
    options = asked.parse_args(arguments)
    mutants = [
        one
        for room in options.room or written.rooms()
        for one in written.of_room(room)
        if options.k in one.name or options.k in one.file
    ]
    with tempfile.TemporaryDirectory(prefix="amends-mutants-") as folder:
        found = list(side_by_side(mutants, Path(folder), options.jobs))
    return summary(found)


def side_by_side(mutants: list[Mutant], folder: Path, jobs: int) -> list[Verdict]:
    """Each mutant in one of the copies; told as soon as it is known."""
    copies: queue.SimpleQueue[tuple[Path, Kept]] = queue.SimpleQueue()
    everyone = [Kept(folder / f"servers-{number}") for number in range(min(jobs, len(mutants)))]
    for number, kept in enumerate(everyone):
        copies.put((copy(folder / str(number)), kept))

    def one(mutant: Mutant) -> Verdict:
        here, kept = copies.get()
        try:
            verdict = run(mutant, here, kept)
        finally:
            copies.put((here, kept))
        print(
            f"{verdict.outcome:9} {verdict.seconds:5.0f} s  {mutant.room}: {mutant.name}"
            f"{'  ← ' if verdict.by else ''}{verdict.by}",
            flush=True,
        )
        if verdict.outcome == BROKEN:
            print(verdict.said)
        return verdict

    try:
        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(one, mutants))
    finally:
        for kept in everyone:
            kept.stop()


def summary(found: list[Verdict]) -> int:
    """What each room holds, and each survivor with its reason."""
    total, well = Counter[str](), Counter[str]()
    for one in found:
        total[one.mutant.room] += 1
        well[one.mutant.room] += one.outcome not in {SURVIVED, BROKEN}
    print()
    for room, count in total.items():
        print(f"{room:20} {well[room]:3} of {count:3} noticed")
    for one in found:
        if one.outcome in {SURVIVED, BROKEN}:
            why = one.mutant.survives or "NO REASON GIVEN"
            print(f"{one.outcome}: {one.mutant.room}: {one.mutant.name}: {why}")
    too_few = any(well[room] < SHARE_MIN * count for room, count in total.items())
    return int(too_few or not all(one.is_well for one in found))


if __name__ == "__main__":
    if shutil.which("git") is None:
        sys.exit("git lists the files to copy, and is not here.")
    sys.exit(main(sys.argv[1:]))
