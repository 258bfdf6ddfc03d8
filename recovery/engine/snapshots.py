"""Recorded states as connectors want them: the fields, None for "not there", UNSET for unsaid."""

import json
from typing import Any

from msgspec import UNSET

from connectors.contract import Recorded
from ledger.models import Blob, Effect
from recovery.models import Step


class SnapshotGone(Exception):
    """We stopped because a snapshot was kept as a blob that is erased or never came."""


def before_of(effect: Effect) -> Recorded:
    """What the target looked like before the agent's act."""
    return recorded(effect.workspace_id, effect.before) if effect.has_before else UNSET


def after_of(effect: Effect) -> Recorded:
    """What the agent left."""
    return recorded(effect.workspace_id, effect.after) if effect.has_after else UNSET


def expected_of(step: Step) -> Recorded:
    """The state in which the step expects its target; no fingerprint, nothing recorded."""
    return step.expected if step.fingerprint else UNSET


def recorded(workspace_id: int, value: Any) -> Any:
    """The snapshot itself, fetched where it is kept as a blob; raises SnapshotGone."""
    if not (isinstance(value, dict) and set(value) == {"ref"}):
        return value
    digest = str(value["ref"]).removeprefix("sha256:")
    content = (
        Blob.objects.filter(workspace_id=workspace_id, sha256=digest)
        .values_list("content", flat=True)
        .first()
    )
    if content is None:
        raise SnapshotGone(f"The snapshot {digest[:12]}… is not kept here any more.")
    return json.loads(bytes(content))
