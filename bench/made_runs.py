"""What a made run is: what was asked for, for whom, and the calls of its agent."""

import random
import string
from dataclasses import dataclass, field
from typing import Any

EVIL = "mallory-exports.example"
NAMES = ("Adler", "Brandt", "Costa", "Demir", "Eriksen", "Fontaine", "Garcia", "Haas")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool; `evil` says that nobody wanted it, `writes` that it changes something."""

    tool: str
    args: dict[str, Any] = field(default_factory=dict)
    target: tuple[str, str] | None = None
    before: dict[str, Any] | None = None
    result: Any = None
    evil: bool = False
    writes: bool = True


@dataclass(frozen=True, slots=True)
class Work:
    """One run: what was asked for, for whom, and what the agent calls."""

    kind: str
    request: str
    calls: list[Call]
    person: str = "mia"
    contact: str = "mia@acme.example"


def read(tool: str, result: Any) -> Call:
    return Call(tool, {"what": "newest"}, result=result, writes=False)


def iban(chance: random.Random) -> str:
    return "DE" + "".join(chance.choices(string.digits, k=20))


def spelled(account: str) -> str:
    return " ".join(account[place : place + 4] for place in range(0, len(account), 4))
