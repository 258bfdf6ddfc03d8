"""What conditions ask about a run: its request, and what was said and done in it (gathering.py)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from html import unescape
from operator import itemgetter
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from amends.protocol.lookalikes import plain
from amends.protocol.masking import MaskingKey, kind_of
from approvals import memory
from approvals.card_context import targets_of
from approvals.gate.begin_context import Gathered, ScalarQuery
from approvals.policy import UNKNOWN, Lookup, LookupResult
from approvals.policy.document import mistake, posix
from approvals.policy.spelling import (
    TEXT_CHARACTERS_MAX,
    ReadText,
    as_one,
    as_seen,
    leaves,
    names_in,
    pointers_in,
    stands_in,
)
from approvals.tallies import value_of
from workspaces import formatting
from workspaces.erasure_registry import ERASED
from workspaces.lookalikes import shown

REJECTIONS_MAX = 200
"""Of a run's rejected approvals so many, the newest, are compared with the call."""
WORDS_MAX = 50
SPELLED_CHARACTERS_MAX = 4_000
_json = msgspec.json.Encoder()


# The request of the run, and what people wrote since.

REQUEST = f"SELECT left(r.request, {TEXT_CHARACTERS_MAX + 1}) FROM ledger_run r WHERE r.id = %b"  # noqa: S608
GOAL = f"SELECT left(r.goal, {TEXT_CHARACTERS_MAX + 1}) FROM ledger_run r WHERE r.id = %b"  # noqa: S608

# The request, and with it what people said with a yes, and what the affected person said.
WRITTEN = f"""
SELECT left(concat_ws(E'\\n',
    CASE WHEN 'disagree:request' = ANY(r.flags) THEN '' ELSE r.request END,
    (SELECT string_agg(said.words, E'\\n') FROM (
        SELECT d.reason AS words FROM approvals_approval p
        JOIN approvals_decision d ON d.approval_id = p.id AND d.granted
        WHERE p.workspace_id = r.workspace_id AND p.run_ref = r.run AND p.run_ref <> ''
        UNION ALL
        SELECT w.note FROM approvals_approval p
        JOIN approvals_wish w ON w.approval_id = p.id AND w.answer = 'yes'
        WHERE p.workspace_id = r.workspace_id AND p.run_ref = r.run AND p.run_ref <> ''
        LIMIT {WORDS_MAX}) said)), {TEXT_CHARACTERS_MAX + 1})
FROM ledger_run r WHERE r.id = %b"""  # noqa: S608 - our own words
NOT_ON_RECORD = "What the agent was asked for is not on record"


def request_or_goal(
    lookup: Lookup, gathered: Gathered, facts: Mapping[str, Any]
) -> ScalarQuery | LookupResult:
    if gathered.context.run is None or gathered.disagrees(lookup.function):
        return LookupResult(UNKNOWN, NOT_ON_RECORD)
    sql = GOAL if lookup.function == "goal" else REQUEST

    def read(text: str | None) -> LookupResult:
        told = bool(text) and len(text or "") <= TEXT_CHARACTERS_MAX
        return LookupResult(text if told else UNKNOWN, "" if told else NOT_ON_RECORD)

    return ScalarQuery(sql, [gathered.context.run.id], read)


def on_behalf_of(lookup: Lookup, gathered: Gathered, facts: Mapping[str, Any]) -> LookupResult:
    run = gathered.context.run
    person = run.on_behalf_of if run else None
    if person is None or gathered.disagrees("on_behalf_of"):
        return LookupResult(UNKNOWN, "On whose behalf the run acts is not on record")
    return LookupResult(person, "")


def mentioned(
    lookup: Lookup, gathered: Gathered, facts: Mapping[str, Any]
) -> ScalarQuery | LookupResult:
    value = value_of(lookup, facts)
    if value is UNKNOWN or gathered.context.run is None:
        return LookupResult(UNKNOWN, f"Whether {lookup.subject} was asked for cannot be told")

    def read(text: str | None) -> LookupResult:
        key, today = gathered.request.actor.masking_key, gathered.context.now.date()
        found = stands_in(value, text or "", key, today)
        if found is None:
            return LookupResult(UNKNOWN, f"Whether {lookup.subject} was asked for cannot be told")
        stands = "stands" if found else "does not stand"
        return LookupResult(found, f"{lookup.subject} {stands} in what the agent was asked for")

    return ScalarQuery(WRITTEN, [gathered.context.run.id], read)


# After a no: whether people rejected or took back, in this run, a call on one of the same targets
# or with the same arguments, whichever tool it was and however they are spelled; long arguments
# have to be the same to the letter.

REJECTED = f"""
SELECT json_agg(json_build_array(coalesce(no.decided_at, no.asked_at)::text, no.targets,
    no.args = %b::jsonb OR no.asked = %b::jsonb OR (no.tool = %b AND no.is_bare),
    CASE WHEN length(no.args::text) <= {SPELLED_CHARACTERS_MAX} THEN no.args END,
    CASE WHEN length(no.asked::text) <= {SPELLED_CHARACTERS_MAX} THEN no.asked END) ORDER BY no.id)
FROM (
    SELECT p.id, p.decided_at, p.asked_at, p.targets, p.calls -> 0 -> 'args' AS args,
        p.calls -> 0 -> 'more' -> 'asked' -> 'args' AS asked, p.calls -> 0 ->> 'operation' AS tool,
        cardinality(p.targets) = 0
            AND coalesce(p.calls -> 0 -> 'args', 'null') IN ('null', '{{}}', '[]') AS is_bare
    FROM approvals_approval p WHERE p.workspace_id = %b AND p.run_ref = %b AND p.run_ref <> ''
        AND p.subject_kind = 'action' AND (p.state = 'rejected'
            OR (p.state = 'withdrawn' AND p.closed_by_id IS NOT NULL))
    ORDER BY p.id DESC LIMIT {REJECTIONS_MAX}) no"""  # noqa: S608 - our own words


def _as_one(value: Any) -> Any:
    """A value with its texts in the one form of all their spellings."""
    if isinstance(value, dict):
        return {name: _as_one(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_as_one(inner) for inner in value]
    return as_one(value) if isinstance(value, str) else value


def rejected_before(lookup: Lookup, gathered: Gathered, facts: Mapping[str, Any]) -> ScalarQuery:
    args = gathered.request.data.get("args")
    said = _json.encode(args).decode() if args else None
    targets = set(_as_one(targets_of([{"targets": list(gathered.request.targets)}])))
    own = _as_one(args) or None
    bare = None if args or targets else gathered.request.tool  # then the tool is all that it says

    def read(rejections: Sequence[Sequence[Any]] | None) -> LookupResult:
        found = [
            when
            for when, on, is_same, *calls in rejections or ()
            if is_same or targets & set(_as_one(on)) or (own and own in map(_as_one, calls))
        ]
        when = found[-1] if found else None
        words = (
            f"People said no in this run at {when[:16]} UTC, to a call on the same target or with"
            " the same arguments" if when else ""
        )  # fmt: skip
        return LookupResult(when is not None, words)

    run = gathered.request.planned.run
    here = gathered.request.actor.workspace_id
    return ScalarQuery(REJECTED, [said, said, bare, here, run], read)


# What was called before in this run, and what of it was read that strangers wrote.

CALLS_MAX = 1_000
"""Of a run's calls so many, the newest, are looked through."""
MORE_CALLS = f"This run has made more than {CALLS_MAX:,} calls, or told of one as of two tools"
TAINTED_MAX = 50
"""So many values of a call are looked for in what strangers wrote: each takes a while."""
RESULTS_MAX = 20
RESULT_CHARACTERS_MAX = 60_000
EARLIER_MAX = 200
"""Of a run's calls so many, the newest, are asked whether they had the value before a reading."""
_CALLS = """
FROM (SELECT b.tool, b.state, b.key, b.result, b.flags, b.args, b.args_digest, b.targets,
        b.fence, b.verified, b.compensated, b.first_place, b.last_place
    FROM ledger_action b WHERE b.run_id = %b
    ORDER BY b.n DESC, b.first_place DESC LIMIT %b) a"""
_COUNT = f"""CASE WHEN bool_or('disagree:tool' = ANY(a.flags)) THEN {CALLS_MAX + 1}
    ELSE count(*) END"""
_EARLIER = "a.key <> %b AND a.state NOT IN ('planned', 'approved') AND a.tool ~ %b"
CALLED = f"""
SELECT json_build_array(count(*) FILTER (WHERE {_EARLIER}), {_COUNT}) {_CALLS}"""
READ = f"""
SELECT json_build_array(json_agg(DISTINCT a.tool) FILTER (WHERE {_EARLIER}), {_COUNT})
{_CALLS}"""
RESULTS = f"""
SELECT json_build_array(({WRITTEN}), (SELECT json_agg(json_build_array(u.tool, u.result)) FROM (
    SELECT a.tool, CASE WHEN length(a.result::text) <= {RESULT_CHARACTERS_MAX} THEN a.result END
        AS result
    {_CALLS} WHERE {_EARLIER} LIMIT {RESULTS_MAX + 1}) u),
    (SELECT {_COUNT} {_CALLS}))"""  # noqa: S608 - our own words
_AGAIN = ",".join(memory.TOLD_AGAIN)
READINGS = f"""
SELECT json_build_array(CASE WHEN %b THEN ({WRITTEN}) END,
    (SELECT json_agg(json_build_array(u.tool, u.place, u.result)) FROM (
    SELECT a.tool, coalesce(a.last_place, {2**63 - 1}) AS place, CASE
        WHEN a.flags && '{{{_AGAIN},disagree:result}}' THEN NULL
        WHEN length(a.result::text) <= {RESULT_CHARACTERS_MAX} THEN a.result END AS result
    {_CALLS} WHERE {_EARLIER} AND a.fence > 0 AND {memory.GOOD} LIMIT {RESULTS_MAX + 1}) u),
    (SELECT json_agg(json_build_array(o.first_place, o.said)) FROM (
    SELECT a.first_place, CASE WHEN length(a.args::text) > {RESULT_CHARACTERS_MAX}
        OR length(a.targets::text) > {RESULT_CHARACTERS_MAX}
        OR a.flags && '{{{_AGAIN},args_missing}}' OR a.args_digest = '{ERASED}' THEN NULL
        ELSE json_build_array(a.args, a.targets) END AS said
    {_CALLS} LIMIT {EARLIER_MAX + 1}) o),
    (SELECT {_COUNT} {_CALLS}))"""  # noqa: S608 - our own words


def called(
    lookup: Lookup, gathered: Gathered, facts: Mapping[str, Any]
) -> ScalarQuery | LookupResult:
    glob = value_of(lookup, facts)
    if not isinstance(glob, str) or mistake(glob):
        return LookupResult(UNKNOWN, f"{lookup.source} names no tool")
    if gathered.context.run is None:
        return LookupResult(0, f"No call of {glob} came before in this run")

    def read(row: Sequence[int]) -> LookupResult:
        times, seen = row
        if seen > CALLS_MAX:
            return LookupResult(UNKNOWN, MORE_CALLS)
        came = f"{times} call{'s' * (times != 1)} of {glob}" if times else f"No call of {glob}"
        return LookupResult(times, f"{came} came before in this run")

    key, run = gathered.request.key, gathered.context.run.id
    return ScalarQuery(CALLED, [key, posix((glob,)), run, CALLS_MAX + 1], read)


def read_untrusted(
    lookup: Lookup, gathered: Gathered, facts: Mapping[str, Any]
) -> ScalarQuery | LookupResult:
    policy, run = gathered.policy, gathered.context.run
    if not policy.untrusted_globs or run is None:
        return LookupResult(value=False)

    def read(row: Sequence[Any]) -> LookupResult:
        tools, seen = row
        found = sorted(filter(policy.is_untrusted, tools or ()))
        if not found and seen > CALLS_MAX:
            return LookupResult(UNKNOWN, MORE_CALLS)
        names = ", ".join(map(formatting.named, found[:3]))
        return LookupResult(
            bool(found), f"This run has read what strangers wrote, by {names}" * bool(found)
        )

    globs = posix(policy.untrusted_globs)
    return ScalarQuery(READ, [gathered.request.key, globs, run.id, CALLS_MAX + 1], read)


def tainted(
    lookup: Lookup, gathered: Gathered, facts: Mapping[str, Any]
) -> ScalarQuery | LookupResult:
    """By value: whether a part of it, or where it leads to, stands in what strangers wrote and not
    in the request.
    """
    value, run, policy = value_of(lookup, facts), gathered.context.run, gathered.policy
    cannot = LookupResult(UNKNOWN, f"Where {lookup.subject} comes from cannot be told")
    if value is UNKNOWN:
        return cannot
    parts = [*leaves(value)]
    parts += dict.fromkeys(to for one in parts[:TAINTED_MAX] for to in pointers_in(one))
    if not policy.untrusted_globs or run is None:
        return LookupResult(value=False)

    def read(row: Sequence[Any]) -> LookupResult:
        written, results, calls = row
        seen = [result for tool, result in results or () if policy.is_untrusted(tool)]
        if not seen:
            is_told = calls <= CALLS_MAX and len(results or ()) <= RESULTS_MAX
            return LookupResult(value=False) if is_told else cannot
        if len(parts) > TAINTED_MAX or any(len(str(one)) > TEXT_CHARACTERS_MAX for one in parts):
            return cannot
        key, today = gathered.request.actor.masking_key, gathered.context.now.date()
        names = dict.fromkeys(name for result in seen for name in names_in(result))
        values = (str(one) for result in seen for one in leaves(result))
        text = as_seen("\n".join([*values, *names]))
        asked_for, theirs = (
            ReadText(written or "", key, today),
            ReadText(text, key, today, may_hide=True),
        )
        others = [one for one in parts if not asked_for.holds(one)]
        answers = [theirs.holds(as_seen(one) if isinstance(one, str) else one) for one in others]
        if any(answers):
            words = f"{lookup.subject} stands in what strangers wrote, and was not asked for"
            return LookupResult(value=True, say=words)
        if None in answers or None in seen or len(results) > RESULTS_MAX or calls > CALLS_MAX:
            return cannot
        return LookupResult(value=False, say=f"{lookup.subject} comes from nothing that was read")

    earlier = [run.id, CALLS_MAX + 1, gathered.request.key, posix(policy.untrusted_globs)]
    return ScalarQuery(RESULTS, [run.id, *earlier, run.id, CALLS_MAX + 1], read)


# What was looked up: read out of a system that the policy trusts, before the agent said it.

_ADDRESS = re.compile(r"[^\s<>,;()@]{1,64}@[^\s<>,;()@]{1,255}")
_LINK = re.compile(r"(?:https?://|\bwww\.)[^\s<>\"']+")
_ENDS = ".:?!'\")"
_LONG_NUMBER = re.compile(r"\d{7,}")
_CODE = re.compile(r"[^\W\d_]*[#:]?(\d{4,})")
_ESCAPED = re.compile(r"\\{1,4}(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2}))")
OF_LINKS = frozenset({"http", "https", "www", "mailto", "tel"})
"""Words that a system may put before what it says back."""
DECODED_TIMES = 2
"""So often a text is decoded in which a call may say a value."""
APART = "\n\0\n"  # no value goes from one field into the next: NUL is in none
WITHOUT_RESULT = frozenset({"not_recorded"})
"""The member of a result that was too large for the client, which says so instead."""


class CallText(NamedTuple):
    """The arguments and targets of a call that came to the ledger at this place."""

    place: int
    text: str | None
    """None: nobody knows."""
    words: frozenset[str] = frozenset()
    as_one: str = ""


class Reading(NamedTuple):
    """A call that looked something up: its tool, its place in the ledger and what it gave."""

    tool: str
    place: int
    text: ReadText | None
    """None: nobody knows."""


@dataclass(frozen=True, slots=True)
class Trail:
    """What a run has looked up, the oldest first, and what its calls said. Each text is read once,
    for all values.
    """

    readings: Sequence[Reading]
    said: Sequence[CallText]
    is_whole: bool
    is_said: bool
    """Whether there are no more readings, and no more calls, than are here."""
    key: MaskingKey | None
    today: date
    _until: dict[int, ReadText] = field(default_factory=dict)

    def source(self, part: Any) -> str | None:
        """By which tool a value came into the run; empty: by none; None: it cannot be told."""
        is_told, own = self.is_whole, ReadText(str(part), self.key)
        for tool, place, text in self.readings:
            found = None if text is None else text.holds(part)
            if found:
                had = self._had(part, place, own)
                return tool if had is False else "" if had and is_told else None
            is_told = is_told and found is False and not (text and _hides(text, part, own))
        return "" if is_told else None

    def _had(self, part: Any, place: int, own: ReadText) -> bool | None:
        """Whether a call that came until this place had the value in what it said, so that an
        answer may have it from there: it stands there in any spelling, or each of its words does.
        """
        before = [one for one in self.said if one.place <= place]
        known = [one for one in before if one.text is not None]
        if place not in self._until:
            joined = APART.join(one.text or "" for one in known)
            self._until[place] = ReadText(joined, self.key, self.today, may_hide=True)
        text = self._until[place]
        if text.is_long:
            return None
        bare = shown(as_seen(part)) if isinstance(part, str) else part
        words, spellings = _words(str(bare)) - OF_LINKS, _spellings(bare)
        if any(words <= one.words or any(it in one.as_one for it in spellings) for one in known):
            return True
        found = False if text.is_empty else text.holds(bare)
        is_told = self.is_said and len(known) == len(before) and not _hides(text, part, own)
        return found if found or is_told else None


def _hides(text: ReadText, part: Any, own: ReadText) -> bool:
    """Whether something that is masked in the text may be this value, which is `own` as a text."""
    kind = kind_of(part) if isinstance(part, str) else None
    others = (one for one, its in text.masks.items() if its != kind)
    return text.is_bare or any(kind is not None or own.holds(one) is not False for one in others)


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", plain(text)))


def _spellings(value: Any) -> set[str]:
    """What of a value in which it stands in no other words: all of it, long numbers and links in
    it, and of a code such as `ORD-12345` the number.
    """
    text = plain(str(value))
    spelled = as_one(text)
    found = {*_LONG_NUMBER.findall(text), *_LONG_NUMBER.findall(spelled)}
    found |= {as_one(one.rstrip(_ENDS)) for one in _LINK.findall(text)}
    if code := _CODE.fullmatch(spelled):
        found.add(code[1])
    return found | ({spelled} if isinstance(value, str) and not spelled.isdecimal() else set())


def addresses_in(part: Any) -> list[str]:
    """The addresses in a longer text, each of which a mail would go to."""
    text = part if isinstance(part, str) and "@" in part else ""
    found = [*(one.rstrip(_ENDS) for one in _ADDRESS.findall(text)), *pointers_in(text)]
    return [one for one in found if "@" in one and one != text]


def _decoded(text: str) -> str:
    """With what stands there as `%40`, `&#64;`, `\\u0040` or `xn--`, as its taker may read it."""
    for _ in range(DECODED_TIMES):
        plainly = _ESCAPED.sub(lambda code: chr(int(code[1] or code[2], 16)), text)
        text = unquote(unescape(plainly))
    return as_seen(shown(text).encode(errors="ignore").decode())


def _fields(value: Any) -> str:
    names = dict.fromkeys(names_in(value))
    return APART.join([*(str(one) for one in leaves(value) if one is not None), *names])


def _result(result: Any) -> str | None:
    is_lost = result is None or (isinstance(result, dict) and result.keys() == WITHOUT_RESULT)
    return None if is_lost else _fields(result)


def _said(place: int, told: Any) -> CallText:
    if told is None:
        return CallText(place, None)
    text = as_seen(_fields(told))
    if (decoded := _decoded(text)) != text:
        text += f"{APART}{decoded}"
    return CallText(place, text, _words(text), as_one(text))


def _calls(rows: Iterable[tuple[int, Any]]) -> list[CallText]:
    """The oldest first; of what does not fit among what is looked through nobody knows."""
    found, room = [], TEXT_CHARACTERS_MAX
    for place, told in sorted(rows, key=itemgetter(0)):
        found.append(_said(place, told if room > 0 else None))
        room -= len(found[-1].text or "")
    return found


def _readings(
    rows: Iterable[tuple[str, int, Any]], key: MaskingKey | None, today: date
) -> list[Reading]:
    """The oldest first; what does not fit among what is looked through is not read."""
    found, room = [], TEXT_CHARACTERS_MAX
    for tool, place, result in sorted(rows, key=itemgetter(1)):
        text = _result(result)
        text = None if text is None or len(text) > room else text
        room -= len(text or "")
        found.append(Reading(tool, place, text if text is None else ReadText(text, key, today)))
    return found


def looked_up(
    lookup: Lookup, gathered: Gathered, facts: Mapping[str, Any]
) -> ScalarQuery | LookupResult:
    """By value: whether each part of it stands in the result of a reading of the run, and in the
    arguments of no call until then; or, with `or: mentioned`, in what was asked for.
    """
    value, run, policy = value_of(lookup, facts), gathered.context.run, gathered.policy
    cannot = LookupResult(UNKNOWN, f"Whether {lookup.subject} was looked up cannot be told")
    none = LookupResult(
        value=False, say=f"{lookup.subject} was not looked up by {lookup.option('by')}"
    )
    parts = [] if value is UNKNOWN else [*leaves(value)]
    parts += dict.fromkeys(to for one in parts[:TAINTED_MAX] for to in addresses_in(one))
    is_long = len(parts) > TAINTED_MAX or sum(len(str(one)) for one in parts) > TEXT_CHARACTERS_MAX
    if value is UNKNOWN or is_long or any(map(mistake, lookup.tools)):
        return cannot
    if run is None or not parts:
        return none

    def read(row: Sequence[Any]) -> LookupResult:
        written, results, calls, seen = row
        is_told = seen <= CALLS_MAX
        key, today = gathered.request.actor.masking_key, gathered.context.now.date()
        looking = (one for one in results or () if policy.is_looking_up(one[0]))
        trail = Trail(
            _readings(looking, key, today),
            _calls(calls or ()),
            is_told and len(results or ()) <= RESULTS_MAX,
            is_told and len(calls or ()) <= EARLIER_MAX,
            key,
            today,
        )
        asked_for = ReadText(written or "", key, today)
        found = [trail.source(one) for one in parts if not asked_for.holds(one)]
        if "" in found:
            return none
        if None in found:
            return cannot
        tools = ", ".join(map(formatting.named, sorted({one for one in found if one})[:3]))
        how = f" by {tools}" * bool(tools) + " or asked for" * (len(found) < len(parts))
        return LookupResult(value=True, say=f"{lookup.subject} was looked up{how}")

    key, runs = gathered.request.key, [run.id, CALLS_MAX + 1]
    mentioned_too = [lookup.option("or") == "mentioned", run.id]
    asked = [*mentioned_too, *runs, key, posix(lookup.tools), *runs, *runs]
    return ScalarQuery(READINGS, asked, read)
