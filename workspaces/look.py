"""Look: how values become words on a page.

Formatting happens here, in Python, and reaches a template as a ready string: template filters were
measured to be most of the cost of a long list. Nothing here knows of requests or models.
"""

import html
import re
import unicodedata
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

# A narrow space that does not break: groups digits, and keeps a number and its unit on one line.
NARROW = "\u202f"
MINUS = "\u2212"

SECONDS_A_MINUTE = 60
# From here on hours no longer matter.
DAYS_ALONE = 14

# A text longer than this is cut before it is made visible: a page shows it, nobody reads it all.
VISIBLE_CHARACTERS_MAX = 20_000

# Everything that is worth a look at its category: a list's texts hold next to none of it.
UNUSUAL = re.compile(r"[^\x20-\x7e\n\t]")

# What stands where a secret stood (ledger/masking.py); people are shown it in words.
MASKED = re.compile(
    "⟦masked:(?P<kind>[a-z0-9]{1,32})(?::v1:(?P<mark>[0-9a-f]{32})(?::(?P<last>[0-9A-Z]{4}))?)?⟧"
)

# Default_Ignorable_Code_Point (Unicode 16) of the category Mn: fine in a text,
# where an emoji has one, and not in a name.
IGNORED = re.compile("[\u034f\u17b4\u17b5\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")

SYMBOLS = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥", "INR": "₹"}

# ISO 4217: how many digits stand behind the point, where it is not two.
EXPONENTS = {
    "JPY": 0,
    "KRW": 0,
    "VND": 0,
    "CLP": 0,
    "ISK": 0,
    "KWD": 3,
    "BHD": 3,
    "TND": 3,
}


def money(minor: int, currency: str = "USD") -> str:
    """An amount in the currency's smallest unit, as people write it: 128600 USD is $1 286.00."""
    code = currency.upper()
    digits = EXPONENTS.get(code, 2)
    amount = Decimal(minor).scaleb(-digits)
    text = f"{abs(amount):,.{digits}f}".replace(",", NARROW)
    sign = MINUS if amount < 0 else ""
    symbol = SYMBOLS.get(code)
    return f"{sign}{symbol}{text}" if symbol else f"{sign}{text}{NARROW}{escape(code)}"


def count(number: int, cap: int | None = None) -> str:
    """12345 is 12 345; with a cap, what is over it is "10 000+"."""
    shown, more = (cap, "+") if cap is not None and number > cap else (number, "")
    return f"{shown:,}".replace(",", NARROW) + more


def span(length: timedelta) -> str:
    """A length of time in at most two units: 41 min, 1 h 19 min, 2 d 4 h."""
    seconds = int(abs(length.total_seconds()))
    if seconds < SECONDS_A_MINUTE:
        return f"{seconds} s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if hours == 0:
        return f"{minutes} min"
    if days == 0:
        rest = minutes % 60
        return f"{hours} h {rest:02d} min" if rest else f"{hours} h"
    if days < DAYS_ALONE and hours % 24:
        return f"{days} d {hours % 24} h"
    return f"{days} d"


def ago(when: datetime, now: datetime | None = None) -> str:
    """41 min ago, or in 2 h."""
    now = now or datetime.now(UTC)
    text = span(now - when)
    return f"in {text}" if when > now else f"{text} ago"


def absolute(when: datetime, zone: tzinfo = UTC) -> str:
    """2026-11-21 10:02:15 UTC: the exact time, with the name of its zone."""
    there = when.astimezone(zone)
    return f"{there:%Y-%m-%d %H:%M:%S} {there.tzname() or ''}".rstrip()


def moment(
    when: datetime | None,
    style: str = "ago",
    zone: tzinfo = UTC,
    now: datetime | None = None,
) -> SafeString:
    """A `<time>` that says `style` and keeps the exact time behind it.

    Styles: `ago` (41 min ago), `span` (41 min), `clock` (10:02:15), `day` (2026-11-21), `full`.
    The script in moments.js goes on counting and puts the reader's own zone; without it the page
    shows what stands here.
    """
    if when is None:
        return mark_safe("—")
    now = now or datetime.now(UTC)
    there = when.astimezone(zone)
    exact = escape(absolute(when, zone))
    words = {
        "ago": lambda: ago(when, now),
        "span": lambda: span(now - when),
        "clock": lambda: f"{there:%H:%M:%S}",
        "day": lambda: f"{there:%Y-%m-%d}",
        "date": lambda: f"{there:%Y-%m-%d}",
    }
    text = words.get(style, lambda: exact)()
    utc = f"{when.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return mark_safe(  # noqa: S308  # times and our own words; a list has a hundred of them
        f'<time datetime="{utc}" data-moment="{style}" data-exact="{exact}">{text}</time>'
    )


def visible(text: object, characters_max: int | None = VISIBLE_CHARACTERS_MAX) -> SafeString:
    """The text, escaped, with characters that hide or reorder others shown as ⟦U+202E⟧.

    Unicode categories Cf (format: bidirectional marks, zero width, tags), Cc (control, but for new
    line and tab), Co, Cs and Zl, Zp. See UTR #36 and Unicode TR #39 for why.
    """
    raw = str(text)
    cut = raw[:characters_max]
    out = UNUSUAL.sub(_shown, html.escape(MASKED.sub(_hidden_value, cut)))
    if len(raw) > len(cut):
        out += f'<mark class="hidden-sign">⟦{len(raw) - len(cut)} more characters⟧</mark>'
    return mark_safe(out)  # noqa: S308  # escaped as a whole; no escape is unusual


def _hidden_value(found: re.Match[str]) -> str:
    """A masked value in words: its kind, a part of its mark, and what the policy shows of it."""
    kind = {"policy": "hidden by policy"}.get(found["kind"], f"hidden {found['kind']}")
    mark = f", mark {found['mark'][:12]}" if found["mark"] else ", cannot be compared"
    last = f", ends in {found['last']}" if found["last"] else ""
    return f"⟦{kind}{mark}{last}⟧"


def plain(text: object) -> str:
    """The text in one line for a mail, with hidden characters shown; nothing is escaped."""
    return " ".join(UNUSUAL.sub(_named, MASKED.sub(_hidden_value, str(text))).split())


def hidden_count(text: object) -> int:
    """How many characters `visible` would have to show."""
    return sum(map(_is_hidden, UNUSUAL.findall(str(text))))


def is_all_seen(name: str) -> bool:
    """Whether a name shows all that it is made of, so that two that look alike are one.

    Beside what `visible` marks, signs that only change others (variation selectors, joiners) and
    spaces at either end are not seen.
    """
    if name.isascii():
        return name.isprintable() and name == name.strip()
    return (
        name.isprintable()
        and name == name.strip()
        and not any(_is_hidden(one) or IGNORED.match(one) for one in name)
    )


def _is_hidden(character: str) -> bool:
    if character in "\u115f\u1160\u3164\uffa0\u2800":  # letters that are drawn as nothing
        return True
    return unicodedata.category(character) in {"Cf", "Cc", "Co", "Cs", "Cn", "Zl", "Zp"}


def _shown(found: re.Match[str]) -> str:
    named = _named(found)
    return named if named == found[0] else f'<mark class="hidden-sign">{named}</mark>'


def _named(found: re.Match[str]) -> str:
    return f"⟦U+{ord(found[0]):04X}⟧" if _is_hidden(found[0]) else found[0]


def breakable(name: object) -> SafeString:
    """A name of a tool or a target that may break after each of its signs, never inside a word.

    Agents write these: what hides or reorders is shown, as `visible` does.
    """
    shown = re.sub(r"([_./:])", r"\1<wbr>", html.escape(str(name)))
    return mark_safe(UNUSUAL.sub(_shown, shown))  # noqa: S308  # escaped first
