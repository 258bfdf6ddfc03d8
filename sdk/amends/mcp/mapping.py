"""What an engineer says of a server's tools: what each changes, how that is read, and put back; and
what of their results is kept, and given again.

A TOML file, docs/mcp.md has its form. What is read is kept twice: the ledger gets its digest (or
the fields that a pattern names), the safe the bytes themselves, since a ledger masks and cuts what
has to be put back byte for byte.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
import re
import time
import tomllib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from amends.client import default_spool
from amends.errors import AmendsError
from amends.protocol.canonical import digest
from amends.protocol.vocabulary import CLASSES, KEYS_KEPT_DAYS, WITHOUT_EFFECT, EffectClass
from amends.tools import EFFECT_CLASS, no_undo, undo

# What a snapshot may have at most; beyond it there is none, and nothing could be put back.
SNAPSHOT_BYTES_MAX = 8 * 1024 * 1024
# How long the safe keeps what was not used since, and how much of it: as long as the ledger keeps
# keys, or until it is full; never what the last month has used, for a run may be open or an undo
# wait for people.
SAFE_SECONDS_MAX = KEYS_KEPT_DAYS * 24 * 3600
SAFE_SECONDS_MIN = 30 * 24 * 3600
SAFE_BYTES_MAX = 4 * 1024 * 1024 * 1024
UNFINISHED_SECONDS_MAX = 24 * 3600
LETTING_GO_SECONDS = 3600
LOSSY = "\ufffd"
# How the desk's operations are called: this and the kind of thing that is put back.
RESTORE = "restore_"
CALL_TOOL = "call_tool"

# Calls a tool of the server: its name and arguments, and its result as JSON.
CallTool = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]


class CannotSee(AmendsError):
    """We stopped because the server does not say how the thing stands that a call would change."""


@dataclass(frozen=True)
class Template:
    """A tool and its arguments, with names in braces that are filled in."""

    tool: str
    args: Mapping[str, Any]

    def filled(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """KeyError where a name is not known."""
        return {name: _filled(value, known) for name, value in self.args.items()}


@dataclass(frozen=True)
class ResourceState:
    """How a thing stands: its state as the ledger has it, and the bytes that it was read as."""

    state: dict[str, Any]
    raw: bytes


@dataclass(frozen=True)
class ResourceKind:
    """A kind of thing that tools change: how it is read, and which tools put it back."""

    name: str
    read: Template
    absent: re.Pattern[str] | None = None
    fields: re.Pattern[str] | None = None
    restore: Template | None = None
    remove: Template | None = None

    async def look(self, call: CallTool, target: str) -> ResourceState | None:
        """How it stands now; None where the server says, in the words of `absent`, that it is not
        there. Raises CannotSee.
        """
        result = await call(self.read.tool, self.read.filled({"id": target}))
        if result.get("isError"):
            said = _texts(result)
            if self.absent and self.absent.search(said):
                return None
            raise CannotSee(f"{self.read.tool} says: {said[:400]}")
        raw = _raw(result)
        if len(raw) > SNAPSHOT_BYTES_MAX:
            raise CannotSee(f"{self.name} {target} has {len(raw)} bytes, too many to be kept")
        if self.fields is None:
            return ResourceState(
                {"sha256": hashlib.sha256(raw).hexdigest(), "bytes": len(raw)}, raw
            )
        found = self.fields.search(raw.decode("utf-8", "replace"))
        if found is None:
            raise CannotSee(f"{self.read.tool} answers in words that its pattern does not know")
        return ResourceState(found.groupdict(), raw)

    def undoing(self, connection: str, was: ResourceState | None) -> dict[str, Any]:
        """What the desk is told of the undo: the operation that puts it back, or why none does."""
        if was is None and self.remove is None:
            return no_undo(f"it was not there before, and nothing here takes a {self.name} away")
        if was is not None and self.restore is None:
            return no_undo(f"no tool of this server puts a {self.name} back")
        if was is not None and self._needs_text and _text(was.raw) is None:
            return no_undo(f"the {self.name} is no text, and only text can be written back")
        return undo(f"{connection}.{RESTORE}{self.name}", was=None if was is None else was.state)

    def putting_back(
        self, target: str, was: Mapping[str, Any] | None, raw: bytes | None
    ) -> tuple[str, dict[str, Any]] | None:
        """The tool and arguments that put it back as it was; None where none of them does."""
        template = self.remove if was is None else self.restore
        if template is None:
            return None
        known: dict[str, Any] = {"id": target, **(was or {})}
        if was is not None and self._needs_text:
            text = None if raw is None else _text(raw)
            if text is None:
                return None
            known["text"] = text
        return template.tool, template.filled(known)

    @property
    def keeps_bytes(self) -> bool:
        """Whether putting it back takes the bytes themselves."""
        return self._needs_text

    @property
    def _needs_text(self) -> bool:
        values = self.restore.args.values() if self.restore else ()
        return any(isinstance(value, str) and "{text}" in value for value in values)


@dataclass(frozen=True)
class ToolFacts:
    """What the engineer says of one tool."""

    target: tuple[str, str] | None = None
    effect_class: EffectClass | None = None
    repeatable: bool = False
    refused: re.Pattern[str] | None = None
    """The words of a failure by which it is known that nothing was done."""


@dataclass(frozen=True)
class Mapped:
    """What is said of a server. `connection` is how the desk calls its way to `twins`."""

    kinds: Mapping[str, ResourceKind] = field(default_factory=dict)
    tools: Mapping[str, ToolFacts] = field(default_factory=dict)
    connection: str = ""

    def of(self, tool: str) -> ToolFacts:
        return self.tools.get(tool, ToolFacts())

    def target(self, tool: str, args: Mapping[str, Any]) -> tuple[str, str] | None:
        """What a call changes; ValueError where it does not say."""
        said = self.of(tool).target
        if said is None:
            return None
        try:
            return said[0], _filled(said[1], args)
        except (KeyError, IndexError) as missing:
            raise ValueError(
                f"{tool} is called without {missing}, which names what it changes"
            ) from missing

    def told(self, tool: str, **more: Any) -> Mapped:
        """The same, with more said of one tool."""
        return replace(self, tools={**self.tools, tool: replace(self.of(tool), **more)})

    def with_kind(self, kind: ResourceKind) -> Mapped:
        return replace(self, kinds={**self.kinds, kind.name: kind})


class Safe:
    """A folder of what was there before calls, each file named by its SHA-256, for its owner alone.

    It is on disk before the call is made. Gateway and twins of a server share it. Each use makes a
    file young again, and what is old is let go.
    """

    def __init__(self, folder: Path, *, bytes_max: int = SAFE_BYTES_MAX) -> None:
        self.folder, self._bytes_max = folder, bytes_max
        self._let_go_at = -float("inf")

    def put(self, raw: bytes) -> None:
        """Raises OSError where it cannot be kept."""
        path = self.folder / hashlib.sha256(raw).hexdigest()
        if not _used(path):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
            new.rename(path)
        if time.monotonic() - self._let_go_at > LETTING_GO_SECONDS:
            self._let_go_at = time.monotonic()
            self._let_go()

    def get(self, sha256: str) -> bytes | None:
        """The bytes, or None where they are not kept, or no longer what they were."""
        if not re.fullmatch("[0-9a-f]{64}", sha256):
            return None
        path = self.folder / sha256
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None
        _used(path)
        return raw if hashlib.sha256(raw).hexdigest() == sha256 else None

    def _let_go(self) -> None:
        """Remove what is too old, and of the rest the oldest where there is too much.

        By the clock of a machine that may be years ahead just now: so “long ago” is long before the
        last use before this one, too.
        """
        found = []
        for path in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                seen = path.stat()
                found.append((seen.st_mtime, seen.st_size, path))
        used = sum(size for _, size, _ in found)
        found.sort()
        uses = [at for at, _, path in found if "." not in path.name]
        last_before = uses[-2] if len(uses) > 1 else 0.0
        for at, size, path in found:
            age = min(time.time(), last_before) - at
            is_left = "." in path.name and age > UNFINISHED_SECONDS_MAX
            is_much = used > self._bytes_max and age > SAFE_SECONDS_MIN
            if is_left or is_much or age > SAFE_SECONDS_MAX:
                _remove_unless_used(path, at)
                used -= size


def _used(path: Path) -> bool:
    """Make a file of the safe young; whether it is there."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _remove_unless_used(path: Path, at: float) -> None:
    """Aside first: whoever uses it at this moment finds it gone and writes it anew, or was before
    us, which its time then tells."""
    aside = path.with_name(f"{path.name}.{os.getpid()}.gone")
    with contextlib.suppress(FileNotFoundError):
        path.rename(aside)
        if aside.stat().st_mtime > at:
            aside.rename(path)
        else:
            aside.unlink()


def default_safe() -> Path:
    """AMENDS_SAFE, or beside the spool."""
    given = os.environ.get("AMENDS_SAFE")
    return Path(given) if given else default_spool("", "").parent / "safe"


def load(path: Path) -> Mapped:
    """The mapping in a file. ValueError, with the place, where it is not as it must be."""
    document = tomllib.loads(path.read_text("utf-8"))
    unknown = set(document) - {"connection", "targets", "tools"}
    if unknown:
        raise ValueError(f"{path}: nothing here is called {', '.join(sorted(unknown))}")
    found = Mapped(connection=str(document.get("connection", "")))
    for name, said in document.get("targets", {}).items():
        found = found.with_kind(_kind(name, said, f"{path}: targets.{name}"))
    for name, said in document.get("tools", {}).items():
        found = found.told(name, **_facts(said, f"{path}: tools.{name}"))
    return found


def _kind(name: str, said: Mapping[str, Any], place: str) -> ResourceKind:
    if unknown := set(said) - {"read", "absent", "fields", "restore", "remove"}:
        raise ValueError(f"{place}: nothing here is called {', '.join(sorted(unknown))}")
    if "read" not in said:
        raise ValueError(f"{place}: say under read which tool reads it")
    more: dict[str, Any] = {
        part: re.compile(said[part]) for part in ("absent", "fields") if part in said
    } | {
        part: _template(said[part], f"{place}.{part}")
        for part in ("restore", "remove")
        if part in said
    }
    return ResourceKind(name, _template(said["read"], f"{place}.read"), **more)


def _template(said: Any, place: str) -> Template:
    match said:
        case [str(tool), dict(args)]:
            return Template(tool, args)
        case _:
            raise ValueError(
                f'{place}: give a tool and its arguments, as ["read", {{path = "{{id}}"}}]'
            )


def _facts(said: Mapping[str, Any], place: str) -> dict[str, Any]:
    if unknown := set(said) - {"target", "class", "repeatable", "refused"}:
        raise ValueError(f"{place}: nothing here is called {', '.join(sorted(unknown))}")
    found: dict[str, Any] = {"repeatable": bool(said.get("repeatable", False))}
    if "refused" in said:
        found["refused"] = re.compile(said["refused"])
    if "class" in said:
        if said["class"] not in CLASSES:
            raise ValueError(f"{place}: class is one of {', '.join(CLASSES)}")
        found["effect_class"] = said["class"]
    if "target" in said:
        match said["target"]:
            case [str(kind), str(template)]:
                found["target"] = kind, template
            case _:
                raise ValueError(
                    f'{place}: target is a kind and a template, as ["file", "{{path}}"]'
                )
    return found


def _filled(value: Any, known: Mapping[str, Any]) -> Any:
    """Texts with their names in braces filled in; what is put in is not filled in again."""
    if isinstance(value, str):
        return re.sub(r"\{(\w+)\}", lambda found: str(known[found[1]]), value)
    if isinstance(value, list):
        return [_filled(one, known) for one in value]
    if isinstance(value, dict):
        return {name: _filled(one, known) for name, one in value.items()}
    return value


def _texts(result: Mapping[str, Any]) -> str:
    return "\n".join(
        str(block["text"]) for block in result.get("content") or () if block.get("type") == "text"
    )


def _raw(result: Mapping[str, Any]) -> bytes:
    """The bytes that a reading tool answered with: of one block, text or base64."""
    blocks = result.get("content") or []
    if len(blocks) != 1:
        raise CannotSee(f"one block of content was expected, and {len(blocks)} came")
    block = blocks[0].get("resource", blocks[0])
    if isinstance(text := block.get("text"), str):
        return text.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(block.get("blob", block.get("data")), validate=True)
    except (TypeError, binascii.Error) as wrong:
        raise CannotSee("neither text nor base64 came") from wrong


def _text(raw: bytes) -> str | None:
    """The text of which these are the bytes; None where that is not certain."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if LOSSY in text else text


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


# Results of `tools/call`: what the model reads of a call that was not made, or was made before, and
# what the ledger keeps of one that was.

META_REPLAYED = "amends/replayed"
"""In `_meta` of a result: it is the first one's answer."""


def refusal(words: str) -> dict[str, Any]:
    """A result that tells the model, in words, that something is not as it wanted."""
    return {"content": [{"type": "text", "text": words}], "isError": True}


def recorded(result: Mapping[str, Any]) -> dict[str, Any]:
    """What the ledger keeps of a result: words and data, of pictures and sounds what they are."""
    content = [_recorded_block(block) for block in result.get("content") or ()]
    found: dict[str, Any] = {"content": content}
    if "structuredContent" in result and content == list(result.get("content") or ()):
        found["structuredContent"] = result["structuredContent"]
    return found


def _recorded_block(block: Mapping[str, Any]) -> Mapping[str, Any]:
    resource = block.get("resource")
    inner: Mapping[str, Any] = resource if isinstance(resource, dict) else block
    data = inner.get("data", inner.get("blob"))
    if not isinstance(data, str):
        return block
    kind = inner.get("mimeType") or block.get("type")
    said = f"[{kind}, {len(data)} characters of base64, not kept]"
    return {"type": "text", "text": said}


AGAIN = (
    "This call was made before in this run and was NOT made again: this is its first answer, in"
    " which the ledger may have masked something."
)
NOT_KEPT = (
    "This call of {} was made before in this run, succeeded, and was NOT made again. Its answer is"
    " not kept"
)


def replayed(tool: str, result: Any) -> dict[str, Any]:
    """The first answer, as far as the ledger has it, and that it is the first one's."""
    content = result.get("content") if isinstance(result, dict) else None
    if not isinstance(content, list):
        return refusal(NOT_KEPT.format(tool))
    said = {"content": [*content, {"type": "text", "text": AGAIN}], "_meta": {META_REPLAYED: True}}
    if "structuredContent" in result:
        said["structuredContent"] = result["structuredContent"]
    return said
