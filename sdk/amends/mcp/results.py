"""Results of `tools/call`: what the model reads of a call that was not made, or was made before,
and what the ledger keeps of one that was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
