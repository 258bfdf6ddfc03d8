"""What happened in each run of the generated desk, before it is rows."""

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from bench import vocabulary
from bench.vocabulary import ToolTemplate

DAYS = 85
CUSTOMERS = 5_000
# Of as many runs, one has an open case and the next a closed one.
EVERY_OPEN = 10
# Of as many runs, one's last call has no answer: a person has to say what became of it.
EVERY_UNKNOWN = 40


Rows = dict[str, list[Any]]
"""By the table's name here, what is to be copied into it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The desk in which all of it happens: agents with id and name, causes by tool."""

    workspace_id: int
    agents: list[tuple[int, str]]
    causes: dict[str, int]
    team_id: int
    total: int
    now: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class GeneratedRun:
    """One run's story."""

    number: int
    run: str
    agent_id: int
    agent: str
    deed: ToolTemplate
    customer: str
    name: str
    request: str
    at: datetime
    failed: bool
    actions: int
    is_open: bool
    in_doubt: bool


def told(number: int, setting: Setting, chance: random.Random) -> GeneratedRun:
    """The story of one run: of one action, or of three where it has a case."""
    pick = chance.random
    agent = setting.agents[number % len(setting.agents)]
    deed = vocabulary.DEEDS[int(pick() * len(vocabulary.DEEDS))]
    customer = int(pick() * CUSTOMERS)
    wish = vocabulary.WISHES[int(pick() * len(vocabulary.WISHES))]
    has_case = number % EVERY_OPEN < 2
    return GeneratedRun(
        number=number + 1,
        run=f"run_{number + 1:07d}",
        agent_id=agent[0],
        agent=agent[1],
        deed=deed,
        customer=f"c-{customer}",
        name=(
            f"{vocabulary.FIRST_NAMES[customer % 20]} {vocabulary.LAST_NAMES[customer // 20 % 20]}"
        ),
        request=wish.format(city=vocabulary.CITIES[int(pick() * len(vocabulary.CITIES))]),
        at=setting.now - timedelta(seconds=(1 - number / setting.total) * DAYS * 86400),
        failed=has_case,
        actions=3 if has_case else 1,
        is_open=number % EVERY_OPEN == 0,
        in_doubt=number % EVERY_UNKNOWN == 0,
    )
