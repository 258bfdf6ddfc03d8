"""Wording: the sentences of the trail that an administrator may say otherwise, in each language.

What a workspace does not word stands in the catalogues. Facts have no way in: these sentences say
how to go on, and never what happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.conf import settings
from django.db import transaction
from django.utils import translation
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from amends.protocol.canonical import digest
from amends.protocol.vocabulary import EventType
from recovery.models import CorrectionSettings
from workspaces import access, locks, outbox
from workspaces.free_text import InvalidInput, kept_text
from workspaces.models import User, Workspace
from workspaces.moves import CannotMove

LANGUAGES: dict[str, str] = dict(settings.LANGUAGES)
SENTENCE_CHARACTERS_MAX = 500
FIELDS_MAX = 100
FIELD_CHARACTERS_MAX = 60
FIELD = "field "
"""Before the name of a field among a workspace's own sentences."""
GLOBS_MAX = 50
GLOB_CHARACTERS_MAX = 120
DAYS = (30, 90, 180, 365)
ANSWER_DAYS_MAX = 90

SENTENCES = {
    "nothing_to_do": gettext_noop("You need not do anything."),
    "ask_again": gettext_noop(
        "If you still want what you had asked for, ask for it again: nothing goes on by itself."
    ),
    "look_for_money": gettext_noop(
        "If the money has not come back within ten days, write to us below."
    ),
    "delete_mail": gettext_noop(
        "Please delete the mail that was not meant for you. You need not do anything else."
    ),
    "left_over": gettext_noop(
        "If what still stands does not suit you, write to us below: a person decides with you what"
        " can be done."
    ),
    "rights": gettext_noop(
        "You may contest this, whatever your reason. A person who took no part in it looks at it"
        " anew and answers you with reasons. The law where you live may give you further rights."
    ),
    "closing": gettext_noop("We are sorry for the trouble."),
}
"""Each with its name, as the catalogues have it in English."""


def settings_of(workspace: Workspace) -> CorrectionSettings:
    """What the workspace has set, or what holds where it has set nothing; not saved."""
    found = CorrectionSettings.objects.filter(workspace=workspace).first()
    return found or CorrectionSettings(workspace=workspace)


def sentence(settings: CorrectionSettings, name: str) -> str:
    """In the language that is active: the workspace's own, else the catalogue's."""
    own: Mapping[str, str] = settings.sentences.get(translation.get_language() or "en", {})
    return own.get(name) or _(SENTENCES[name])


def fields(settings: CorrectionSettings) -> dict[str, str]:
    """What the workspace calls fields in the language that is active, by their names."""
    own: Mapping[str, str] = settings.sentences.get(translation.get_language() or "en", {})
    named = {name: text for name, text in own.items() if name.startswith(FIELD)}
    return {name.removeprefix(FIELD): text for name, text in named.items()}


def fields_read(lines: Sequence[str]) -> dict[str, str]:
    """`seat_class = Sitzklasse`, one a line; raises InvalidInput and says which line it is."""
    said = [line.strip() for line in lines if line.strip()]
    if len(said) > FIELDS_MAX:
        raise InvalidInput(f"At most {FIELDS_MAX} fields, please.")
    found = {}
    for line in said:
        name, is_said, text = (part.strip() for part in line.partition("="))
        if not name or not is_said or not text:
            raise InvalidInput(f"“{line}”: write a field’s name, =, and what people call it.")
        if max(len(name), len(text)) > FIELD_CHARACTERS_MAX:
            raise InvalidInput(f"“{name}”: at most {FIELD_CHARACTERS_MAX} characters, please.")
        found[name] = text
    return found


def as_seen(settings: CorrectionSettings, language: str) -> str:
    """What the form of this language shows, told apart from what it showed before."""
    own = settings.sentences.get(language, {})
    return digest([own, settings.internal, settings.valid_days, settings.answer_days])


@transaction.atomic
def word(
    workspace: Workspace,
    *,
    by: User,
    language: str,
    sentences: Mapping[str, str],
    internal: Sequence[str],
    valid_days: int,
    answer_days: int,
    fields: Mapping[str, str] | None = None,
    seen: str | None = None,
) -> CorrectionSettings:
    """Set them; raises NotAllowed, InvalidInput, or CannotMove where something else stands there
    than was `seen` (`as_seen`). What is left empty is the catalogue's. `fields`: what fields are
    called, by their names (`fields_read`).
    """
    access.require(by, "administer", workspace)
    if language not in LANGUAGES:
        raise InvalidInput("There are no pages in this language.")
    if valid_days not in DAYS or not 1 <= answer_days <= ANSWER_DAYS_MAX:
        raise InvalidInput(f"An answer comes within 1 to {ANSWER_DAYS_MAX} days.")
    globs = [glob.strip() for glob in internal if glob.strip()]
    if len(globs) > GLOBS_MAX or any(len(glob) > GLOB_CHARACTERS_MAX for glob in globs):
        raise InvalidInput(f"At most {GLOBS_MAX} short names of kinds, please.")
    own = {
        name: text
        for name in SENTENCES
        if (text := kept_text(sentences.get(name, ""), SENTENCE_CHARACTERS_MAX))
    }
    own |= {f"{FIELD}{name}": text for name, text in (fields or {}).items()}
    list(locks.locked(Workspace.objects.filter(pk=workspace.pk)).values_list("pk"))
    settings = settings_of(workspace)
    if seen not in {None, as_seen(settings, language)}:
        why = (
            "Somebody has changed them since you saw them. What you typed stands below; in another"
        )
        why += " tab you see what holds now. Saved again, yours takes its place."
        raise CannotMove(settings, "worded", why)
    settings.sentences = {**settings.sentences, language: own}
    settings.internal, settings.valid_days, settings.answer_days = globs, valid_days, answer_days
    settings.save()
    what = {"language": language, "sentences": own, "internal": globs,
            "valid_days": valid_days, "answer_days": answer_days}  # fmt: skip
    outbox.record(workspace, EventType.CORRECTIONS_WORDED, by=by, data=what)
    return settings
