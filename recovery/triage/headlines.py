"""Headlines: one sentence from facts; words that an agent wrote stand in quotation marks.

“Agent “airline-desk” changed flights on reservation XEHM4B, then failed at mail.send, $214.00 at
stake.” What a check expected and found are values of a payload, so the sentence that holds them is
a second one (`in_full`), and `ledger.disclosure.headline` says who reads which.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from approvals import call_context
from connectors.contract import Money
from ledger.fold.actions import NOT_AS_APPROVED
from ledger.models import Action, ActionState, Compensated, Effect
from recovery.models import ReportSource, StepState
from recovery.run_facts.runs import RunFacts
from recovery.run_facts.sentences import (
    HEADLINE_CHARACTERS_MAX,
    MAILS,
    NAMED_MAX,
    capitalised,
    changed_fields,
    listed,
    many,
    plural,
    shortened,
    singular,
    target_words,
    without_addresses,
)
from recovery.triage.case_reasons import OF_EACH_CALL, Reason
from recovery.triage.detectors import KINDS
from workspaces import formatting

BRIEF_CHARACTERS_MAX = 120
ERROR_CHARACTERS_MAX = 120
CHECK_CHARACTERS_MAX = 80
AT_STAKE = " at stake"
FIELDS_NAMED_MAX = 3
SUMMARY_CHARACTERS_MAX = 80
VALUE_CHARACTERS_MAX = 80
OTHERS = ("somebody ", "nobody ", "a check ", "undoing ", "the agent ", "the affected person ")
"""How a sentence of trouble begins that says what others did: the agent's own comes before it."""
# As HTTP clients say it: httpx, then requests.
HTTP_ERRORS = re.compile(
    r"(?:^|(?<=: ))(?:(?:Client|Server) error '|(?=\d{3} (?:Client|Server) Error: ))"
    r"(?P<status>\d{3})(?: (?:Client|Server) Error:)? (?P<words>[^'\n]{1,60}?)(?:'|$)"
)
# Without a client around it: a status with the words of its standard.
BARE_STATUS = re.compile(
    "|".join(
        f"{one} {re.escape(one.phrase)}" for one in HTTPStatus if one >= HTTPStatus.BAD_REQUEST
    ),
    re.IGNORECASE,
)
OF_STATUS = {
    401: "access was refused", 403: "access was refused", 404: "it was not found",
    408: "no answer in time", 429: "it was asked too often", 503: "the service was not available",
    504: "no answer in time",
}  # fmt: skip
OF_HTTP = {4: "the service refused the request", 5: "the service answered with an error of its own"}
OF_SYSTEM = (
    (re.compile(r"ETIMEDOUT|(?:Read|read operation|Connection) timed out"), "no answer in time"),
    (re.compile(r"ECONNREFUSED|Connection refused"), "nothing answered at its address"),
    (re.compile(r"ECONNRESET|Connection reset by peer"), "the connection broke"),
)
MAIL_STATUS = re.compile(r"(?:[45]\d\d[ -])?[45]\.(\d{1,3}\.\d{1,3})\b")
OF_MAIL = {
    "1.1": "there is no such mailbox", "2.2": "the mailbox is full", "3.4": "the mail is too large",
    "4.1": "the mail server did not answer", "4.2": "the line to the mail server broke",
    "4.7": "it could not be delivered in time", "7.1": "the mail server did not allow it",
}  # fmt: skip
"""What codes mean by their standards, RFC 9110, POSIX and (of mail) RFC 3463. All else is quoted
alone.
"""
ENDED = {ActionState.SUCCEEDED: "happened", ActionState.FAILED: "did not happen"}


REPORTERS = {
    ReportSource.OPERATOR: "somebody",
    ReportSource.AGENT: "the agent itself",
    ReportSource.END_USER: "the affected person",
}


def headline(facts: RunFacts, reasons: Sequence[Reason], money: Money | None = None) -> str:
    """What went wrong, in one sentence; `money` is what is at stake."""
    who = f"Agent {formatting.quoted(facts.run.agent.name)}" if facts.run.agent else "The desk"
    did = what_was_done(facts)
    wrong = trouble(facts, reasons)
    bare = wrong.removeprefix("then ").removeprefix("and ")
    if not did and bare.startswith(OTHERS):
        did = "changed nothing that is known"
    sentence = f"{who} {did}, {wrong}" if did else f"{who} {bare}"
    end = _at_stake(money)
    return _cut(sentence, HEADLINE_CHARACTERS_MAX - len(end)) + end


def in_full(facts: RunFacts, reasons: Sequence[Reason], money: Money | None = None) -> str:
    """What a check found instead of what it expected; empty where no check says it in plain values.

    “Invoice 12” went to jonas.weiss@example.com instead of jonas.weber@example.com, $214.00 at
    stake.
    """
    if not reasons or reasons[0].code != "verification_failed":
        return ""
    action = facts.action(reasons[0].action)
    if action is None:
        return ""
    failed = list(_failed_checks(action))
    sentences = (
        *(_of_another_target(facts, action, check) for check in failed),
        *(_found_instead(check) for check in failed[:1]),
    )
    sentence = next(filter(None, sentences), "")
    end = _at_stake(money)
    return _cut(sentence, HEADLINE_CHARACTERS_MAX - len(end)) + end if sentence else ""


def _cut(sentence: str, characters_max: int) -> str:
    """As `shortened`, where nobody's words go on behind what was cut."""
    told = shortened(sentence, characters_max)
    is_open = told.count("“") > told.count("”")
    return f"{shortened(sentence, characters_max - 1)}”" if is_open else told


def _of_another_target(facts: RunFacts, action: Action, check: Mapping[str, Any]) -> str:
    """`Ticket T-182 was changed instead of T-204`, where a check found the target to be another."""
    expected, actual = check.get("expected"), check.get("actual")
    if not isinstance(expected, str) or not isinstance(actual, str) or not expected or not actual:
        return ""
    for effect in facts.effects.get(action.pk, ()):
        if effect.target_id != actual:
            continue
        if effect.target_type in MAILS:
            what = next(filter(None, map(_subject, (effect.after, action.args))), "The mail")
            return f"{what} went to {_said(actual)} instead of {_said(expected)}"
        kind = capitalised(target_words(effect.target_type, actual))
        how = verb(effect, action)
        was = f"was {how}" if how in {"created", "deleted", "changed"} else "was acted on"
        return f"{kind} {was} instead of {_said(expected)}"
    return ""


def _subject(found: Any) -> str:
    words = found.get("subject") if isinstance(found, dict) else None
    return formatting.quoted(words, CHECK_CHARACTERS_MAX) if isinstance(words, str) else ""


def _found_instead(check: Mapping[str, Any]) -> str:
    """`Not so: “T-204 is raised”: it is normal instead of high`; of lists what is on one alone."""
    expected, actual = check.get("expected"), check.get("actual")
    name = formatting.quoted(str(check.get("name") or "its check"), CHECK_CHARACTERS_MAX)
    if isinstance(expected, list) and isinstance(actual, list):
        apart = _on_one_alone(expected, actual)
        return f"Not so: {name}; {apart}" if apart else ""
    plain = (str, int, float, type(None))
    if not isinstance(expected, plain) or not isinstance(actual, plain) or expected == actual:
        return ""
    if isinstance(expected, bool) and isinstance(actual, bool):
        return f"Not so: {name}"
    look_alike = _said(expected) == _said(actual)  # 1, and the text “1”
    found, wanted = (
        formatting.quoted(one) if look_alike and isinstance(one, str) else _said(one)
        for one in (actual, expected)
    )
    return f"Not so: {name}; found {found} instead of {wanted}"


def _on_one_alone(expected: Sequence[Any], actual: Sequence[Any]) -> str:
    """`missing “cancel H9ZU1C”, not expected “book HATHAT”`; empty where they hold the same texts,
    or what is no text.
    """
    if not all(isinstance(one, str) for one in (*expected, *actual)):
        return ""
    wanted, found = Counter(expected), Counter(actual)
    told = []
    for word, left in (("missing", wanted - found), ("not expected", found - wanted)):
        texts = list(left.elements())
        named = [formatting.quoted(one, VALUE_CHARACTERS_MAX) for one in texts[:NAMED_MAX]]
        told += [f"{word} {listed([*named, *texts[NAMED_MAX:]])}"] if texts else []
    return ", ".join(told)


def _said(value: Any) -> str:
    if value is None or value == "":
        return "nothing"
    text = value if isinstance(value, str) else formatting.value_text(value)
    return (
        formatting.named(text)
        if len(text) <= VALUE_CHARACTERS_MAX
        else formatting.quoted(text, VALUE_CHARACTERS_MAX)
    )


def _failed_checks(action: Action) -> Iterator[Mapping[str, Any]]:
    for check in action.checks or []:
        if isinstance(check, dict) and not check.get("ok"):
            yield check


def at_stake(facts: RunFacts, blamed: Action | None) -> Money | None:
    """The money of the call that went wrong, unless it did nothing, else of all that this run did
    and nobody has undone, by its tools' previews; nothing where that is of several currencies, or
    a call was made with other arguments than those on record.
    """
    done = {action.pk: action for action, _ in facts.done()}
    if any(NOT_AS_APPROVED in one.flags for one in done.values()):
        return None
    calls = [blamed] if blamed is not None and blamed.state != ActionState.FAILED else []
    # Of more than was looked at nobody knows the sum.
    all_done = [] if facts.whole and facts.whole.is_cut else list(done.values())
    for found in (calls, all_done):
        # Of what was repaired or corrected the money is gone all the same.
        among = [one for one in found if one.compensated != Compensated.COMPENSATED]
        moved = [one for one in (money_of(facts, call) for call in among) if one is not None]
        if moved and len({one.currency for one in moved}) == 1:
            return Money(sum(one.amount_minor for one in moved), moved[0].currency)
    return None


def money_of(facts: RunFacts, action: Action) -> Money | None:
    """What one call moves, by the preview that the policy has of its tool."""
    known = facts.policy.tool(action.tool)
    if known is None or not known.preview:
        return None
    return call_context.money(
        known.preview, tool=action.tool, args=action.args, targets=action.targets or []
    )


def _at_stake(money: Money | None) -> str:
    return f", {money}{AT_STAKE}" if money is not None and money.amount_minor else ""


def without_sum(sentence: str) -> str:
    """A headline for who is not told what money moves."""
    return sentence.rpartition(", ")[0] if sentence.endswith(AT_STAKE) else sentence


def brief(facts: RunFacts, reasons: Sequence[Reason], money: Money | None = None) -> str:
    """The trouble alone, for a line that names the action beside it: `Failed: “no room left”`."""
    sentence = trouble(facts, reasons, short=True).removeprefix("then ").removeprefix("and ")
    is_tool = "." in sentence.partition(" ")[0]
    end = _at_stake(money)
    most = BRIEF_CHARACTERS_MAX - len(end)
    return _cut(sentence if is_tool else capitalised(sentence), most) + end


def what_was_done(facts: RunFacts) -> str:
    """`changed flights on reservation XEHM4B and created user 12`; empty where nothing was done.

    What nobody knows to have happened does not stand here; what was undone meanwhile still does,
    so that a headline does not change under the hands of those who recover. Of a run of which not
    every effect is looked at, only what kinds they are, and how many it has: `changed tickets (19
    999 effects in 20 000 actions)`.
    """
    groups: dict[tuple[str, str], list[tuple[Action, Effect]]] = defaultdict(list)
    for action, effect in facts.done():
        groups[verb(effect, action), effect.target_type].append((action, effect))
    known = sum(len(facts.effects.get(action.pk, ())) for action in facts.actions)
    if facts.whole and facts.whole.effects > known:
        return _in_kinds(facts, facts.whole.effects, groups)
    done: dict[str, list[str]] = defaultdict(list)
    for (how, kind), found in groups.items():
        told = _told(how, found)
        done["reports" if told else _how(how, found)].append(told or _what(kind, found))
    return listed([f"{how} {listed(whats)}" for how, whats in done.items()])


def _in_kinds(facts: RunFacts, effects: int, groups: Iterable[tuple[str, str]]) -> str:
    kinds: dict[str, list[str]] = defaultdict(list)
    for how, kind in groups:
        kinds[how].append(f"{singular(kind) or 'target'}s")
    did = listed([f"{how} {listed(whats)}" for how, whats in kinds.items()])
    of = f"{many(effects, 'effect')} in {many(facts.run.action_count, 'action')}"
    return f"{did} ({of})" if did else ""


def verb(effect: Effect, action: Action) -> str:
    """What happened to the target, as far as snapshots tell; else that the tool ran on it."""
    if effect.has_before and effect.before is None and effect.after is not None:
        return "created"
    if effect.has_after and effect.after is None and effect.before is not None:
        return "deleted"
    if effect.before is not None:
        return "changed"
    return f"ran {action.tool_words} on"


def _told(how: str, found: Sequence[tuple[Action, Effect]]) -> str:
    """`“charged $1,286.00 to the card ending 4421”`: the agent's own summary, where all that we
    know of one thing is its id.
    """
    summaries = {effect.summary for _, effect in found}
    if how in {"changed", "deleted"} or len(found) > 1 or not all(summaries):
        return ""
    return formatting.quoted(summaries.pop(), SUMMARY_CHARACTERS_MAX)


def _how(how: str, found: Sequence[tuple[Action, Effect]]) -> str:
    """`changed`, or `changed priority on` where all that was changed is few fields of one."""
    if how != "changed" or len({effect.target_id for _, effect in found}) > 1:
        return how
    effect = found[-1][1]
    fields = changed_fields(effect.before, effect.after)
    return f"changed {listed(fields)} on" if 0 < len(fields) <= FIELDS_NAMED_MAX else how


def _what(kind: str, found: Sequence[tuple[Action, Effect]]) -> str:
    targets = list(dict.fromkeys(effect.target_id for _, effect in found))
    if len(targets) > 1:
        return plural(len(targets), singular(kind) or "target")
    return target_words(kind, targets[0])


def trouble(facts: RunFacts, reasons: Sequence[Reason], *, short: bool = False) -> str:
    """What went wrong, as the second half of a sentence; the weightiest reason decides."""
    if not reasons:
        return "then ended without anything that needs a person"
    reason, kind = reasons[0], KINDS[reasons[0].code]
    blamed = facts.action(reason.action) if reason.action else None
    tool = blamed.tool_words if blamed else ""
    settled = kind.settled if blamed and blamed.settled_by else ""
    if blamed and kind.known and blamed.state in ENDED:
        settled = kind.known
    (meaning, words), check = _error(facts), _check(facts, reason)
    error = f"{meaning} ({words})" if meaning else words
    return (settled or (short and kind.brief) or kind.headline).format(
        tool=tool,
        at_step=_at_step(facts),
        ended=ENDED.get(ActionState(blamed.state), "") if blamed else "",
        call=tool or "a call",
        failure=_failure(facts),
        error=f": {error}" if error else "",
        not_so=f": {check} is not so" if check else "",
        reporter=_reporter(facts),
    )


def _reporter(facts: RunFacts) -> str:
    """Who reported it, of several the last. Which of us it was says the reason."""
    source = facts.reports[-1].source if facts.reports else ReportSource.OPERATOR
    return REPORTERS[ReportSource(source)]


def _at_step(facts: RunFacts) -> str:
    """` at step 3, which found its target changed`"""
    step = next(iter(facts.troubled), None)
    if step is None:
        return ""
    more = {
        StepState.DRIFTED: ", which found its target changed",
        StepState.UNKNOWN: ", whose outcome is unknown",
    }
    return f" at step {step.position}{more.get(StepState(step.state), '')}"


def _check(facts: RunFacts, reason: Reason) -> str:
    """`“T-204 is raised”`: the first check that failed, by its name alone."""
    action = facts.action(reason.action) if reason.action else None
    names = [str(check.get("name") or "") for check in _failed_checks(action)] if action else []
    return formatting.quoted(names[0], CHECK_CHARACTERS_MAX) if any(names[:1]) else ""


def _failure(facts: RunFacts) -> str:
    """` at send_email (“no room left”)`; of a call that is settled as done, that it is."""
    action, text = facts.failed_action(), ": ".join(filter(None, _error(facts)))
    at = f" at {action.tool_words}" if action and action.tool else ""
    if action and action.tool and action.settled_by and action.state == ActionState.SUCCEEDED:
        at = f" without knowing that {action.tool_words} had happened"
    return f"{at} ({text})" if text else at


def _error(facts: RunFacts) -> tuple[str, str]:
    """`no answer in time` and `“504 Gateway Timeout”`: what a code says, if it is one, and what a
    system said, in its own words.
    """
    action = facts.failed_action()
    error = (action.error if action else None) or facts.run.error or {}
    if not isinstance(error, dict):
        return "", ""
    message = without_addresses(str(error.get("message") or error.get("type") or ""))
    said = HTTP_ERRORS.sub(r"\g<status> \g<words>", message)
    kinds = {one.get("type") for one in (action.targets or [] if action else [])}
    meaning = ""
    if http := HTTP_ERRORS.search(message) or BARE_STATUS.match(message):
        status = int(http["status"] if http.re is HTTP_ERRORS else http[0][:3])
        meaning = OF_STATUS.get(status) or OF_HTTP.get(status // 100, "")
    elif (mail := MAIL_STATUS.match(message)) and kinds & MAILS:
        meaning = OF_MAIL.get(mail[1], "")
    else:
        meaning = next((words for sign, words in OF_SYSTEM if sign.search(message)), "")
    return meaning, formatting.quoted(said, ERROR_CHARACTERS_MAX) if said else ""


def blamed_action(facts: RunFacts, reasons: Sequence[Reason]) -> Action | None:
    """The action that the queue shows as the failed one; None where none failed, or nobody says
    which: what succeeded and stands is not to blame for what went wrong around it.
    """
    for reason in reasons:
        found = facts.action(reason.action) if reason.action else None
        if reason.code in OF_EACH_CALL:
            found = facts.failed_action()
        if found is not None:
            return found
    return facts.failed_action()
