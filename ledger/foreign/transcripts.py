"""Transcripts: lists of messages in which models called tools, as OpenAI (chat completions and the
Responses API), Anthropic and LangChain write them.

Each message is read by its own shape, so that a list in which two of them are mixed is read as
well. What was said is left out, but for what the user first asked; the calls are what counts. A
call without an answer may have happened.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from amends.protocol.vocabulary import EventType
from ledger import canonical, timestamps, wire
from ledger.foreign.calls import (
    NOT_GIVEN,
    REQUEST_CHARACTERS_MAX,
    ForeignCall,
    ForeignRun,
    NotKept,
    error_of,
    name_of,
    value_of,
)

FILE_BYTES_MAX = 512 * 1024 * 1024
CALLS_MAX = 10_000
"""Of one conversation."""
ID_CHARACTERS_MAX = 120
SECONDS_MAX = 100_000_000_000
"""A larger number of a clock counts milliseconds."""

LISTS_OF_CONVERSATIONS = ("conversations", "threads", "runs", "data")
NAMES_OF_CONVERSATIONS = ("conversation_id", "thread_id", "session_id", "run_id", "id", "uuid")
NAMES_OF_THREADS = ("conversation_id", "thread_id", "session_id")
"""Of these names no request has one of its own: under two of them there are two conversations."""
NAMES_OF_TIMES = ("created_at", "created", "timestamp", "time", "started_at")
NAMES_OF_PEOPLE = ("user", "user_id", "safety_identifier")
FROM_USERS = frozenset({"user", "human"})
FROM_MODELS = frozenset({"assistant", "ai", "model", "AIMessageChunk"})
FROM_TOOLS = frozenset({"tool", "function"})
WITHOUT_CALLS = frozenset(
    {"system", "developer", "reasoning", "message", "remove", "chat", "item_reference",
     "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "compaction"}
)  # fmt: skip
OF_LANGCHAIN = {
    "HumanMessage": "human", "AIMessage": "ai", "AIMessageChunk": "ai", "ToolMessage": "tool",
    "FunctionMessage": "function", "SystemMessage": "system", "ChatMessage": "chat",
}  # fmt: skip
NAMES_OF_RESULTS = ("output", "outputs", "results", "result")
# What a call that the provider made itself says of itself, beside its arguments.
ABOUT_THE_CALL = frozenset(
    {"id", "type", "status", "error", "call_id", "name", "server_label", "agent", "created_by",
     *NAMES_OF_RESULTS}
)  # fmt: skip
FAILED = frozenset({"failed", "error", "incomplete", "cancelled"})


class NotATranscript(Exception):
    """We stopped because this is no transcript; the text says why."""


class Conversation(NamedTuple):
    """One list of messages, with what was said around it, and its place."""

    where: str
    messages: list[Any]
    around: dict[str, Any]


def read(path: Path) -> Iterator[Conversation | str]:
    """The conversations of a file, and in words what of it cannot be read, each with its place.

    A file is JSON (one conversation or many) or JSON lines (one conversation a line, or one message
    a line of a single one). A conversation that goes on in a later one of the file is left out, as
    where each request to a model was logged with all that came before it.
    """
    if (size := path.stat().st_size) > FILE_BYTES_MAX:
        yield f"{path.name}: it has {size} bytes; split it, at most {FILE_BYTES_MAX} are read"
        return
    found: list[Conversation] = []
    for one in _values(path):
        if isinstance(one, str):
            yield one
        else:
            found += one
    yield from _that_do_not_go_on(found)


def _values(path: Path) -> Iterator[list[Conversation] | str]:
    lines = path.read_bytes().split(b"\n")
    numbered = [(n, line) for n, line in enumerate(lines, start=1) if line.strip()]
    if not numbered:
        yield f"{path.name}: it is empty"
        return
    if path.suffix not in {".jsonl", ".ndjson"} and not _is_one_of_many(numbered):
        whole = b"\n".join(lines)
        try:
            yield _conversations(path.name, _decoded(whole))
        except NotATranscript as why:
            yield f"{path.name}: {why}"
        return
    alone: list[Any] = []
    for n, line in numbered:
        try:
            value = _decoded(line)
            if _is_message(value):
                alone.append(value)
            else:
                yield _conversations(f"{path.name}:{n}", value)
        except NotATranscript as why:
            yield f"{path.name}:{n}: {why}"
    if alone:
        yield [Conversation(path.name, alone, {})]


def _is_one_of_many(numbered: list[tuple[int, bytes]]) -> bool:
    if len(numbered) == 1:
        return False
    with suppress(NotATranscript):
        _decoded(numbered[0][1])
        return True
    return False


def _decoded(raw: bytes) -> Any:
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    if len(raw) > FILE_BYTES_MAX:
        raise NotATranscript("it is too large")
    try:
        value = canonical.exactly(raw)
    except RecursionError as deep:
        raise NotATranscript("it is nested too deep") from deep
    except (msgspec.MsgspecError, UnicodeDecodeError) as wrong:
        raise NotATranscript(f"it is no JSON: {wrong}") from wrong
    if name := wire.repeated(raw):
        raise NotATranscript(f"the name “{name}” stands twice in one object")
    return value


def _conversations(where: str, value: Any) -> list[Conversation]:
    if isinstance(value, list):
        if value and all(_is_message(one) for one in value):
            return [Conversation(where, value, {})]
        return [
            found
            for position, one in enumerate(value, start=1)
            for found in _conversations(f"{where}, conversation {position}", one)
        ]
    if not isinstance(value, dict):
        raise NotATranscript("neither a conversation nor a list of some")
    for name in LISTS_OF_CONVERSATIONS:
        inside = value.get(name)
        if isinstance(inside, list) and inside and not all(map(_is_message, inside)):
            return _conversations(where, inside)
    messages = [value] if _is_message(value) else _messages(value)
    if not messages:
        raise NotATranscript("no list of messages is in it")
    return [Conversation(where, messages, value)]


def _is_message(value: Any) -> bool:
    """Whether it is one message and no conversation: it says whose, or of what kind, it is."""
    if not isinstance(value, dict) or "messages" in value:
        return False
    if value.get("lc") is not None or ("type" in value and isinstance(value.get("data"), dict)):
        return True
    return isinstance(value.get("role"), str) or (
        isinstance(value.get("type"), str) and value.get("object") is None
    )


def _messages(value: dict[str, Any]) -> list[Any]:
    """All messages of a conversation, a request or an answer, or both of them, in their order."""
    found: list[Any] = []
    for name in ("messages", "input", "items", "request", "output", "response", "choices"):
        inside = value.get(name)
        if isinstance(inside, dict):
            found += [inside] if _is_message(inside) else _messages(inside)
        elif isinstance(inside, str) and name == "input":
            found.append({"role": "user", "content": inside})
        elif isinstance(inside, list) and name == "choices":
            found += [one["message"] for one in inside[:1] if _has_message(one)]
        elif isinstance(inside, list):
            found += inside
    return found


def _has_message(choice: Any) -> bool:
    return isinstance(choice, dict) and isinstance(choice.get("message"), dict)


def _that_do_not_go_on(found: Iterable[Conversation]) -> Iterator[Conversation]:
    """Without those whose messages are the first ones of another, under no other name."""
    each = [(one, list(_growing(one.messages, _thread(one.around)))) for one in found]
    earlier = {digest for _, digests in each for digest in digests[:-1]}
    longer: set[bytes] = set()
    for one, digests in each:
        if digests[-1] not in earlier and digests[-1] not in longer:
            longer.add(digests[-1])
            yield one


def _thread(around: dict[str, Any]) -> str:
    return next((str(around[name]) for name in NAMES_OF_THREADS if _is_name(around.get(name))), "")


def _growing(messages: list[Any], thread: str = "") -> Iterator[bytes]:
    """A digest for each first part of the list, within its thread."""
    running = hashlib.sha256(thread.encode("utf-8", "surrogatepass"))
    for message in messages:
        running.update(json.dumps(message, sort_keys=True, default=str).encode())
        yield running.digest()


def run_of(conversation: Conversation, agent: str) -> ForeignRun:
    """What a conversation tells of a run."""
    where, messages, around = conversation
    known_as = next(
        (around[name] for name in NAMES_OF_CONVERSATIONS if _is_name(around.get(name))), ""
    )
    identity = ("named", str(known_as))
    if not known_as:
        identity = ("read", list(_growing(messages))[-1].hex())
    run = ForeignRun(f"told_{name_of(agent, *identity)[:24]}", where)
    reading = _Reading(run)
    for position, message in enumerate(messages, start=1):
        reading.take(message, f"{where}, message {position}")
    run.beginning = {
        "request": reading.request[:REQUEST_CHARACTERS_MAX],
        "model": str(around.get("model") or reading.model or "")[:ID_CHARACTERS_MAX],
        "labels": {"conversation": str(known_as)[:ID_CHARACTERS_MAX]} if known_as else {},
    }
    person = next((around[name] for name in NAMES_OF_PEOPLE if _is_name(around.get(name))), None)
    if person is not None:
        run.beginning["on_behalf_of"] = {"id": str(person)[:ID_CHARACTERS_MAX]}
    run.began = _time_in(around)
    run.end = (EventType.RUN_COMPLETED, {})
    return run


def _is_name(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool) and bool(str(value).strip())


def _time_in(value: dict[str, Any]) -> str | None:
    for name in NAMES_OF_TIMES:
        moment = value.get(name)
        with suppress(ValueError, OverflowError, OSError):
            if isinstance(moment, str):
                return timestamps.formatted(timestamps.parse(moment))
            if isinstance(moment, int | float) and not isinstance(moment, bool):
                seconds = moment / 1000 if moment > SECONDS_MAX else moment
                moment = datetime.fromtimestamp(seconds, UTC)
                timestamps.check(moment)
                return timestamps.formatted(moment)
    return None


@dataclass
class _Reading:
    """The calls of one run, while its messages are read one after the other."""

    run: ForeignRun
    request: str = ""
    model: str = ""
    open: dict[str, list[ForeignCall]] = field(default_factory=dict)

    def take(self, message: Any, where: str) -> None:
        message = _unwrapped(message)
        if not isinstance(message, dict):
            self.run.remarks.append(f"{where}: it is no message.")
            return
        kind = str(message.get("role") or message.get("type") or "")
        if kind in FROM_USERS:
            self._blocks(message, where)
            if not self.request:
                self.request = _text_of(message.get("content"))
        elif kind in FROM_MODELS:
            self._from_model(message, where)
        elif kind in FROM_TOOLS:
            self._from_tool(message, where)
        elif kind.endswith("_call_output"):
            self._answer(str(message.get("call_id") or ""), message.get("output"), where,
                         has_failed=_is_failure(message.get("status")))  # fmt: skip
        elif kind.endswith("_call"):
            self._of_responses(kind, message, where)
        elif kind not in WITHOUT_CALLS:
            self.run.remarks.append(f"{where}: “{kind[:60]}” is no kind of message that is known.")

    def _from_model(self, message: dict[str, Any], where: str) -> None:
        about = message.get("response_metadata")
        named = message.get("model") or (isinstance(about, dict) and about.get("model_name"))
        self.model = self.model or str(named or "")
        more = message.get("additional_kwargs")
        calls = message.get("tool_calls") or (
            more.get("tool_calls") if isinstance(more, dict) else None
        )
        if isinstance(calls, list) and calls:
            for call in calls:
                self._listed(call, message, where)
        else:
            self._blocks(message, where)
        if isinstance(legacy := message.get("function_call"), dict):
            name = str(legacy.get("name") or "")
            self._call(name, name, legacy.get("arguments", NOT_GIVEN), message, where)

    def _listed(self, call: Any, message: dict[str, Any], where: str) -> None:
        """One of `tool_calls`: as OpenAI nests it, or flat as LangChain does."""
        if not isinstance(call, dict):
            self.run.remarks.append(f"{where}: one of its tool_calls is none.")
            return
        nested = (call.get("function"), call.get("custom"), call)
        inside = next(one for one in nested if isinstance(one, dict))
        args = next((inside[n] for n in ("arguments", "args", "input") if n in inside), NOT_GIVEN)
        name = str(inside.get("name") or "")
        self._call(str(call.get("id") or ""), name, args, message, where,
                   is_text="custom" in call)  # fmt: skip

    def _blocks(self, message: dict[str, Any], where: str) -> None:
        """The content of a message in Anthropic's blocks."""
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            kind = str(block.get("type") or "") if isinstance(block, dict) else ""
            if kind.endswith("tool_use"):
                self._call(str(block.get("id") or ""), str(block.get("name") or ""),
                           block.get("input", NOT_GIVEN), message, where)  # fmt: skip
            elif kind.endswith("tool_result"):
                inside = block.get("content")
                wrong = isinstance(inside, dict) and str(inside.get("type", "")).endswith("_error")
                self._answer(str(block.get("tool_use_id") or ""), inside, where,
                             has_failed=bool(block.get("is_error")) or wrong,
                             ended=_time_in(message))  # fmt: skip

    def _from_tool(self, message: dict[str, Any], where: str) -> None:
        known_as = str(message.get("tool_call_id") or message.get("name") or "")
        self._answer(known_as, message.get("content"), where,
                     has_failed=_is_failure(message.get("status")),
                     tool=str(message.get("name") or ""), ended=_time_in(message))  # fmt: skip

    def _of_responses(self, kind: str, item: dict[str, Any], where: str) -> None:
        """An item of the Responses API. What the provider ran itself holds its own answer."""
        name = str(item.get("name") or kind.removesuffix("_call"))
        known_as = str(item.get("call_id") or item.get("id") or "")
        if kind in {"function_call", "custom_tool_call"}:
            args = next((item[n] for n in ("arguments", "input") if n in item), NOT_GIVEN)
            self._call(known_as, name, args, item, where, is_text=kind != "function_call")
            return
        args = item.get("arguments", {n: v for n, v in item.items() if n not in ABOUT_THE_CALL})
        call = self._call(known_as, name, args, item, where)
        if call is None:
            return
        if item.get("error") or _is_failure(item.get("status")):
            self._answer(known_as, item.get("error") or item["status"], where, has_failed=True)
        elif answers := [item[name] for name in NAMES_OF_RESULTS if item.get(name)]:
            self._answer(known_as, answers[0], where)
        elif item.get("status") == "completed":
            self._answer(known_as, NOT_GIVEN, where)

    def _call(
        self, known_as: str, tool: str, args: Any, message: dict[str, Any], where: str,
        *, is_text: bool = False,
    ) -> ForeignCall | None:  # fmt: skip
        if not tool.strip():
            self.run.remarks.append(f"{where}: it calls a tool without a name.")
            return None
        n = len(self.run.calls) + 1
        if n > CALLS_MAX:
            self.run.remarks.append(f"{where}: more than {CALLS_MAX} calls; the rest is left out.")
            return None
        call = ForeignCall(f"call_{n}", tool, where, n, has_ended=False, started=_time_in(message))
        call.args = args if is_text else self._arguments(args, where)
        self.run.calls.append(call)
        self.open.setdefault(known_as, []).append(call)
        return call

    def _arguments(self, args: Any, where: str) -> Any:
        if not isinstance(args, str):
            return args
        if not args.strip():
            return {}
        try:
            return value_of(args)
        except ValueError as why:  # as text they could hold what masking finds by its name
            self.run.remarks.append(f"{where}: the call is recorded without its args: {why}.")
            return NOT_GIVEN

    def _answer(
        self, known_as: str, content: Any, where: str,
        *, has_failed: bool = False, tool: str = "", ended: str | None = None,
    ) -> None:  # fmt: skip
        waiting = self.open.get(known_as)
        if not waiting:
            if not tool:
                self.run.remarks.append(f"{where}: it answers a call that is not there.")
                return
            self._call(known_as, tool, NOT_GIVEN, {}, where)
            waiting = self.open[known_as]
        call = waiting.pop(0)
        call.has_ended, call.ended = True, ended
        if has_failed:
            call.error = error_of(_text_of(content) or "It is said to have failed.")
        else:
            call.result = self._result(content, where)

    def _result(self, content: Any, where: str) -> Any:
        if not isinstance(content, str) and not _is_text_alone(content):
            return content
        text = _text_of(content)
        try:
            value = value_of(text)
        except NotKept as why:
            self.run.remarks.append(f"{where}: the call is recorded without its result: {why}.")
            return NOT_GIVEN
        except ValueError:
            return text
        return value if isinstance(value, dict | list) else text


def _unwrapped(message: Any) -> Any:
    """A message of LangChain as it is inside: `dumpd` and `messages_to_dict` put it into a box."""
    if not isinstance(message, dict):
        return message
    if isinstance(message.get("kwargs"), dict) and message.get("lc") is not None:
        path = message.get("id")
        name = str(path[-1]) if isinstance(path, list) and path else ""
        return {**message["kwargs"], "type": OF_LANGCHAIN.get(name, name)}
    if isinstance(message.get("data"), dict) and "role" not in message:
        return {**message["data"], "type": message.get("type")}
    return message


def _is_failure(status: Any) -> bool:
    return isinstance(status, str) and status in FAILED


def _is_text_alone(content: Any) -> bool:
    return isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("text"), str) for part in content
    )


def _text_of(content: Any) -> str:
    """The text of a message's content: of a list of parts, what is text in them."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return str(content.get("text") or content.get("message") or json.dumps(content))
    if not isinstance(content, list):
        return ""
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))
