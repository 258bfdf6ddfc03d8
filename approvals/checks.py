"""A check at the start: every policy in force is one for this version, too.

Bounds of a newer version may refuse what an older one has saved. Then nothing is judged there,
which is safe, and whoever deploys should hear of it before agents do.
"""

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Tags, Warning, register  # noqa: A004
from django.db import DatabaseError

from approvals.models import PolicyVersion
from approvals.policy import Invalid, load

POLICIES_MAX = 1_000


@register(Tags.database)
def policies_can_be_read(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    if "default" not in (databases or ()):
        return []
    try:
        return unreadable()
    except DatabaseError:
        return []  # other checks say that the database is away, or has no tables yet


def unreadable() -> list[CheckMessage]:
    """One warning for each workspace: the others are judged as ever."""
    found: list[CheckMessage] = []
    versions = PolicyVersion.objects.filter(active=True).order_by("workspace__slug")
    rows = versions.values_list("workspace__slug", "number", "document")[:POLICIES_MAX]
    for slug, number, document in rows.iterator(chunk_size=50):
        try:
            load(document)
        except Invalid as wrong:
            found.append(
                Warning(
                    f"The policy in force in {slug} (version {number}) cannot be read: {wrong}",
                    hint="No agent is let through there until its policy page has a version in"
                    " force that can be.",
                    id="approvals.W001",
                )
            )
    return found
