"""Free text that people write, as it is kept: whole, or refused in words, and never cut.

Whoever shows the form again shows it with what was typed.
"""

from django.utils.translation import gettext as _

REASON_CHARACTERS_MAX = 2_000
"""Of why somebody acts: a decision, a plan, an act on many cases; and of a question about it."""

NOTE_CHARACTERS_MAX = 400
"""Of one line beside something that stands for long: a pause, a version of a policy."""


class InvalidInput(ValueError):
    """We stopped because what a person has to say is missing, or too long to be kept whole."""


def kept_text(text: str, characters_max: int, *, asking: str = "") -> str:
    """What a person wrote, as it is kept: whole, without NUL, its lines ended as browsers count.

    Raises InvalidInput with `asking` where nothing was written and something has to be, and where
    it is longer than `characters_max`.
    """
    text = text.replace("\x00", "").replace("\r\n", "\n").strip()
    if asking and not text:
        raise InvalidInput(asking)
    if len(text) > characters_max:
        counts = {"found": f"{len(text):,}", "most": f"{characters_max:,}"}
        shorten = _(
            "Shorten what you wrote: it has %(found)s characters, of which %(most)s can be kept."
        )
        raise InvalidInput(shorten % counts)
    return text
