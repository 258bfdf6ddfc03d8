"""What is wrong with a document, and where."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake. Line and column count from 1 and are None where no text was given."""

    message: str
    path: str = ""
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        where = f"line {self.line}, column {self.column}: " if self.line else ""
        return f"{where}{self.path + ': ' if self.path else ''}{self.message}"

    def as_json(self) -> dict[str, Any]:
        return {
            "message": self.message,
            "path": self.path,
            "line": self.line,
            "column": self.column,
        }


class Invalid(ValueError):
    """We stopped because this cannot be a policy; `problems` says what to mend, and where."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


class Unreadable(Invalid):
    """We stopped because the policy in force was saved by a version with other bounds and is no
    policy by ours: nothing is judged until a version that is one is put in force.
    """

    TOLD = "The policy in force cannot be read: "
    """How this begins among what nobody can meet (`PolicyVersion.unmet`)."""


def spelled(path: Path) -> str:
    """A path as people write it: policies."crm.update".requires[0].group."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = part.replace("_", "").isalnum()
            text += ("." if text else "") + (part if plain else f'"{part}"')
    return text.encode(errors="replace").decode()  # half a pair cannot be shown as it is
