"""Canonical JSON (RFC 8785) and the digests and keys that are built over it.

Two programs that mean the same value write the same bytes, so the same digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import rfc8785


def canonical(value: Any) -> bytes:
    """The RFC 8785 bytes of a JSON value. ValueError for what is not JSON (NaN, 2**60, a date)."""
    return rfc8785.dumps(value)


def digest(value: object) -> str:
    """`sha256:<hex>` over the canonical bytes of a JSON value."""
    return "sha256:" + hashlib.sha256(canonical(value)).hexdigest()


def idempotency_key(
    *, workspace: str, run: str, tool: str, targets: Sequence[Mapping[str, str]], op: str
) -> str:
    """The key of one logical operation: the same however often and however worded it is tried.

    The arguments are not in it, on purpose: a model that words its request anew after a restart
    meets its first call again instead of paying twice. A second operation of one tool on one
    target in one run needs its own `op`.
    """
    named = [{"type": target["type"], "id": target["id"]} for target in targets]
    identity = {"workspace": workspace, "run": run, "tool": tool, "op": op}
    return digest({**identity, "target": named})
