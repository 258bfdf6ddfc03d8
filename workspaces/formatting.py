"""Look: how values become words on a page.

Formatting happens here, in Python, and reaches a template as a ready string: template filters were
measured to be most of the cost of a long list. Nothing here knows of requests or models.
"""

import html
import json
import re
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

from django.utils import timezone
from django.utils.html import escape
from django.utils.safestring import SafeString

# Groups digits, and keeps a number and its unit on one line. The narrow one is not to be seen
# between bold figures: $1 286.00 read as $1286.00.
NO_BREAK = "\u00a0"
MINUS = "\u2212"

SECONDS_A_MINUTE = 60
DIGEST_CHARACTERS = 12
# How far the day and the second reach in a time as ISO 8601 writes it.
DAY, SECOND = 10, 19
# Of a text that changed, lines that are shown around each change.
CONTEXT_LINES = 2
# Longer texts are compared by nobody's eye, and comparing them takes a page's time.
COMPARED_LINES_MAX = 2_000
# From here on hours no longer matter.
DAYS_ALONE = 14

# A text longer than this is cut before it is made visible: a page shows it, nobody reads it all.
VISIBLE_CHARACTERS_MAX = 20_000

# Everything that is worth a look: a list's texts hold next to none of it. What is not is no letter,
# hides nothing and has one form: the signs of our own sentences and amounts.
UNUSUAL = re.compile("[^\x20-\x7e\n\t\u00a0£¥·–—“”…€−]")

# What stands where a secret stood (amends/protocol/masking.py); people are shown it in words.
MASKED = re.compile(
    "⟦masked:(?P<kind>[a-z0-9]{1,32})(?::v1:(?P<mark>[0-9a-f]{32})(?::(?P<last>[0-9A-Z]{4}))?)?⟧"
)

# Default_Ignorable_Code_Point (Unicode 16) of the category Mn: drawn as nothing, or changes only
# how its neighbour is drawn.
IGNORED = re.compile("[\u034f\u17b4\u17b5\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
# Strokes, rings and bars through or around the sign before them: struck out words read otherwise
# than they are written, and o with a stroke is no ø. U+20E3 makes pictures of digits: 1️⃣.
OVERLAID = re.compile(
    "[\u0334-\u0338\u0488\u0489\u1abe\u20d2\u20d3\u20d8-\u20da\u20dd-\u20e0\u20e2\u20e4-\u20e6"
    "\u20ea\u20eb\ua670-\ua672]"
)
# The two that choose between a sign and its picture say nothing false behind a sign: ❤️, ↩️.
PICTURE = frozenset("\ufe0e\ufe0f")

WORD = re.compile(r"[^\W_]+")
# Written without spaces between them, and mistaken by nobody for letters of an alphabet.
EAST_ASIAN = frozenset({"CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"}) | {
    "HALFWIDTH", "HANGUL", "BOPOMOFO", "YI",
}  # fmt: skip
# Letters of no script of their own: µ of µs, and the apostrophe of пʼять.
NEUTRAL = frozenset({"MICRO", "MODIFIER", "COMBINING"})
# Letters that look like Latin ones: a word of two or more of them and nothing else reads as Latin.
LOOKALIKES = frozenset("асеорхуіјѕԁһԛԝӏАВСЕНІЈКМОРЅТХУαινορυΑΒΕΖΗΙΚΜΝΟΡΤΥΧ")
LATIN = re.compile("[A-Za-z]")
# A full stop of full width within a name; between words of Chinese or Japanese it is at home.
WIDE_SIGN = re.compile(
    "(?<=[0-9A-Za-z])[\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff5e](?=[0-9A-Za-z])"
)

SHORT_ID = re.compile(r"(?<![\w-])\w{1,6}-[A-Za-z]?\d\w{0,7}(?![\w-])")
# What a narrow column has room for stays on one line.
SHORT_QUOTE = re.compile("“[^”<>]{1,16}”")
# With the sign that opens before it and those that close behind it, which stay on its line.
ADDRESS = re.compile(
    r"(?<![\w.+\-])((?:&lt;|[(“])?[\w.+\-]{1,64})"
    r"(@[\w\-]{1,63}(?:\.[\w\-]{1,63}){1,9}(?:&gt;|[)”])?[.,;:]?)"
)
LONG_PART = re.compile("[^.:/]{17,}")
OUTSIDE_OF_TAGS = re.compile(r"(?<!<)[^\s<>]+")
WEB_PATH = re.compile(r"(https?://[^\s<>/]+)(/[^\s<>]*)")
# What no sentence is made of; longer ones are quoted, and cut.
IDENTIFIER = re.compile(r"[\w.:/@#+\-]{0,80}")
# How people are called: up to six words, without signs that end a sentence's part.
NAME = re.compile(r"(?=.{1,80}\Z)[\w.’'@+\-]+(?: [\w.’'@+\-]+){0,5}(?: \([\w.:/@#+\-]+\))?")
NO_TEXT = re.compile(
    r"\s*+(?:(?:-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|\[\]|\{\})\s*+)?"
    r"|“.*”|[^\S\n].*|.*[^\S\n]"
)
"""Texts that look like another value than a text, and lines whose ends nobody sees."""
QUOTES = re.compile("[“”„‟«»〝〞〟＂❝❞⹂]")
# Hebrew, Arabic and their neighbours; and what stands in a language's quotation marks.
RIGHT_TO_LEFT = re.compile(
    "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefe\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
IN_QUOTES = re.compile("(?<=“)[^“”„]+(?=”)|(?<=„)[^“”„]+(?=“)|(?<=«)[^«»]+(?=»)")
BREAKS = re.compile("\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
BREAK, TAB = "⏎", "⇥"
# A longer text in a sentence of ours is cut; the page of what it belongs to shows it whole.
QUOTED_CHARACTERS_MAX = 240

SYMBOLS = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥", "INR": "₹"}

# ISO 4217: how many digits stand behind the point, where it is not two.
DIGITS = 2
CURRENCIES_BY_DIGITS = {
    0: ["BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND",
        "VUV", "XAF", "XOF", "XPF"],
    3: ["BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"],
    4: ["CLF", "UYW"],
}  # fmt: skip
EXPONENTS = {code: digits for digits, codes in CURRENCIES_BY_DIGITS.items() for code in codes}


def digits_of(currency: str) -> int:
    """How many digits of an amount in the currency's smallest unit stand behind the point."""
    return EXPONENTS.get(currency.upper(), DIGITS)


def money(minor: int, currency: str = "USD") -> str:
    """An amount in the currency's smallest unit, as people write it: 128600 USD is $1 286.00."""
    code = currency.upper()
    digits = digits_of(code)
    whole, part = divmod(abs(minor), 10**digits)
    text = f"{whole:,}".replace(",", NO_BREAK) + (f".{part:0{digits}}" if digits else "")
    sign = MINUS if minor < 0 else ""
    symbol = SYMBOLS.get(code)
    return f"{sign}{symbol}{text}" if symbol else f"{sign}{text}{NO_BREAK}{escape(code)}"


def count(number: int, cap: int | None = None) -> str:
    """12345 is 12 345; with a cap, what is over it is "10 000+"."""
    shown, more = (cap, "+") if cap is not None and number > cap else (number, "")
    return f"{shown:,}".replace(",", NO_BREAK) + more


def digest(found: str) -> str:
    """A digest as people compare it on two pages: its first twelve signs, everywhere."""
    return found[:DIGEST_CHARACTERS]


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
    now = now or timezone.now()
    text = span(now - when)
    return f"in {text}" if when > now else f"{text} ago"


def absolute(when: datetime, zone: tzinfo | None = None) -> str:
    """2026-11-21 10:02:15 UTC: the exact time, with the name of its zone; by the page's clock
    unless `zone` says another.
    """
    return _with_zone(when.astimezone(zone or timezone.get_current_timezone()))


def _with_zone(there: datetime) -> str:
    return f"{there.isoformat(' ')[:SECOND]} {there.tzname() or ''}".rstrip()


def _with_utc(there: datetime, utc: datetime) -> str:
    """2026-11-21 05:02:15 EST = 10:02:15 UTC; with the day where that is another."""
    own = _with_zone(there)
    if there.utcoffset() == utc.utcoffset():
        return own
    told = utc.isoformat(" ")[:SECOND]
    return f"{own} = {told[DAY + 1 :] if own.startswith(told[:DAY]) else told} UTC"


def moment(when: datetime | None, style: str = "ago", *, now: datetime | None = None) -> SafeString:
    """A `<time>` that says `style` and keeps the exact time behind it.

    Styles: `ago` (41 min ago), `span` (41 min), `clock` (10:02:15), `day` (2026-11-21), `full`.
    It goes by the page's clock (workspaces/pages.py); behind it is UTC, too. The script in
    moments.js goes on counting.
    """
    if when is None:
        return SafeString("—")
    now = now or timezone.now()
    there, utc = when.astimezone(timezone.get_current_timezone()), when.astimezone(UTC)
    exact = html.escape(_with_utc(there, utc))
    match style:
        case "ago":
            text = ago(when, now)
        case "span":
            text = span(now - when)
        case "clock":
            text = exact[DAY + 1 : SECOND]
        case "day":
            text = exact[:DAY]
        case _:
            text = exact
    return SafeString(  # times and our own words; a list has a hundred of them
        f'<time datetime="{utc.isoformat()[:SECOND]}Z" data-moment="{style}"'
        f' data-exact="{exact}">{text}</time>'
    )


def visible(text: object, characters_max: int | None = VISIBLE_CHARACTERS_MAX) -> SafeString:
    """The text, escaped, with characters that lie shown as ⟦U+202E⟧.

    The rule, the same wherever somebody else's words are shown:

    - what hides or reorders: the categories Cf (format: bidirectional marks, zero width, tags), Cc
      (control, but for new line and tab), Co, Cs, Cn, Zl and Zp, variation selectors and the rest
      of Default_Ignorable_Code_Point, but for the selector of a picture behind a sign;
    - what strikes a sign through or encloses it, as in a̶pproved;
    - letters of another script in one word, as а in pаy; the Latin ones stay as they are;
    - a word that is all letters that look Latin, in a text that is Latin otherwise;
    - letters and digits of full width or of a mathematical font, and other signs of full width
      between ASCII letters or digits.

    A word of one script, whichever, is as it is. See UTR #36 and UTS #39 for why. What is written
    from right to left in quotation marks moves nothing that stands beside them.
    """
    raw = str(text)
    cut = raw[:characters_max]
    out = _marked(html.escape(_unmasked(cut)), _shown)
    if not out.isascii() and RIGHT_TO_LEFT.search(out):
        out = IN_QUOTES.sub(r"<bdi>\g<0></bdi>", out)
    if len(raw) > len(cut):
        out += f'<mark class="hidden-sign">⟦{len(raw) - len(cut)} more characters⟧</mark>'
    return SafeString(out)  # escaped as a whole; no escape is unusual


def line_diff(was: str, now: str) -> SafeString:
    """Two texts of several lines as one: what went, what came, and two lines around each; what is
    the same between them is folded into a line that says how long it is.
    """
    before, after = was.splitlines(), now.splitlines()
    out = []
    for kind, i1, i2, j1, j2 in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            first, last = i1 == 0, i2 == len(before)
            head = 0 if first else CONTEXT_LINES
            tail = 0 if last else CONTEXT_LINES
            out += _folded(before[i1:i2], head, tail)
            continue
        out += [_line("removed", MINUS, "removed", text) for text in before[i1:i2]]
        out += [_line("added", "+", "added", text) for text in after[j1:j2]]
    return SafeString("".join(out))  # each line is escaped by `visible`


def _folded(lines: list[str], head: int, tail: int) -> list[str]:
    if len(lines) <= head + tail + 1:
        return [_line("same", "", "", text) for text in lines]
    hidden = len(lines) - head - tail
    return [
        *(_line("same", "", "", text) for text in lines[:head]),
        f'<span class="line folded">… {count(hidden)} lines the same</span>',
        *(_line("same", "", "", text) for text in lines[len(lines) - tail :]),
    ]


def _line(kind: str, sign: str, spoken: str, text: str) -> str:
    away = f'<span class="away">{spoken}: </span>' if spoken else ""
    return (
        f'<span class="line {kind}"><span class="sign" aria-hidden="true">{sign}</span>'
        f"{away}{visible(text)}</span>"
    )


def _unmasked(text: str) -> str:
    return MASKED.sub(_hidden_value, text) if "⟦" in text else text


def _hidden_value(found: re.Match[str]) -> str:
    """A masked value in words: its kind, a part of its mark, and what the policy shows of it."""
    kind = {"policy": "hidden by policy"}.get(found["kind"], f"hidden {found['kind']}")
    mark = f", mark {found['mark'][:12]}" if found["mark"] else ", cannot be compared"
    last = f", ends in {found['last']}" if found["last"] else ""
    return f"⟦{kind}{mark}{last}⟧"


def one_line(text: object) -> str:
    """The text without a new line of its own: breaks and tabs are signs, ⏎ and ⇥."""
    raw = str(text)
    if raw.isprintable():
        return raw
    return BREAKS.sub(BREAK, raw).replace("\t", TAB)


def plain(text: object) -> str:
    """The text in one line for a mail, with characters that lie shown; nothing is escaped."""
    return " ".join(_marked(_unmasked(one_line(text)), _named).split())


def quoted(text: object, characters_max: int = QUOTED_CHARACTERS_MAX) -> str:
    """Somebody else's words in a sentence of ours: “in one line”, which they cannot leave.

    Quotation marks of its own become straight ones; nothing is escaped.
    """
    raw = str(text)
    goes_on = "…" if len(raw) > characters_max else ""
    return f"“{plain(straight(raw[:characters_max]))}{goes_on}”"


def value_text(value: Any) -> str:
    """A JSON value as people read it. A text is as it is, but in quotation marks where it would be
    read as a number, a truth value or nothing, or where its ends are not seen: “1” is not 1.
    """
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return f"“{value}”" if NO_TEXT.fullmatch(value) else value


def straight(text: object) -> str:
    """The text in one line, with straight quotation marks only."""
    return QUOTES.sub('"', one_line(text))


def named(name: object) -> str:
    """A tool, a target or another identifier in a sentence of ours; nothing is escaped.

    One that could be words of the sentence (it holds a space or another sign that identifiers do
    not have, it is long, or it lies) stands in quotation marks; `update_flight` needs none.
    """
    text = str(name)
    return text if is_identifier(text) else quoted(text)


def person(name: object) -> str:
    """What an agent calls the person on whose behalf it acts; nothing is escaped.

    A name stands as it is, in one line. What could be more than one stands in quotation marks.
    """
    text = str(name)
    return text if NAME.fullmatch(text) and not hidden_count(text) else quoted(text)


def with_address(one: Any) -> str:
    """A person where one is chosen among others: by a name alone two could be taken for one."""
    return f"{one} ({one.email})"


def is_identifier(text: str) -> bool:
    return IDENTIFIER.fullmatch(text) is not None and not hidden_count(text)


def hidden_count(text: object) -> int:
    """How many characters `visible` would have to show."""
    raw = str(text)
    return 0 if raw.isascii() and raw.isprintable() else len(_lies(raw))


def is_all_seen(name: str) -> bool:
    """Whether a name shows all that it is made of, so that two that look alike are one.

    Beside what hides, signs that only change others (variation selectors, joiners) and spaces at
    either end are not seen. Letters of another script are: `visible` marks them for people.
    """
    if name.isascii():
        return name.isprintable() and name == name.strip()
    return name.isprintable() and name == name.strip() and not any(is_unseen(one) for one in name)


def is_unseen(character: str) -> bool:
    """Whether nobody sees it by itself: it is hidden, or only changes what stands before it."""
    return _is_hidden(character) or IGNORED.match(character) is not None


def _is_hidden(character: str) -> bool:
    if OVERLAID.match(character):
        return True
    if character in "\u115f\u1160\u3164\uffa0\u2800":  # letters that are drawn as nothing
        return True
    return unicodedata.category(character) in {"Cf", "Cc", "Co", "Cs", "Cn", "Zl", "Zp"}


def _marked(text: str, sign: Callable[[str], str]) -> str:
    """The text with `sign` in the place of each character that lies."""
    if text.isascii() and text.isprintable():
        return text
    lies = _lies(text)
    if not lies:
        return text
    return "".join(sign(one) if place in lies else one for place, one in enumerate(text))


def _lies(text: str) -> set[int]:
    """The places of what `visible` marks."""
    unusual = [one.start() for one in UNUSUAL.finditer(text)]
    found = {place for place in unusual if _hides(text, place)}
    if not unusual or text.isascii():
        return found
    found.update(one.start() for one in WIDE_SIGN.finditer(text))
    is_latin = LATIN.search(text) is not None
    for word in WORD.finditer(text):
        if not word[0].isascii():
            found.update(word.start() + place for place in _foreign(word[0], is_latin=is_latin))
    return found


def _hides(text: str, place: int) -> bool:
    one = text[place]
    if one in PICTURE:
        before = text[place - 1] if place else ""
        return not before or before.isascii() or unicodedata.category(before) not in {"So", "Sm"}
    return _is_hidden(one) or IGNORED.match(one) is not None


@lru_cache(maxsize=4096)
def _foreign(word: str, *, is_latin: bool) -> tuple[int, ...]:
    """The places in a word that are not what they look like.

    Python does not know the Unicode property Script. The first word of a letter's name says it for
    the scripts that are mistaken for each other: LATIN, CYRILLIC, GREEK, ARMENIAN, CHEROKEE.
    """
    scripts = [_script(one) for one in word]
    wide = {place for place, one in enumerate(word) if _is_other_form(one)}
    kinds = [kind for kind in dict.fromkeys(scripts) if kind]
    if len(kinds) > 1:
        own = "LATIN" if "LATIN" in kinds else kinds[0]
        wide |= {place for place, kind in enumerate(scripts) if kind and kind != own}
    elif is_latin and len(word) > 1 and LOOKALIKES.issuperset(word):
        wide |= set(range(len(word)))
    return tuple(sorted(wide))


@lru_cache(maxsize=4096)
def _script(character: str) -> str:
    """LATIN, CYRILLIC, …; nothing of what is no letter, or stands beside letters of any script."""
    if not character.isalpha() or _is_other_form(character):
        return ""
    kind = unicodedata.name(character, "").split(" ", 1)[0]
    return "" if kind in EAST_ASIAN or kind in NEUTRAL else kind


def _is_other_form(character: str) -> bool:
    """Whether it is an ASCII letter or digit in full width or in a mathematical font."""
    form, _, of = unicodedata.decomposition(character).partition(" ")
    return form in {"<wide>", "<font>"} and chr(int(of.split()[0], 16)).isascii()


def _shown(character: str) -> str:
    return f'<mark class="hidden-sign">{_named(character)}</mark>'


def _named(character: str) -> str:
    return f"⟦U+{ord(character):04X}⟧"


def breakable(name: object) -> SafeString:
    """A name of a tool or a target that may break after each of its signs, never inside a word or
    a short part of several words.

    Agents write these: it is one line, and what lies is shown, as `visible` does.
    """
    shown = OUTSIDE_OF_TAGS.sub(_broken, _marked(html.escape(one_line(name)), _shown))
    if "“" in shown:
        shown = SHORT_QUOTE.sub(r'<span class="nowrap">\g<0></span>', shown)
    return together(SafeString(shown))  # escaped first


def together(shown: SafeString) -> SafeString:
    """What `visible` made, with short ids such as E-5392 never broken at their hyphen, a mail
    address, only where it has no line to itself, before its @, and one of the web at its slashes.

    By markup, and not by another hyphen: who copies the id finds it again.
    """
    kept: str = shown
    if "-" in kept:
        kept = SHORT_ID.sub(r'<span class="nowrap">\g<0></span>', kept)
    if "@" in kept:
        kept = ADDRESS.sub(r'<span class="own-line">\1<wbr>\2</span>', kept)
    if "://" in kept:
        kept = WEB_PATH.sub(lambda one: one[1] + one[2].replace("/", "<wbr>/"), kept)
    return SafeString(kept)  # it was safe, and nothing but that is added


def _broken(word: re.Match[str]) -> str:
    parts = word[0]
    if "@" in parts and ADDRESS.search(parts):
        return parts
    if "_" in parts:
        parts = LONG_PART.sub(lambda part: part[0].replace("_", "_<wbr>"), parts)
    for sign in ".:/":
        parts = parts.replace(sign, f"{sign}<wbr>")
    return parts
