"""Whether an amount, a day or a time stands in what people wrote, in any usual spelling.

What a text may mean in two ways it says in both; what a value may mean in two ways has to be said
in both.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from datetime import date, timedelta
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any

YEAR = timedelta(days=366)
"""A day that is written without its year may be so far away."""
WEEK_DAYS = 7
_LOOK_BACK = 24  # characters, in which a word or two stand
SUNDAY = 6
HALF_DAY_HOURS = 12
TEN_CENTS = 10

# Signs of money with their codes of ISO 4217, other codes, and what stands in their place.
_SIGNS = {"€": "eur", "$": "usd", "£": "gbp", "¥": "jpy", "₹": "inr", "₩": "krw", "₺": "try"}
_CODES = (
    "eur|usd|gbp|chf|jpy|cad|aud|nzd|sek|nok|dkk|isk|pln|czk|huf|ron|bgn|try|ils|inr|cny|hkd|sgd"
    "|krw|thb|idr|myr|php|brl|mxn|ars|clp|cop|zar|aed|sar|kr|rs|fr"
)
_MARK = rf"(?:{_CODES}|[{''.join(_SIGNS)}])"
# What people call money, and the codes that it may mean.
_MONEY_WORDS = (
    (r"euros?", ("eur",)),
    (r"dollars?|d[oó]lar(?:es)?|bucks", ("usd", "cad", "aud", "nzd", "sgd", "hkd")),
    (r"pounds?|pfund|libras?|livres?", ("gbp",)),
    (r"francs?|franken|francos?", ("chf",)),
    (r"yen", ("jpy",)),
    (r"rupees?|rupien", ("inr",)),
    (r"kron(?:or|er|en)|crowns", ("sek", "nok", "dkk", "isk", "czk")),
)
# Of 2026年11月3日 and 10時30分, but not 100日元.
OF_DAY = "| ?(?:[年月時时년월]|日(?![元圓円])|일)"
_DIGITS = r"[-+]?\d+(?:[ .,'’_]\d+)*"
_NUMBER = re.compile(
    # Not of a code (ORD-17), a day (2026-11-29, 3/4) or a time (10:30).
    rf"(?<![\w.,])(?<!\w-)(?<!\d[/:'’])(?:{_MARK})?({_DIGITS})(?:{_MARK})?(?!\w|[-/:.,'’_]\d{OF_DAY})"
)
_SCALES = {"k": 3, "thousand": 3, "tausend": 3, "tsd": 3, "mille": 3, "mil": 3, "mio": 6,
           "million": 6, "millions": 6, "millionen": 6, "millón": 6, "millones": 6, "cent": -2,
           "cents": -2, "ct": -2}  # fmt: skip
"""By which power of ten a word multiplies the number before it."""
_SCALED = re.compile(  # of few groups: it is tried at each of them
    rf"(?<![\w.,])(?<!\w-)(?:{_MARK})?([-+]?\d+(?:[ .,'’_]\d+){{0,4}}) ?({'|'.join(_SCALES)})"
    rf"(?:{_MARK})?(?![\w-])"
)
_SUM = re.compile(rf"({_MARK})?\s?({_DIGITS})\s?({_MARK})?")
_GROUPED = re.compile(r"\d{1,3}(?:[ .,'’_]\d{2,3})*[ .,'’_]\d{3}")


def is_grouped(text: str) -> bool:
    """Whether it is a number with its thousands set apart, which may be a part of a longer one."""
    return _GROUPED.fullmatch(text) is not None


class Quantities:
    """What a text, as `spelling` compares it, says of amounts, days and times: each is read once,
    when the first value asks for it. `today` is what *tomorrow* and a day without its year go by.
    In a text that may hide a value (`may_hide`) a greeting may be a day, *8h* an hour, *an elf* 11.
    """

    def __init__(self, seen: str, today: date | None, *, may_hide: bool = False) -> None:
        self._seen, self._today, self._may_hide = seen, today, may_hide

    @cached_property
    def _amounts(self) -> frozenset[Decimal]:
        return frozenset(_amounts(self._seen, may_hide=self._may_hide))

    @cached_property
    def _money(self) -> frozenset[str]:
        return frozenset(_named(self._seen))

    @cached_property
    def _days(self) -> frozenset[date]:
        return frozenset(_days(self._seen, self._today, may_hide=self._may_hide))

    @cached_property
    def _times(self) -> frozenset[tuple[int, int]]:
        return frozenset(_times(self._seen, may_hide=self._may_hide))

    def hold_number(self, value: float) -> bool:
        """Whether the text says this number."""
        return Decimal(str(value)) in self._amounts

    def hold(self, wanted: str) -> bool:
        """Whether the text says this amount, code of money, day or time."""
        return self._hold_sum(wanted) or self._hold_day(wanted) or self._hold_time(wanted)

    def _hold_sum(self, wanted: str) -> bool:
        """`1,250.00` or `EUR 250`; the money that it names has to be named by the text. `EUR`."""
        if re.fullmatch(_MARK, wanted):
            return _SIGNS.get(wanted, wanted) in self._money
        found = _SUM.fullmatch(wanted)
        if not found:
            return False
        marks = {_SIGNS.get(one, one) for one in (found[1], found[3]) if one}
        if not marks <= self._money:
            return False
        try:
            ways: Iterable[Decimal] = [Decimal(found[2])]
        except InvalidOperation:
            ways = _readings(found[2])
        return _all_of(ways, self._amounts)

    def _hold_day(self, wanted: str) -> bool:
        moment = _MOMENT.fullmatch(wanted)
        text = moment[1] if moment else wanted
        forms = (_DAY_MONTH, _MONTH_DAY, _YEAR_FIRST, _YEAR_LAST, _EAST_ASIAN)
        return any(form.fullmatch(text) for form in forms) and _all_of(
            _days(text, None), self._days
        )

    def _hold_time(self, wanted: str) -> bool:
        """`14:00` of *2 pm*, *14 Uhr* or *2:00*."""
        times = list(_times(wanted)) if ":" in wanted and _CLOCK.fullmatch(wanted) else []
        return bool(times) and times[0] in self._times


def _all_of(wanted: Iterable[object], seen: frozenset[Any]) -> bool:
    """Whether each way in which a value can be read is one of the text: what can be read in two
    ways there is found, what can be here has to be said so.
    """
    ways = set(wanted)
    return bool(ways) and ways <= seen


# Amounts.


def _named(seen: str) -> set[str]:
    """The codes of the money that a text names."""
    signs = re.findall(rf"(?<![^\W\d_]){_MARK}(?![^\W\d_])", seen)
    words = [codes for word, codes in _MONEY_WORDS if re.search(rf"\b(?:{word})\b", seen)]
    return {_SIGNS.get(one, one) for one in signs}.union(*words)


def _amounts(seen: str, *, may_hide: bool) -> Iterator[Decimal]:
    """Each number of the text, and where its separators can be read in two ways, both."""
    for found in _NUMBER.findall(seen):
        yield from _readings(found)
    for digits, scale in _SCALED.findall(seen):
        yield from (one.scaleb(_SCALES[scale]) for one in _readings(digits))
    in_words = _ANY_NUMBER_WORDS if may_hide else _NUMBER_WORDS
    yield from map(_in_words, in_words.findall(seen))
    for whole, cents, alone in _WITH_CENTS.findall(seen):
        part = _count(cents or alone)
        if cents or part >= TEN_CENTS:  # of *12 euros 5* nobody says what
            yield _count(whole) + Decimal(part).scaleb(-2)


def _readings(text: str) -> Iterator[Decimal]:
    digits = re.sub(r"[ '’_]", "", text)
    last = max(digits.rfind("."), digits.rfind(","))
    whole = Decimal(re.sub("[.,]", "", digits))
    if last < 0:
        yield whole
        return
    if digits.count(digits[last]) == 1:
        yield Decimal(re.sub("[.,]", "", digits[:last]) + "." + digits[last + 1 :])
    if _GROUPED.fullmatch(text.lstrip("+-")):
        yield whole


# Numbers in words: of English whole ones, and elsewhere those that stand by themselves.

_SMALL = {
    word: value
    for first, words in (
        (1, "one two three four five six seven eight nine ten eleven twelve"),
        (13, "thirteen fourteen fifteen sixteen seventeen eighteen nineteen"),
        (2, "zwei drei vier fünf sechs sieben acht neun zehn elf zwölf"),
        (2, "dos tres cuatro cinco seis siete ocho nueve diez"),
        (2, "deux trois quatre cinq six sept huit neuf dix onze douze"),
        (12, "dozen"),
    )
    for value, word in enumerate(words.split(), first)
}  # fmt: skip
_TENS_IN_ORDER = "twenty thirty forty fifty sixty seventy eighty ninety"
_ZEHNER = "zwanzig dreissig vierzig fünfzig sechzig siebzig achtzig neunzig"
_TENS = {word: value * 10 for value, word in enumerate(_TENS_IN_ORDER.split(), 2)}
_SMALL |= {word: value * 10 for value, word in enumerate(_ZEHNER.split(), 2)}
_UNIT, _TEN = "|".join(sorted(_SMALL, key=len, reverse=True)), "|".join(_TENS)
# Of *this one*, *one of them* and *one-way* nobody says how many.
_POINTING = (
    "the this that no any every each which another some last next only other new old right wrong"
    " an de tout est"
)


def _no_number(words: str) -> str:
    return (
        rf"(?!(?:{'|'.join(f'(?<={word} )' for word in _POINTING.split())})(?:{words})\b)"
        rf"(?!(?:{words})\b"
        r"(?! (?!(?:of|that|who|which|with|from|to|in|on|at|by|and|or|is|was|more|day)\b)\w))"
    )


_BELOW_HUNDRED = rf"(?:(?:{_TEN})(?:[ -](?:{_UNIT}))?|{_UNIT})"
_BELOW_THOUSAND = (
    rf"(?:(?:a|{_BELOW_HUNDRED}) hundred(?: (?:and )?{_BELOW_HUNDRED})?|{_BELOW_HUNDRED})"
)
_IN_WORDS = (
    rf"(?>(?:a|{_BELOW_THOUSAND}) thousand(?:,? (?:and )?{_BELOW_THOUSAND})?"
    rf"|{_BELOW_THOUSAND})(?!\w)"
)
_ANY_NUMBER_WORDS = re.compile(
    rf"(?<![\w-]){_no_number('one')}{_IN_WORDS}(?! (?:[mb]illion|point)\b)"
)
# Nor of *zwölf tausend*, *an elf* and *quoi de neuf*.
_NO_PART_BEFORE = r"(?<!hundert )(?<!tausend )(?<!thousand )(?<!million )(?<!millionen )"
_NUMBER_WORDS = re.compile(
    rf"(?<![\w-]){_NO_PART_BEFORE}{_no_number('one|elf|neuf')}{_IN_WORDS}"
    r"(?! (?:hundert|tausend|[mb]illi(?:on|ard)|(?:mil|mille|mio|mrd|tsd|k|grand|point|komma)\b))"
)
_ANY_MONEY = "|".join((_MARK, *(one for one, _ in _MONEY_WORDS)))
_WITH_CENTS = re.compile(
    rf"(?<![\w.,:/'’٬-])(?<!\d ){_NO_PART_BEFORE}(\d{{1,7}}|{_BELOW_THOUSAND}) ?(?:{_ANY_MONEY})"
    rf"(?:(?: (?:and|und|et|y|e|con))? (\d{{1,2}}|{_BELOW_HUNDRED})"
    r" ?(?:cents?|ct|centimes?|c[eé]ntimos?)\b(?! \w+s\b)"
    rf"| (\d\d|{_BELOW_HUNDRED})(?= ?(?:[!?)\n]|\.(?!\d)|$)|,? (?:to|an|für|for|please|bitte)\b))"
)


def _in_words(text: str) -> Decimal:
    """`two hundred and fifty` as a number."""
    whole = part = 0
    for word in re.findall(r"\w+", text):
        if word == "thousand":
            whole, part = (whole + max(part, 1)) * 1_000, 0
        elif word == "hundred":
            part = max(part, 1) * 100
        else:
            part += _SMALL.get(word) or _TENS.get(word, 0)
    return Decimal(whole + part)


# Days, as they are written in the languages in which the desk writes to people.

_MONTHS = {
    name: number
    for names in """
    january february march april may june july august september october november december
    januar februar märz april mai juni juli august september oktober november dezember
    enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre
    janvier février mars avril mai juin juillet août septembre octobre novembre décembre
    jan feb mar apr may jun jul aug sep oct nov dec
    jan feb mrz apr mai jun jul aug sept okt nov dez
    gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre
    janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro
    januari februari maart april mei juni juli augustus september oktober november december
    """.strip().splitlines()
    for number, name in enumerate(names.split(), 1)
}
_MONTH = rf"({'|'.join(sorted(_MONTHS, key=len, reverse=True))})\b\.?"
_DAY = r"(\d{1,2})(?:st|nd|rd|th|er|\.)?"
_YEAR = r"(?:,?(?: de)?[ -]*(\d{4}|\d{2}(?![\w:])))?(?!\d)"
_DAY_MONTH = re.compile(rf"(?<![\w.,/-]){_DAY}(?: of| de)?[ -]*{_MONTH}{_YEAR}")
_MONTH_DAY = re.compile(rf"\b{_MONTH}(?: the)?[ -]*{_DAY}(?![\d:]){_YEAR}")
_BETWEEN = (
    r"(?: ?[-–/] ?| (?:to|and|until|till|through|bis|und|au|et|al|y|hasta|e) )"
    r"(?:the |el |le |zum )?"
)
_DAYS_MONTH = re.compile(rf"(?<![\w.,/-]){_DAY}{_BETWEEN}{_DAY}(?: of| de)?[ -]*{_MONTH}{_YEAR}")
_MONTH_DAYS = re.compile(rf"\b{_MONTH}(?: the)?[ -]*{_DAY}{_BETWEEN}{_DAY}(?![\d:]){_YEAR}")
_DAYS_NUMBERS = re.compile(
    rf"(?<![\w.,/:-])(\d{{1,2}})\.{_BETWEEN}(\d{{1,2}})\.(\d{{1,2}})\.(\d{{4}}|\d{{2}})?(?![\d/-])"
)
_YEAR_FIRST = re.compile(r"(?<![\w./-])(\d{4})([./-]?)(\d{2})\2(\d{2})(?![\d/-])")
_YEAR_LAST = re.compile(r"(?<![\w./-])(\d{1,2})([./-])(\d{1,2})\2(\d{4}|\d{2})?(?![\d/-])")
_WITHOUT_YEAR = re.compile(r"(?<![\w./-])(\d{1,2})/(\d{1,2})(?![\d/.-])")
_EAST_ASIAN = re.compile(r"(?:(\d{4}) ?年 ?)?(\d{1,2}) ?月 ?(\d{1,2}) ?日")
_MOMENT = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[t ].*)?")


def _days(text: str, today: date | None, *, may_hide: bool = False) -> Iterator[date]:
    """Each day of the text; 3/4/2026 is one of March and one of April."""
    written = list(_written_days(text, today))
    yield from written
    if today is not None:
        yield from _relative(text, today, {one.weekday() for one in written}, may_hide=may_hide)
        for after, first, day, nights in dict.fromkeys(_STAY.findall(text)):
            stay = timedelta(days=_count(after or nights))
            with suppress(OverflowError):
                yield from [one + stay for one in _written_days(first or day, today)]


def _written_days(text: str, today: date | None) -> Iterator[date]:
    named = [(day, month, year) for month, day, year in _MONTH_DAY.findall(text)]
    ranges = [(*days, month, year) for month, *days, year in _MONTH_DAYS.findall(text)]
    for first, last, month, year in [*_DAYS_MONTH.findall(text), *ranges]:
        named += [(first, month, year), (last, month, year)]
    for day, month, year in [*_DAY_MONTH.findall(text), *named]:
        yield from _of_year(year, _MONTHS[month], int(day), today)
        if len(year) == len("26"):  # or what comes behind the day is no year
            yield from _of_year("", _MONTHS[month], int(day), today)
    for year, month, day in _EAST_ASIAN.findall(text):
        yield from _of_year(year, int(month), int(day), today)
    for year, _, month, day in _YEAR_FIRST.findall(text):
        yield from _of_year(year, int(month), int(day), today)
    for day, _, month, year in _DAYS_NUMBERS.findall(text):
        yield from _of_year(year, int(month), int(day), today)
    both = [(one, other, year) for one, _, other, year in _YEAR_LAST.findall(text)]
    both += [(one, other, "") for one, other in _WITHOUT_YEAR.findall(text)]
    for one, other, year in both:
        yield from _of_year(year, int(other), int(one), today)
        yield from _of_year(year, int(one), int(other), today)


def _of_year(year: str, month: int, day: int, today: date | None) -> Iterator[date]:
    """The day, of this century where the year has two digits; without one, those around today."""
    years: Iterable[int] = [int(year) + (len(year) == len("26")) * 2000] if year else []
    if not year and today is not None:
        years = (today.year - 1, today.year, today.year + 1)
    for one in years:
        with suppress(ValueError):
            found = date(one, month, day)
            if year or (today is not None and abs(found - today) < YEAR):
                yield found


# Days by their distance from today, by the database's clock in UTC.

_NEAR = {
    "today": 0, "tonight": 0, "heute": 0, "hoy": 0, "aujourd'hui": 0,
    "day after tomorrow": 2, "übermorgen": 2, "pasado mañana": 2, "après-demain": 2,
    "tomorrow": 1, "morgen": 1, "mañana": 1, "demain": 1,
    "day before yesterday": -2, "yesterday": -1, "gestern": -1, "ayer": -1,
}  # fmt: skip
_OF_DAYS = {
    "morgen": {"guten", "goede", "am", "heute", "gestern", "jeden", "diesen"},
    "mañana": {"la", "esta"},
}
"""Words before a name of the day to come, behind which it is a part of any day."""
_NEAR_DAY = re.compile(rf"\b(?:{'|'.join(_NEAR)})\b")
_COUNT = rf"(\d{{1,2}}|{_BELOW_HUNDRED}|ein(?:em|er)?|una?|une|a)"
_AHEAD = re.compile(  # not *once in a week*
    rf"(?<!once )(?<!twice )(?<!times )(?<!mal )\b(?:in|en|dans) {_COUNT}"
    r" (?:(days?|tag(?:en?)?|d[ií]as?|jours?)|weeks?|wochen?|semanas?|semaines?)"
    r"(?![\w'’-]| (?:ago|of|hábiles)\b)"
)
_DENIED = re.compile(  # *no reply in 3 days* is of those that are over
    r"(?:\b(?:no|not|nothing|nobody|never|without|kein\w*|nicht|nichts|niemand|pas|rien|sin|nada)"
    r"|n['’]t)\b[^,;:.!?\n]*$"
)
_NIGHTS = rf"(?<![\w-]){_COUNT} (?:nights?|nächten?|nacht|noches?|nuits?)\b"
_ONE_DAY = (
    rf"(\d{{4}}-\d\d-\d\d\b|\d{{1,2}}[./]\d{{1,2}}[./](?:\d{{2,4}}\b)?"
    rf"|(?:{_MONTH} )?\d{{1,2}}(?:st|nd|rd|th|\.)?\b(?: (?:of )?{_MONTH})?(?:,? \d{{4}}\b)?)"
).replace(_MONTH, _MONTH.replace("(", "(?:"))
_STAY = re.compile(
    rf"{_NIGHTS} (?:from|starting|ab|vom|von|desde|del|à partir du|du)(?: on)?(?: the)? {_ONE_DAY}"
    rf"|(?<![\w.,/-]){_ONE_DAY},?(?: \(?(?:for |für |por |pour )?)(?:{_NIGHTS})"
)
_NEXT_WEEK = r"(?:next week|(?:nächste|kommende)[rn]? woche|próxima semana|semaine prochaine)"
_GOES_ON = (  # not of *at 10, 20 and 30 percent*
    r"(?!,? (?:(?:and|und|or|oder) )?\d)"
    r"(?= ?(?:[,;:.!?)\n]|$)| (?:at|from|with|for|and|in the|on|um|ab|mit|für|o'clock|sharp)\b)"
)
_OF_MONTH = re.compile(  # not *on the 5th and 6th of May*, or of a floor
    r"\b(?:(?:on|by|until|from) the (\d{1,2})(?:st|nd|rd|th)|(?:am|zum|vom) (\d{1,2})\.)"
    r"(?=\s*$|[!?)\n]|[.;](?! ?\w)|,? (?:at|from|please|um|ab|bitte)\b)"
)
_WEEKDAYS = {
    name: number
    for names in (
        "monday tuesday wednesday thursday friday saturday sunday",
        "montag dienstag mittwoch donnerstag freitag samstag sonntag",
        "lunes martes miércoles jueves viernes sábado domingo",
        "lundi mardi mercredi jeudi vendredi samedi dimanche",
    )
    for number, name in enumerate(names.split())
}
_PAST = r"last |past |previous |letzte[nr]? |vergangene[nr]? "
_NEXT = r"next |nächste[nr]? |kommende[nr]? |próximo "
_WEEKDAY = re.compile(
    # Not of a day that is written out.
    rf"({_PAST})?({_NEXT})?\b({'|'.join(_WEEKDAYS)})\b"
    r"(?!,? (?:the |den |dem |le |el )?\d{1,2}(?![\d:]| ?(?:[ap]\.?m|uhr\b|h\b|o'clock)))"
    r"( prochain)?( pasado| dernier)?"
)
_OF_NEXT_WEEK = re.compile(
    rf"\b(?:({'|'.join(_WEEKDAYS)}),?(?: of| in| der| de la)? {_NEXT_WEEK}"
    rf"|{_NEXT_WEEK},?(?: on| am| el| le)? ({'|'.join(_WEEKDAYS)}))\b"
)


def _relative(
    seen: str, today: date, written: Collection[int], *, may_hide: bool
) -> Iterator[date]:
    """`tomorrow`, and `on Friday`: the one to come; `next Friday` also the one after it, and `last
    Friday` the one before. `written` are the weekdays of days that are written out, for of these
    it may be the name.
    """
    for near in _NEAR_DAY.finditer(seen):
        before = seen[max(0, near.start() - _LOOK_BACK) : near.start()].split()[-1:]
        if may_hide or not before or before[0] not in _OF_DAYS.get(near[0], ()):
            yield today + timedelta(days=_NEAR[near[0]])
    for ahead in _AHEAD.finditer(seen):
        if may_hide or not _DENIED.search(seen, max(0, ahead.start() - _LOOK_BACK), ahead.start()):
            yield today + timedelta(days=_count(ahead[1]) * (1 if ahead[2] else WEEK_DAYS))
    for number in _OF_MONTH.findall(seen):
        yield from _to_come(int(number[0] or number[1]), today)
    week = today + timedelta(days=WEEK_DAYS - today.weekday())
    for name in map("".join, _OF_NEXT_WEEK.findall(seen)):  # it begins on Sunday, or ends on it
        yield week + timedelta(days=_WEEKDAYS[name] + WEEK_DAYS * (today.weekday() == SUNDAY))
        yield week + timedelta(days=_WEEKDAYS[name])
    for past, before, name, behind, gone in _WEEKDAY.findall(seen):
        if _WEEKDAYS[name] in written:
            continue
        days = (_WEEKDAYS[name] - today.weekday()) % WEEK_DAYS
        if past or gone:
            yield today + timedelta(days=days - WEEK_DAYS)
            continue
        yield today + timedelta(days=days)
        if before or behind or not days:
            yield today + timedelta(days=days + WEEK_DAYS)


def _to_come(day: int, today: date) -> Iterator[date]:
    """The next day of this number, of this month or of the one after it."""
    later = today.replace(day=1) + timedelta(days=31)
    for month in (today, later):
        with suppress(ValueError):
            if (found := month.replace(day=day)) >= today:
                yield found
                return


def _count(text: str) -> int:
    return int(text) if text.isdecimal() else int(_in_words(text)) or 1


# Times of a day.

_CLOCK = re.compile(
    rf"(?<![\w.,:/{''.join(_SIGNS)}-])(\d{{1,2}})(?:([:.h])(\d{{2}}))?(?::00)?"
    rf" ?(am|pm|a\.m\.|p\.m\.|uhr|h|o'clock)?(?![\w/:-]|\.\d| ?{_MARK}(?![^\W\d_]))"
)
# Behind these a number alone is an hour, and before them or a day of the week *8h* no duration.
_AT = r"at|um|gegen|around|à|vers|las|às"
_IS_AT = re.compile(rf"(?:^|\W)(?:{_AT}) $")
_PRICED = re.compile(  # *shares at 10* is no time
    rf"\b(?:shares?|stocks?|bonds?|units?|priced?|capped|aktien?|anteile?|acciones|actions)"
    rf" (?:(?:{_AT}) )?$"
)
_DAY_NAMES = "|".join((*_NEAR, *_WEEKDAYS))
_MAY_BE = rf"(?:^|\W)(?:{_AT}|dès|entre|ab|bis|by|from|until|before|after|{_DAY_NAMES}),? "
_MAY_BE_AT = re.compile(rf"{_MAY_BE}$")
_BEHIND = re.compile(_GOES_ON)
_HOW_LONG = re.compile(r" (?:of|de|d'|lang|work|arbeit)\b")
_PARTS_OF_HOUR = {
    "half past": 30, "quarter past": 15, "quarter to": -15, "halb": -30, "viertel nach": 15,
    "viertel vor": -15,
}  # fmt: skip
_HOUR_IN_WORDS = re.compile(
    rf"\b(?:({'|'.join(_PARTS_OF_HOUR)}) ({_UNIT}|\d{{1,2}})\b(?![:.]\d| (?:hundred|thousand)\b)"
    rf"|(?:{_AT}) ({_UNIT}){_GOES_ON})"
)
_NAMED_HOURS = {"noon": 12, "midday": 12, "mittags": 12, "midnight": 0, "mitternacht": 0}
_NAMED_HOUR = re.compile(rf"\b({'|'.join(_NAMED_HOURS)})\b")
_AT_NAMED_HOUR = re.compile(rf"(?:{_MAY_BE}|\b(?=mittags)){_NAMED_HOUR.pattern}{_GOES_ON}")


def _times(text: str, *, may_hide: bool = False) -> Iterator[tuple[int, int]]:
    """Each hour and minute; one up to twelve that does not say which half of the day, both."""
    for found in _CLOCK.finditer(text):
        hour, apart, minute, sign = found.groups("")
        before = text[max(0, found.start() - _LOOK_BACK) : found.start()]
        is_h = "h" in (apart, sign) and not may_hide
        if is_h and not (_MAY_BE_AT.search(before) and not _HOW_LONG.match(text, found.end())):
            continue
        is_at = _IS_AT.search(before) and (may_hide or not _PRICED.search(before))
        if not (minute or sign or (is_at and _BEHIND.match(text, found.end()))):
            continue
        if sign[:1] in {"a", "p"}:
            yield int(hour) % HALF_DAY_HOURS + HALF_DAY_HOURS * (sign[:1] == "p"), int(minute or 0)
        else:
            yield from _both_halves(int(hour) * 60 + int(minute or 0))
    for found in _HOUR_IN_WORDS.finditer(text):
        part, of, alone = found.groups("")
        if may_hide or not _PRICED.search(text, max(0, found.start() - _LOOK_BACK), found.start()):
            yield from _both_halves(_count(of or alone) * 60 + _PARTS_OF_HOUR.get(part, 0))
    named = _NAMED_HOUR if may_hide else _AT_NAMED_HOUR
    yield from ((_NAMED_HOURS[one], 0) for one in named.findall(text))


def _both_halves(minutes: int) -> Iterator[tuple[int, int]]:
    """The time, and what it is in the afternoon where it may be of the morning."""
    yield divmod(minutes, 60)
    if minutes < HALF_DAY_HOURS * 60:
        yield divmod(minutes + HALF_DAY_HOURS * 60, 60)
