"""The mutants as they are written: one TOML file for each room.

A file has `tests`, what is run where a mutant does not say it better, and its mutants:

    [[mutant]]
    name = "any secret opens a known prefix"     # what would go wrong, in words
    file = "ledger/agent_keys.py"
    find = "if not compare_digest(found, digest):"   # stands there exactly once
    put = "if False:"
    tests = ["tests/ledger/test_hot_api.py"]     # optional
    survives = "..."                             # optional: why nobody need notice it
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from config.local.places import ROOT

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Mutant:
    """One change, and the tests of which at least one must fail under it."""

    room: str
    name: str
    file: str
    find: str
    put: str
    tests: tuple[str, ...]
    survives: str = ""

    def applied(self, text: str) -> str:
        """The file's text with the change; raises ValueError where it does not fit exactly once."""
        count = text.count(self.find)
        if count != 1:
            raise ValueError(f"{self.room}: “{self.name}” fits {count} times in {self.file}")
        return text.replace(self.find, self.put)


def rooms() -> list[str]:
    """Every room that has mutants."""
    return sorted(one.stem for one in FOLDER.glob("*.toml"))


def of_room(room: str) -> list[Mutant]:
    """The mutants of a room, in the order of its file."""
    said = tomllib.loads((FOLDER / f"{room}.toml").read_text())
    return [
        Mutant(room, **(one | {"tests": tuple(one.get("tests", said["tests"]))}))
        for one in said["mutant"]
    ]


def everyone() -> list[Mutant]:
    """All mutants of all rooms."""
    return [mutant for room in rooms() for mutant in of_room(room)]


def text_of(mutant: Mutant) -> str:
    """The file of a mutant as it is now."""
    return (ROOT / mutant.file).read_text()
