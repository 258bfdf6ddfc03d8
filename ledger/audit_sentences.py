"""What people did, as somebody reads it: a sentence, and what was said of it field by field.

Read from the ledger's own events. Nothing is left to a reader's guess: each field has its label,
and where an event says what was before (`was`), the field tells both.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from amends.protocol.vocabulary import EventType
from ledger.models import Event
from ledger.replaying import words_of
from workspaces import formatting

ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|sha256:[0-9a-f]+")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d[0-9:.]*(Z|\+00:00)")
VALUE_CHARACTERS_MAX = 300
FIELDS_MAX = 12
ABOUT = {
    "agent": "agent", "connection": "connection", "channel": "channel", "list": "list",
    "team": "team", "case": "case", "plan": "plan", "approval": "approval", "tool": "tool",
}  # fmt: skip
"""What an act was done to, the first that its event names: it stands in the sentence."""
FOR_MACHINES = frozenset({
    "at", "revision", "fence", "position", "fills", "complete", "credential", "enrolment", "desk",
    "signature", "challenge", "comment", "directive", "erasure", "pause", "report", "receipt",
    "was", "correction", "residue", "previous", "seeded", "public_key", "alg", "rp_id",
})  # fmt: skip
"""Numbers and marks by which the desk finds its rows; they stand in the entry itself."""
LABELS = {
    "concurrency": "Calls at once", "connector": "Kind", "purpose": "Credential for",
    "scopes": "May", "may": "May", "trusted": "Snapshots believed", "number": "Version",
    "version": "Version", "entries": "Entries now", "changed": "Settings changed",
    "credentials_removed": "Credentials removed", "key": "Key", "person": "Person",
    "email": "Address", "timezone": "Time zone", "due_at": "Due", "until": "Until", "to": "To",
    "from": "From", "expires_at": "Until", "link": "Link for people", "what": "What was left",
    "break_glass": "In place of others", "ok": "Went well",
    "upheld": "Was right", "beats": "Parts tried", "glob": "Tools", "directory": "Directory",
    "subject": "About",
}  # fmt: skip
"""The fields whose name in an event is not what people call them."""


class ActField(NamedTuple):
    """`name` is what people call it; `was` is empty where the event does not say it."""

    name: str
    value: str
    was: str = ""

    def __str__(self) -> str:
        change = f"{self.was} → {self.value}" if self.was else self.value
        return f"{self.name}: {change}" if change else self.name


def sentence(event: Event) -> str:
    """`Connection changed: “ledger”`: what was done, and to what."""
    words, data = words_of(event), _data(event)
    about = next((name for name in ABOUT if _short(data.get(name))), "")
    if not about:
        return words
    what = _short(data[about])
    said = "" if ABOUT[about] in words.casefold().split() else f"{ABOUT[about]} "
    return f"{words}: {said}{what}"


def fields(event: Event) -> list[ActField]:
    """What else was said of it, in words."""
    data = _data(event)
    before = data.get("was")
    was: Mapping[str, Any] = before if isinstance(before, dict) else {}
    previous = data.get("previous")
    if isinstance(previous, dict) and event.type == EventType.POLICY_ACTIVATED:
        was = {"number": previous.get("number"), **was}
    about = next((name for name in ABOUT if _short(data.get(name))), "")
    told = [
        _field(key, value, was)
        for key, value in sorted(data.items(), key=_rank)
        if key != about and not _is_for_machines(key, value)
    ]
    return [one for one in told if one is not None][:FIELDS_MAX]


def is_seeded(event: Event) -> bool:
    """Whether the demo wrote it, to have a month behind it: a list says so once for each line."""
    return _data(event).get("seeded") is True


def _data(event: Event) -> Mapping[str, Any]:
    return event.data if isinstance(event.data, dict) else {}


def _rank(said: tuple[str, Any]) -> int:
    """What has a label comes in the order of the labels, and behind the rest, which is as said."""
    return 1 + list(LABELS).index(said[0]) if said[0] in LABELS else 0


def _field(key: str, value: Any, was: Mapping[str, Any]) -> ActField | None:
    name = LABELS.get(key) or key.replace("_", " ").capitalize()
    if value is True and key not in was:
        return ActField(name, "")
    words = _short(value)
    if key in was:
        return ActField(name, words or "nothing", _short(was[key]) or "nothing")
    return ActField(name, words) if words and value != 0 else None


def _is_for_machines(key: str, value: Any) -> bool:
    """Digests, ids and the clock stand in the entry itself; nobody reads them in a list."""
    is_row = key == "person" and str(value).isdecimal()
    return key in FOR_MACHINES or key.endswith("digest") or is_row or bool(ID.fullmatch(str(value)))


def _short(value: Any) -> str:
    """In words; of a list of things how many, and of one thing with parts what it says."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        plain = all(isinstance(one, str | int) for one in value)
        words = [str(one) for one in value if not ID.fullmatch(str(one))] if plain else []
        return ", ".join(words)[:VALUE_CHARACTERS_MAX] if plain else str(len(value))
    if isinstance(value, dict):
        return ", ".join(_parts(value))
    return _by_own_clock(str(value))[:VALUE_CHARACTERS_MAX]


def _parts(value: Mapping[str, Any]) -> list[str]:
    """`plan`, `case 30`: what kind of thing it is, then whatever else is said in words."""
    told = {
        key: one
        for key, one in value.items()
        if isinstance(one, str) and one and not _is_for_machines(key, one)
    }
    kind = [told.pop("kind")] if "kind" in told else []
    return kind + [f"{ABOUT[key]} {one}" if key in ABOUT else one for key, one in told.items()]


def _by_own_clock(text: str) -> str:
    """A moment by the clock of whoever reads, as all others on the page."""
    try:
        when = datetime.fromisoformat(text) if MOMENT.fullmatch(text) else None
    except ValueError:
        return text
    return text if when is None else formatting.absolute(when)
