"""Timestamps: reading the moments that agents state, and telling when their clock is astray.

An agent's clock orders nothing and decides nothing, so a wrong one is no reason to lose an event:
what it says is kept and shown, its answer warns of it, and the pages say how far off it is.
"""

from datetime import UTC, datetime, timedelta

import msgspec

from edge.asgi import Problem, problem

# Between these every zone of the world can show a moment, and PostgreSQL gives back what it got.
MOMENT_MIN = datetime(1970, 1, 1, tzinfo=UTC)
MOMENT_MAX = datetime(3000, 1, 1, tzinfo=UTC)
# What comes late may have waited in a spool; nothing comes before it happened.
AHEAD_MAX = timedelta(minutes=5)
BEHIND_MAX = timedelta(days=31)
DAYS_A_YEAR = 365


def parse(text: str) -> datetime:
    """An RFC 3339 moment in UTC; more than six digits of a second are rounded.

    Raises `ValueError` with what is wrong in words.
    """
    try:
        moment = msgspec.convert(text, datetime)
    except msgspec.ValidationError as wrong:
        raise ValueError("is not RFC 3339") from wrong
    if moment.tzinfo is None:
        raise ValueError("has no offset from UTC")
    check(moment)
    return moment.astimezone(UTC)


def formatted(moment: datetime) -> str:
    """RFC 3339 in UTC with three digits of a second, or six where three lose something."""
    digits = "milliseconds" if moment.microsecond % 1000 == 0 else "microseconds"
    return moment.astimezone(UTC).isoformat(timespec=digits).replace("+00:00", "Z")


def check(moment: datetime) -> None:
    """Raise `ValueError` for a moment that no calendar of ours can show."""
    if not MOMENT_MIN <= moment < MOMENT_MAX:
        raise ValueError("is not between 1970 and 3000")


def astray(said: datetime | None, received: datetime) -> str:
    """How far the agent's clock is off, in words; nothing where it may well be right."""
    if said is None:
        return ""
    if said - received > AHEAD_MAX:
        return f"{_words(said - received)} ahead of the ledger’s clock"
    if received - said > BEHIND_MAX:
        return f"{_words(received - said)} behind the ledger’s clock"
    return ""


def warning(said: datetime | None, received: datetime) -> Problem | None:
    """The same beside the answer to an accepted event."""
    words = astray(said, received)
    return (
        problem("clock", f"The agent’s clock is {words}", 200, "Kept as said.") if words else None
    )


def _words(distance: timedelta) -> str:
    years, days = divmod(distance.days, DAYS_A_YEAR)
    minutes = distance.seconds // 60
    for number, unit in ((years, "year"), (days, "day"), (minutes // 60, "hour")):
        if number:
            return f"{number} {unit}{'' if number == 1 else 's'}"
    return f"{minutes} minutes"
