"""`manage.py describe`: writes the pages of docs/ that are drawn from the code.

`docs/moves.md` comes from the tables of moves and the lists of states, `docs/events.md` from the
schemas of what agents say and from the places at which the desk itself speaks, `docs/query.md` from
the keys of the queue's language. A test holds the committed pages against what this prints, so they
cannot go stale.
"""

import ast
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from django.conf import settings
from django.core.management.base import BaseCommand
from django.db.models import TextChoices

from amends.protocol.vocabulary import DESK_EVENTS, EventType
from approvals.models import APPROVAL_MOVES, ApprovalState
from config.local.places import ROOT
from connectors.models import DeliveryState
from ledger.models.events import ErasureState
from ledger.models.runs import ActionState, AttemptState, RunState
from ledger.schemas import AGENT_TYPES, RESERVED
from recovery.models import CASE_MOVES, PLAN_MOVES, STEP_MOVES, CaseState, PlanState, StepState
from recovery.models.corrections import CorrectionState
from recovery.search.keys import HAS, IS, KEYS
from workspaces.moves import BORN, pairs

DRAWN = "<!-- Drawn from the code by `manage.py describe`: change the code, then run it. -->"


class Table(NamedTuple):
    """One state machine: its name, where it is declared, all its states and the allowed moves."""

    name: str
    where: str
    states: type[TextChoices]
    moves: Mapping[str, AbstractSet[str]]


TABLES = (
    Table("Approval", "approvals/models/approvals.py", ApprovalState, APPROVAL_MOVES),
    Table("Case", "recovery/models/cases.py", CaseState, CASE_MOVES),
    Table("Plan", "recovery/models/plans.py", PlanState, PLAN_MOVES),
    Table("Step", "recovery/models/plans.py", StepState, STEP_MOVES),
)
FOLDED: tuple[tuple[str, str, type[TextChoices]], ...] = (
    ("Run", "folded from events (ledger/fold/)", RunState),
    ("Action", "folded from its attempts (ledger/fold/actions.py)", ActionState),
    ("Attempt", "folded by a join: what is known only grows (ledger/fold/attempts.py)",
     AttemptState),
    ("Correction", "recovery/corrections/publishing.py", CorrectionState),
    ("Message to a channel", "connectors/channels.py", DeliveryState),
    ("Erasure", "ledger/erasure.py", ErasureState),
)  # fmt: skip


def moves_page() -> str:
    """docs/moves.md: each table of moves as a table and a picture, then the other states."""
    lines = [
        "# Tables of moves",
        "",
        DRAWN,
        "",
        (
            "A row changes its state by one conditional UPDATE: it still stands where it was seen,"
            " the move is in its table, and the event that tells of it is written in the same"
            " transaction (`workspaces/moves.py`). The database checks each pair of states again."
        ),
        "",
    ]
    for table in TABLES:
        lines += _table_of(table)
    lines += [
        "## States without a table of their own",
        "",
        "| of | states | moved by |",
        "|---|---|---|",
    ]
    for name, where, states in FOLDED:
        listed = ", ".join(f"`{state}`" for state in states.values)
        lines.append(f"| {name} | {listed} | {where} |")
    return "\n".join(lines) + "\n"


def _table_of(table: Table) -> Iterator[str]:
    yield f"## {table.name}"
    yield ""
    yield f"`{table.where}`"
    yield ""
    yield "| from | to |"
    yield "|---|---|"
    for was in (BORN, *table.states.values):
        follow = _in_order(table, table.moves.get(was, frozenset()))
        name = "born" if was == BORN else f"`{was}`"
        yield f"| {name} | {' · '.join(f'`{state}`' for state in follow) or '–'} |"
    yield ""
    yield "```mermaid"
    yield "stateDiagram-v2"
    for was in (BORN, *table.states.values):
        follow = _in_order(table, table.moves.get(was, frozenset()))
        for state in follow or ["[*]"]:
            yield f"    {was or '[*]'} --> {state}"
    yield "```"
    yield ""


def _in_order(table: Table, states: AbstractSet[str]) -> list[str]:
    return [value for value in table.states.values if value in states]


def events_page() -> str:
    """docs/events.md: what agents say, by the schemas; what the desk says, by who writes it."""
    lines = [
        "# Ledger events",
        "",
        DRAWN,
        "",
        "## What agents say",
        "",
        (
            "Sent to `POST /api/v1/events` ([the wire format](wire.md)); the desk may say them too."
            " A member without a mark may be left out; further members are kept as they are. Those"
            " in the last column only `begin` may write."
        ),
        "",
        "| type | members of `data` | by `begin` alone |",
        "|---|---|---|",
    ]
    for type_, struct in AGENT_TYPES.items():
        members = ", ".join(_member(one) for one in msgspec.structs.fields(struct))
        kept = ", ".join(f"`{name}`" for name in RESERVED.get(type_, ()))
        lines.append(f"| `{type_}` | {members} | {kept} |")
    lines += [
        "",
        "**Bold** members are required.",
        "",
        "## What the desk says",
        "",
        (
            "With a named actor, a person or a part of the desk; refused from every key. Members"
            " are those that are named where it is written; more may be added of what is in hand."
        ),
        "",
        "| type | written in | members of `data` |",
        "|---|---|---|",
    ]
    found = spoken()
    for desks in sorted(DESK_EVENTS):
        said = found[desks]
        where = ", ".join(f"`{path}`" for path in sorted(said.where))
        members = ", ".join(f"`{name}`" for name in sorted(said.members))
        lines.append(f"| `{desks}` | {where} | {members} |")
    return "\n".join(lines) + "\n"


def _member(one: msgspec.structs.FieldInfo) -> str:
    return f"**`{one.encode_name}`**" if one.required else f"`{one.encode_name}`"


class Spoken:
    """Where an event of the desk is written, and which members its data has by name."""

    def __init__(self) -> None:
        self.where: set[str] = set()
        self.members: set[str] = set()


# Functions that take an event's type and its data, whatever else they do.
WRITERS = frozenset(
    {"record", "_record", "drafted", "record_of_call", "_end", "EventDraft", "event_of"}
)
# Words of such a call that are not members of the event's data.
AROUND = frozenset({"by", "part", "run", "action", "data", "using", "type", "at"})
# Types that are put together where they are said: the family, and the words that may follow.
BY_STATE: dict[str, Sequence[str]] = {
    "step.": sorted({to for was, to in pairs(STEP_MOVES) if was != BORN} | {"no_effect"}),
    "plan.": [PlanState.STOPPED, PlanState.REJECTED, PlanState.SUPERSEDED],
    "correction.": ["delivered", "undelivered"],
}


@cache
def spoken() -> dict[str, Spoken]:
    """Every type of the desk's own, found in the calls that write it."""
    found: dict[str, Spoken] = defaultdict(Spoken)
    for path in _sources():
        text = path.read_text()
        if "EventType" not in text:
            continue
        tree = ast.parse(text)
        module = Module(tree)
        place = str(path.relative_to(ROOT))
        for call in module.calls():
            for type_ in module.types_in(call):
                found[type_].where.add(place)
                found[type_].members |= module.members(call)
    return found


def _sources() -> Iterator[Path]:
    for floor in (*settings.FLOORS, "config"):
        for path in sorted((ROOT / floor).rglob("*.py")):
            if "migrations" not in path.parts:
                yield path


class Module:
    """One source file: its constants, its functions, and the calls that speak."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.functions = {
            node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
        }
        self.constants = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def calls(self) -> Iterator[ast.Call]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and _name(node.func) in WRITERS:
                yield node

    def types_in(self, call: ast.Call) -> list[str]:
        """The desk's types among the arguments of a call."""
        given = [*call.args, *(word.value for word in call.keywords if word.arg == "type")]
        texts = [text for one in given for text in self._texts(one)]
        return [text for text in texts if text in DESK_EVENTS]

    def _texts(self, node: ast.expr) -> Iterable[str]:
        if isinstance(node, ast.Attribute) and _name(node.value) == "EventType":
            return [EventType[node.attr].value]
        if isinstance(node, ast.Call) and _name(node.func) == "EventType":
            return self._texts(node.args[0])
        if isinstance(node, ast.IfExp):
            return [*self._texts(node.body), *self._texts(node.orelse)]
        if isinstance(node, ast.Name) and node.id in self.constants:
            return self._texts(self.constants[node.id])
        if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            stem = str(node.values[0].value)
            return [f"{stem}{state}" for state in BY_STATE[stem]] if stem in BY_STATE else []
        return []

    def members(self, call: ast.Call) -> set[str]:
        words = {word.arg for word in call.keywords if word.arg} - AROUND
        data = [word.value for word in call.keywords if word.arg == "data"]
        if _name(call.func) == "EventDraft":
            data += call.args[3:4]
        return words.union(*(self._keys(one, call) for one in data))

    def _keys(self, node: ast.expr, call: ast.Call) -> set[str]:
        """Keys of a dictionary that is written out here, in a variable or in a function nearby."""
        if isinstance(node, ast.Dict):
            named = (key.value for key in node.keys if isinstance(key, ast.Constant))
            return {str(key) for key in named}
        if isinstance(node, ast.BinOp):
            return self._keys(node.left, call) | self._keys(node.right, call)
        if isinstance(node, ast.Call) and _name(node.func) in self.functions:
            inside = ast.walk(self.functions[_name(node.func)])
            returned = (one.value for one in inside if isinstance(one, ast.Return) and one.value)
            return set().union(*(self._keys(one, node) for one in returned if one is not node))
        if isinstance(node, ast.Name):
            return self._assigned(node.id, call)
        return set()

    def _assigned(self, name: str, call: ast.Call) -> set[str]:
        """Keys of a variable of the function in which the call stands."""
        for function in self.functions.values():
            if call not in ast.walk(function):
                continue
            for node in ast.walk(function):
                targets: list[Any] = []
                if isinstance(node, ast.Assign):
                    targets = node.targets
                elif isinstance(node, ast.AnnAssign) and node.value:
                    targets = [node.target]
                if any(isinstance(one, ast.Name) and one.id == name for one in targets):
                    value = node.value  # type: ignore[attr-defined]
                    return self._keys(value, call) if isinstance(value, ast.Dict) else set()
        return set()


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def query_page() -> str:
    """docs/query.md: every key of the queue's language, and the words of those that have any."""
    lines = [
        "# Keys of the query language",
        "",
        DRAWN,
        "",
        (
            "For [the queue](queue.md) and the [API](recovery-api.md). `key:value`, `key:a,b` for"
            " one of them, `-key:value` leaves out. Names take `*` for anything; what holds a blank"
            ' stands in `"quotes"`. A day is one of your own zone on a page, and one of UTC over'
            " the API."
        ),
        "",
        "| key | what it asks | written like |",
        "|---|---|---|",
    ]
    for name, key in KEYS.items():
        lines.append(f"| `{name}:` | {key.hint} | `{name}:{key.example}` |")
    for name, words in (("is", IS), ("has", HAS)):
        lines += ["", f"## `{name}:`", "", "| value | means |", "|---|---|"]
        lines += [f"| `{value}` | {word.hint} |" for value, word in words.items()]
    return "\n".join(lines) + "\n"


PAGES = {"moves.md": moves_page, "events.md": events_page, "query.md": query_page}


class Command(BaseCommand):
    requires_system_checks = ()  # it reads the code, and asks no database
    help = "Write docs/moves.md, docs/events.md and docs/query.md anew from the code."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--print", action="store_true", help="to the terminal, not to docs/")

    def handle(self, **options: Any) -> None:
        for name, page in PAGES.items():
            if options["print"]:
                self.stdout.write(page())
            else:
                (ROOT / "docs" / name).write_text(page())
