"""Signs of life of the loops and processes, so that silence is seen as well as failure."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from workspaces.models import Heartbeat

ERROR_CHARACTERS_MAX = 400

BEAT = """
    INSERT INTO workspaces_heartbeat AS known
        (name, beat_at, every_seconds, last_error, failing_since)
    VALUES (%(name)s, clock_timestamp(), %(every)s, %(error)s,
        CASE WHEN %(error)s::text <> '' THEN clock_timestamp() END)
    ON CONFLICT (name) DO UPDATE SET
        beat_at = excluded.beat_at,
        every_seconds = excluded.every_seconds,
        last_error = excluded.last_error,
        failing_since = CASE WHEN excluded.last_error <> ''
            THEN coalesce(known.failing_since, excluded.failing_since) END
"""
BEATEN = "SELECT beat_at, every_seconds FROM workspaces_heartbeat WHERE name = %s"

SILENT = """
    SELECT name, beat_at FROM workspaces_heartbeat
    WHERE name = ANY(%s) AND clock_timestamp() - beat_at
        > greatest(every_seconds * %s, %s) * interval '1 second'
"""

# A loop may miss a few rounds, and a quick one half a minute, before anybody is alarmed.
ROUNDS_MISSED_MAX = 3
SILENCE_SECONDS_MIN = 30.0


def beat(name: str, *, every_seconds: float, error: str = "") -> None:
    """Say that `name` went round just now, well or with an error."""
    with connection.cursor() as cursor:
        said: dict[str, Any] = {
            "name": name,
            "every": every_seconds,
            "error": error[:ERROR_CHARACTERS_MAX],
        }
        cursor.execute(BEAT, said)


def silent(names: Sequence[str]) -> dict[str, datetime]:
    """Which of these went round longer ago than their patience, by the database's clock, and when;
    one that never ran is not among them.
    """
    with connection.cursor() as cursor:
        cursor.execute(SILENT, [list(names), ROUNDS_MISSED_MAX, SILENCE_SECONDS_MIN])
        return dict(cursor.fetchall())


def patience(every_seconds: float) -> float:
    """Seconds of silence after which a loop of this pace counts as stopped."""
    return max(SILENCE_SECONDS_MIN, ROUNDS_MISSED_MAX * every_seconds)


def known() -> dict[str, Heartbeat]:
    return {beat.name: beat for beat in Heartbeat.objects.all()}


def silent_since(name: str) -> datetime | None:
    """When the loop `name` last went round, if that is longer ago than its patience; else None."""
    with connection.cursor() as cursor:
        cursor.execute(BEATEN, [name])
        found = cursor.fetchone()
    if found is None:
        return None
    beat_at, every_seconds = found
    is_silent = timezone.now() - beat_at > timedelta(seconds=patience(every_seconds))
    return beat_at if is_silent else None
