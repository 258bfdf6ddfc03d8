"""The query language of the queue: text in, a tree out, or the place of the first mistake.

    query  = either
    either = all { "OR" all }
    all    = term { term }
    term   = [ "-" ] ( "(" either ")" | key ":" value { "," value } | word | '"' text '"' )

Nothing here knows of tables: `keys` says which keys there are, and makes conditions of the tree.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from difflib import get_close_matches

QUERY_CHARACTERS_MAX = 1000
TERMS_MAX = 50
VALUES_MAX = 50
DEPTH_MAX = 8
STARS_MAX = 6
AGE = re.compile(r"([<>]?)(\d{1,5})(m|h|d|w)")
UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class QueryError(ValueError):
    """We stopped because the query cannot be read; `position` counts characters from 0."""

    def __init__(self, message: str, position: int, length: int = 1, *, instead: str = "") -> None:
        """`instead` is what was probably meant at that place."""
        super().__init__(message)
        self.instead = instead
        self.message = message
        self.position = position
        self.length = max(length, 1)


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a key, read as what the key asks for; each way of it raises QueryError."""

    text: str
    position: int
    quoted: bool = False

    def wrong(self, words: str) -> QueryError:
        """The mistake that this value is, at its place."""
        return QueryError(words, self.position, len(self.text))

    def not_among(self, known: Iterable[str]) -> QueryError:
        return self.wrong(f"“{self.text}” is none of: {', '.join(known)}.")

    def signed(self) -> tuple[str, str]:
        """`<` or `>` if it begins with one, and what follows."""
        sign = self.text[0] if self.text[:1] in {"<", ">"} else ""
        return sign, self.text.removeprefix(sign)

    def pattern(self) -> str:
        """Each `*` multiplies the work of a match: three hundred took seconds over ten rows."""
        parts = re.split(r"\*+", self.text)
        if len(parts) > STARS_MAX + 1:
            raise self.wrong(f"At most {STARS_MAX} times “*” in one value.")
        return "^" + ".*".join(re.escape(part) for part in parts) + "$"

    def ago(self, now: datetime) -> tuple[str, datetime]:
        """What `<24h` or `>7d` means of a time: the comparison and the moment, reckoned in UTC. The
        clocks of a zone go forward and back.
        """
        found = AGE.fullmatch(self.text.lower())
        if not found:
            raise self.wrong("An age is written like <24h, >30m, <7d or <2w.")
        moment = now.astimezone(UTC) - timedelta(**{UNITS[found[3]]: int(found[2])})
        return ("lt" if found[1] == ">" else "gt"), moment

    def bounds(self, now: datetime) -> dict[str, datetime]:
        """From when and until when, by the name of the comparison: an age, or a day of the zone
        in which `now` is told.
        """
        if AGE.fullmatch(self.text.lower()):
            return dict([self.ago(now)])
        sign, text = self.signed()
        try:
            day = datetime.combine(date.fromisoformat(text), time.min, now.tzinfo)
            after = day + timedelta(days=1)
        except (ValueError, OverflowError):
            raise self.wrong("A day is written like 2026-11-21.") from None
        if sign:
            return {"lt" if sign == "<" else "gte": day}
        return {"gte": day, "lt": after}


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """`key:value,value`: one of the values has to fit."""

    key: str
    values: tuple[Value, ...]
    position: int
    length: int


@dataclass(frozen=True, slots=True)
class TextTerm:
    """A word or a quoted phrase to be found in what the case says."""

    text: str
    position: int
    length: int
    phrase: bool = False


@dataclass(frozen=True, slots=True)
class Not:
    part: Node


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Node, ...]


Node = FieldTerm | TextTerm | Not | And | Or


PATTERNS_ASK_ANOTHER = frozenset({"tool", "run"})
"""Keys whose patterns ask something else than their values."""


def asks_only(node: Node, keys: Collection[str], words: Collection[str] = ()) -> bool:
    """Whether all of it is asked by these keys, or by these words of `is:`."""
    match node:
        case And(parts) | Or(parts):
            return all(asks_only(one, keys, words) for one in parts)
        case Not(part):
            return asks_only(part, keys, words)
        case FieldTerm("is", values):
            return all(one.text.lower() in words for one in values)
        case FieldTerm(key, values) if key in PATTERNS_ASK_ANOTHER:
            return key in keys and all("*" in one.text for one in values)
        case _:
            return isinstance(node, FieldTerm) and node.key in keys


@dataclass(frozen=True, slots=True)
class Query:
    """A query that was read: the text as given, and its tree (None: everything)."""

    text: str
    tree: Node | None = None
    terms: tuple[FieldTerm | TextTerm, ...] = field(default=())

    @property
    def has_text(self) -> bool:
        return any(isinstance(term, TextTerm) for term in self.terms)

    def without(self, term: FieldTerm | TextTerm) -> str:
        """The text with one term taken out, for an empty result that offers to drop each part."""
        start = term.position
        if start and self.text[start - 1] == "-":
            start -= 1
        return " ".join((self.text[:start] + self.text[term.position + term.length :]).split())


@dataclass(frozen=True, slots=True)
class Token:
    kind: str  # ( ) - or text field end
    position: int
    length: int
    text: str = ""
    key: str = ""
    values: tuple[Value, ...] = ()


_KEY = re.compile(r"([A-Za-z_]+):")
_BARE = re.compile(r'[^\s,()"]+')
_WORD = re.compile(r'[^\s()"]+')


def read(text: str, keys: Collection[str]) -> Query:
    """A query over these keys; raises QueryError. Nothing or blanks is the query for everything."""
    if len(text) > QUERY_CHARACTERS_MAX:
        raise QueryError(
            f"A query has at most {QUERY_CHARACTERS_MAX} characters.", QUERY_CHARACTERS_MAX
        )
    text = text.replace("\0", " ")
    tokens = [*_tokens(text, keys), Token("end", len(text), 1)]
    terms = [token for token in tokens if token.kind in {"text", "field", "phrase"}]
    if len(terms) > TERMS_MAX:
        raise QueryError(f"A query has at most {TERMS_MAX} terms.", terms[TERMS_MAX].position)
    if len(tokens) == 1:
        return Query(text)
    reader = _Reader(tokens)
    tree = reader.either(0)
    reader.expect("end", "There is a bracket too many.")
    return Query(text, tree, tuple(reader.terms))


def _tokens(text: str, keys: Collection[str]) -> Iterator[Token]:
    place = 0
    while place < len(text):
        character = text[place]
        if character.isspace():
            place += 1
        elif character in "()":
            yield Token(character, place, 1)
            place += 1
        elif character == "-" and place + 1 < len(text) and not text[place + 1].isspace():
            yield Token("-", place, 1)
            place += 1
        elif character == '"':
            value, after = _quoted(text, place)
            yield Token("phrase", place, after - place, value.text)
            place = after
        else:
            token = _field_or_word(text, place, keys)
            yield token
            place += token.length


def _field_or_word(text: str, place: int, keys: Collection[str]) -> Token:
    key = _KEY.match(text, place)
    if key and key[1].lower() in keys:
        values, after = _values(text, key.end(), place)
        return Token("field", place, after - place, key=key[1].lower(), values=values)
    found = _WORD.match(text, place)
    word = found[0] if found else text[place]
    if key and not word.startswith(("http:", "https:")):
        [near] = get_close_matches(key[1].lower(), sorted(keys), 1) or [""]
        meant = f" Did you mean “{near}:”?" if near else ""
        raise QueryError(
            f"There is no key “{key[1]}”.{meant} Put the words in quotes to search for them.",
            place,
            len(key[1]),
            instead=near,
        )
    return Token("or" if word == "OR" else "text", place, len(word), word)


def _values(text: str, place: int, start: int) -> tuple[tuple[Value, ...], int]:
    values: list[Value] = []
    while True:
        if place < len(text) and text[place] == '"':
            value, place = _quoted(text, place)
        else:
            found = _BARE.match(text, place)
            if not found:
                raise QueryError("A value is missing here.", min(place, len(text)))
            value, place = Value(found[0], place), found.end()
        values.append(value)
        if len(values) > VALUES_MAX:
            raise QueryError(f"A key takes at most {VALUES_MAX} values.", start, place - start)
        if place >= len(text) or text[place] != ",":
            return tuple(values), place
        place += 1


def _quoted(text: str, place: int) -> tuple[Value, int]:
    end = text.find('"', place + 1)
    if end < 0:
        raise QueryError("This quotation mark is never closed.", place, len(text) - place)
    return Value(text[place + 1 : end], place, quoted=True), end + 1


class _Reader:
    """Reads tokens by recursive descent, one method for each line of the grammar."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.place = 0
        self.terms: list[FieldTerm | TextTerm] = []

    @property
    def now(self) -> Token:
        return self.tokens[self.place]

    def expect(self, kind: str, message: str) -> Token:
        token = self.now
        if token.kind != kind:
            raise QueryError(message, token.position, token.length)
        self.place += 1
        return token

    def either(self, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise QueryError(f"Brackets go at most {DEPTH_MAX} deep.", self.now.position)
        parts = [self.all(depth)]
        while self.now.kind == "or":
            self.place += 1
            parts.append(self.all(depth))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def all(self, depth: int) -> Node:
        parts = [self.term(depth)]
        while self.now.kind not in {"or", ")", "end"}:
            parts.append(self.term(depth))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def term(self, depth: int) -> Node:
        token = self.now
        self.place += 1
        if token.kind == "-":
            if self.now.kind in {"-", "or"}:
                raise QueryError("What should be left out is missing here.", self.now.position)
            return Not(self.term(depth))
        if token.kind == "(":
            inner = self.either(depth + 1)
            self.expect(")", "A closing bracket is missing.")
            return inner
        if token.kind == "field":
            return self.kept(FieldTerm(token.key, token.values, token.position, token.length))
        if token.kind in {"text", "phrase"}:
            phrase = token.kind == "phrase"
            return self.kept(TextTerm(token.text, token.position, token.length, phrase))
        raise QueryError("A term is missing here.", token.position, token.length)

    def kept(self, term: FieldTerm | TextTerm) -> Node:
        self.terms.append(term)
        return term
