"""What a server says of its tools. It may raise what the desk thinks of one, and never lowers it.

So a tool that calls itself harmless is asked for like every other, and one that a server lists
twice, or anew in other words, counts as the strictest of what was said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amends.protocol.canonical import digest
from amends.protocol.vocabulary import CLASSES, WITHOUT_EFFECT, EffectClass
from amends.tools import EFFECT_CLASS


@dataclass(frozen=True)
class Hints:
    """The annotations of one tool; `reason` is why it is to be looked at closely."""

    read_only: bool | None = None
    destructive: bool | None = None
    open_world: bool | None = None
    form: str = ""
    reason: str = ""
    schema: Any = None

    @classmethod
    def of(cls, tool: Mapping[str, Any]) -> Hints:
        said = tool.get("annotations")
        said = said if isinstance(said, dict) else {}
        return cls(
            said.get("readOnlyHint"), said.get("destructiveHint"), said.get("openWorldHint"),
            form=digest({"annotations": said, "schema": tool.get("inputSchema")}),
            schema=tool.get("inputSchema"),
        )  # fmt: skip

    def met_again(self, other: Hints) -> Hints:
        """The strictest of both; that they differ is a reason to look closely."""
        if self.form == other.form:
            return self
        return Hints(
            False if False in {self.read_only, other.read_only} else None,
            True if True in {self.destructive, other.destructive} else None,
            True if True in {self.open_world, other.open_world} else None,
            form=other.form,
            schema=other.schema,
            reason="The server has said different things of this tool.",
        )

    def raising(self, found: EffectClass) -> EffectClass:
        """The class, raised where the server says that it does more."""
        contradicts = self.read_only is False or self.destructive is True
        least: EffectClass | None = None
        if found in WITHOUT_EFFECT and contradicts:
            least = EFFECT_CLASS
        if self.open_world is True and found == "internal_update":
            least = EFFECT_CLASS
        return max(found, least, key=CLASSES.index) if least else found

    @property
    def why_high(self) -> str:
        """Why the call is of high risk, or nothing."""
        if self.reason or self.destructive is not True:
            return self.reason
        return "The server says of this tool that it may destroy what was there."


UNLISTED = Hints(reason="The server does not list this tool.")
