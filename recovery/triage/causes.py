"""Causes: like failures together, by a fingerprint of tool, error type and normalised message."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import F

from recovery.models import Cause
from recovery.run_facts.runs import RunFacts
from recovery.run_facts.sentences import capitalised, shortened, without_addresses
from recovery.triage.case_reasons import Reason
from recovery.triage.detectors import KINDS
from recovery.triage.headlines import blamed_action
from workspaces import formatting
from workspaces.clock import Clock
from workspaces.erasure_registry import ERASED
from workspaces.models import Workspace

MESSAGE_CHARACTERS_MAX = 400
MEMBERS_OF_TEXT = (
    (re.compile(r"https?://\S+"), "<url>"),
    (re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+"), "<mail>"),
    (re.compile(r"['\"“”‘’`][^'\"“”‘’`]{1,200}['\"“”‘’`]"), "<text>"),
    (re.compile(r"\b(?=[0-9a-z_-]*\d)[0-9a-z][0-9a-z_-]{5,}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\d+(?:[.,]\d+)*"), "<n>"),
)
CHECKED = "verification_failed"
OF_HTTP = (
    ("Server error", "The service answered with an error of its own"),
    ("Client error", "The service refused the request"),
)
"""What HTTP clients raise begins so; which status it was, each case says."""
GAPS = re.compile(r"<(?:url|mail|text|id|n)>(?:[\s.,:]*<(?:url|mail|text|id|n)>)*")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What makes two failures alike."""

    tool: str
    error_type: str
    message: str

    @property
    def fingerprint(self) -> str:
        text = f"{self.tool}\x1f{self.error_type}\x1f{self.message.lower()}"
        return hashlib.sha256(text.encode()).hexdigest()


def fingerprint_of(facts: RunFacts, reasons: Sequence[Reason]) -> Fingerprint:
    """The failure's tool, error type and message without what differs from run to run."""
    action = blamed_action(facts, reasons)
    error = (action.error if action else None) or facts.run.error
    code = reasons[0].code if reasons else "reported"
    tool = action.tool if action else ""
    if isinstance(error, dict) and KINDS[code].likens_by_error:
        kind = str(error.get("type") or code)
        return Fingerprint(tool[:200], kind[:200], normalised(str(error.get("message") or "")))
    if action is not None and action.checks:
        names = sorted({str(check.get("name")) for check in action.checks if not check.get("ok")})
        return Fingerprint(tool[:200], code, normalised(", ".join(names)))
    return Fingerprint(tool[:200], code, "")


def normalised(message: str) -> str:
    """A message without addresses, ids, quoted texts and numbers."""
    text = shortened(without_addresses(message), 4 * MESSAGE_CHARACTERS_MAX)
    for pattern, sign in MEMBERS_OF_TEXT:
        text = pattern.sub(sign, text)
    return text[:MESSAGE_CHARACTERS_MAX]


def title(cause: Cause) -> str:
    """What the failures have in common, for people: gaps where they differ."""
    message = GAPS.sub("…", cause.message)
    if not message:
        return cause.error_type.replace("_", " ").capitalize()
    if message == ERASED:  # nobody's words: they are gone
        return f"{capitalised(cause.error_type.replace('_', ' '))}: {ERASED}"
    if cause.error_type == CHECKED:
        return f"A check failed: “{message}”"
    own = cause.error_type.replace("_", " ")
    if cause.error_type.islower():  # a reason's code, not an exception's name
        return f"{own.capitalize()}: {formatting.quoted(message, MESSAGE_CHARACTERS_MAX)}"
    said = next((words for begin, words in OF_HTTP if message.startswith(begin)), "")
    words = message.strip("… .,:;-")
    return said or (formatting.quoted(words, MESSAGE_CHARACTERS_MAX) if words else own)


def raw(cause: Cause) -> str:
    """What was raised, for whoever looks for it in a program's log; empty where no program raised
    it: its title says all of it.
    """
    kind = cause.error_type
    message = GAPS.sub("…", cause.message)
    if kind.islower():  # a reason's code
        return ""
    return kind if message in ("", ERASED, title(cause).strip("“”")) else f"{kind}: {message}"


def keep(workspace: Workspace, alike: Fingerprint) -> Cause:
    """The cause's row, made when it is new; `last_seen_at` moves with each case."""
    cause, _ = Cause.objects.get_or_create(
        workspace=workspace,
        fingerprint=alike.fingerprint,
        defaults={"tool": alike.tool, "error_type": alike.error_type, "message": alike.message},
    )
    if cause.message == ERASED:  # it was somebody's who was forgotten, and is another's now
        Cause.objects.filter(pk=cause.pk).update(message=alike.message)
    return cause


def joined(cause: Cause) -> None:
    """A case more has this cause."""
    Cause.objects.filter(pk=cause.pk).update(case_count=F("case_count") + 1, last_seen_at=Clock())


def left(cause_id: int | None) -> None:
    if cause_id is not None:
        Cause.objects.filter(pk=cause_id, case_count__gt=0).update(case_count=F("case_count") - 1)
