"""Sentences: the facts of a correction in the reader's language.

Facts hold what sentences are made of; the sentences themselves come from the catalogues in
recovery/locale. In the facts they stand in English as well, for the record that somebody downloads
and checks. Facts of the first version have nothing else, so theirs are shown as they stand.
"""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from recovery.corrections.wording import (
    NAMED_MAX,
    and_joined,
    and_listed,
    field_words,
    in_marks,
    kind_of,
    more_words,
    named_of,
    number_words,
    quoted,
    roles_listed,
    sum_words,
    things_of,
)
from recovery.run_facts.sentences import MAILS, capitalised
from workspaces import formatting

Item = dict[str, Any]
TITLE_CHARACTERS_MAX = 200
VALUE_CHARACTERS_MAX = 60
UNDONE = frozenset({"restored", "compensated", "as_before"})
LASTING = frozenset({"corrected", "repaired", "not_undone"})

WORDS = {
    "put_back": gettext_noop("Put back"),
    "deleted": gettext_noop("Deleted"),
    "refunded": gettext_noop("Refunded"),
    "taken_back": gettext_noop("Taken back"),
    "put_away": gettext_noop("Put away"),
    "undone": gettext_noop("Undone"),
    "made_again": gettext_noop("Made again"),
    "cancelled": gettext_noop("Cancelled"),
    "corrected": gettext_noop("Correction sent"),
    "repaired": gettext_noop("Record repaired; could not be undone"),
    "unchanged": gettext_noop("Unchanged"),
    "left": gettext_noop("Left as it is"),
    "not_undone": gettext_noop("Could not be undone"),
    "as_before": gettext_noop("As it was before"),
    "by_hand": gettext_noop("Put right by hand"),
}
"""What became of one thing, each its own word."""


def thing(target_type: str, target_id: str) -> str:
    """`ticket T-182`: of an id with a path in it the last part, which people know it by."""
    short = in_marks(formatting.named(target_id.rstrip("/").rpartition("/")[2] or target_id))
    kind = kind_of(target_type)
    if target_type in MAILS:
        return _("%(kind)s to %(name)s") % {"kind": kind, "name": short}
    return f"{kind} {short}".strip() or _("something")


def is_plain(value: Any) -> bool:
    """Whether a value is short enough to stand in a sentence."""
    return isinstance(value, str | int | float) and len(str(value)) <= VALUE_CHARACTERS_MAX


def said(value: Any) -> str:
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(value, dict):  # a sum, with its currency
        return sum_words(str(value["money"]))
    return quoted(value) if isinstance(value, str) else number_words(value)


def what(item: Item) -> str:
    """`The priority of ticket T-182 was changed from “normal” to “high”.`"""
    told = item.get("told")
    if told is None:
        return str(item["what"])
    names = {
        "thing": thing(item["target"]["type"], item["target"]["id"])
        if any(item["target"].values())
        else _("you")
    }
    how, amount = told["how"], sum_words(told.get("amount", ""))
    if how == "sent":
        text = _sent(told, names)
    elif how in {"changed", "back"}:
        text = _changed(told, names)
    elif how == "came_and_went":
        text = _("%(thing)s was made and removed again in the course of the work.") % names
    elif told.get("summary"):
        text = _("Our assistant noted: %(summary)s.") % {"summary": quoted(told["summary"])}
    elif how == "created":
        made = {**names, "amount": amount}
        text = (
            _("%(thing)s of %(amount)s was made.")
            if amount and told.get("is_all")
            else _("%(thing)s was made.")
        ) % made
    elif how == "deleted":
        text = _("%(thing)s was removed.") % names
    elif not told["tool"]:
        text = _("Something was done for %(thing)s.") % names
    else:
        done = {**names, "what": quoted(capitalised(told["tool"]))}
        text = _("%(what)s was done for %(thing)s.") % done
    if recorded := told.get("recorded"):
        named = {"field": field_words(recorded["field"]), "amount": sum_words(recorded["amount"])}
        text += " " + _("In the record: %(field)s %(amount)s.") % named
    return capitalised(text)


def _sent(told: dict[str, Any], names: dict[str, str]) -> str:
    if told.get("subject") and told.get("recipient"):
        mail = {"subject": quoted(told["subject"]), "who": in_marks(told["recipient"])}
        return _("A mail with the subject %(subject)s was sent to %(who)s.") % mail
    return _("%(thing)s was sent.") % names


def _changed(told: dict[str, Any], names: dict[str, str]) -> str:
    fields = [field_words(one) for one in told["fields"]]
    values = told.get("values") or {}
    named = {
        **names,
        "field": fields[0] if fields else "",
        "fields": and_listed(fields),
        "was": said(values.get("was")),
        "became": said(values.get("became")),
    }
    if told["how"] == "back":
        if values:
            return (
                _(
                    "The %(field)s of %(thing)s was changed from %(was)s to %(became)s"
                    " and back to %(was)s."
                )
                % named
            )
        return _("%(thing)s was changed and changed back in the course of the work.") % names
    if len(fields) == 1:
        return (
            _("The %(field)s of %(thing)s was changed from %(was)s to %(became)s.")
            if values
            else _("The %(field)s of %(thing)s was changed.")
        ) % named
    if told.get("changes"):
        return _changes(told, names)
    if 1 < len(fields) <= NAMED_MAX:
        return _("%(fields)s of %(thing)s were changed.") % named
    return _("%(thing)s was changed.") % names


def _changes(told: dict[str, Any], names: dict[str, str]) -> str:
    """`The deck of cabin B-204 was changed from 4 to 2. Also changed: guests and 3 more.`"""
    changes, others = [], []
    for one in told["changes"]:
        named = {**names, "field": field_words(one["field"])}
        if "was" in one:
            changes.append({**named, "was": said(one["was"]), "became": said(one["became"])})
        else:
            others.append(named["field"])
    if told.get("more"):
        others.append(more_words(told["more"]))
    if len(changes) == 1:
        text = _("The %(field)s of %(thing)s was changed from %(was)s to %(became)s.") % changes[0]
    else:
        listed = [_("%(field)s from %(was)s to %(became)s") % one for one in changes]
        text = _("%(thing)s was changed: %(changes)s.") % {**names, "changes": and_joined(listed)}
    if others:
        text += " " + _("Also changed: %(fields)s.") % {"fields": and_joined(others)}
    return text


def did(item: Item) -> str:
    """What was done about it."""
    told = item.get("told")
    if told is None:
        return str(item["did"])
    act, amount = item["act"], sum_words(told.get("amount", ""))
    if item["target"]["type"] in MAILS and act in {"corrected", "repaired", "not_undone"}:
        if act != "corrected":
            return _("A mail cannot be unsent.")
        return _("A mail cannot be unsent. A correction was sent.")
    if act == "put_back" and "back_to" in told:
        text = _("It was put back to %(value)s.") % {"value": said(told["back_to"])}
    elif act == "refunded" and amount:
        text = _("%(amount)s was paid back.") % {"amount": amount}
    elif act == "taken_back" and amount:
        text = _("It was taken back: %(amount)s.") % {"amount": amount}
    else:
        text = {
            "put_back": _("It was put back to how it was before."),
            "deleted": _("It was removed again."),
            "refunded": _("It was paid back."),
            "taken_back": _("It was taken back."),
            "cancelled": _("It was cancelled."),
            "put_away": _("It was put away."),
            "undone": _("It was undone."),
            "made_again": _("It was made again."),
            "corrected": _("It cannot be taken back. A correction was sent."),
            "repaired": _("Our record was put right. What was done outside cannot be taken back."),
            "not_undone": _("It cannot be taken back."),
            "as_before": _("It is as it was before, so nothing had to be done."),
            "by_hand": _("Our staff say that it was put right by hand."),
        }.get(act, _("It was left as it is."))
    return f"{text} {_('A note on it says so.')}" if told.get("noted") else text


def word(item: Item) -> str:
    return _(WORDS[item["act"]]) if item.get("act") in WORDS else _(str(item["word"]))


def untouched(item: Item) -> str:
    """Of something that was looked at, that nothing was done to it."""
    kind, name = item["target"]["type"], item["target"]["id"]
    text = (_("No %(thing)s was sent.") if kind in MAILS else _("%(thing)s was not touched.")) % {
        "thing": thing(kind, name)
    }
    return capitalised(text)


def reference(item: Item) -> str:
    """What the thing is called in the systems, where its line tells it in the agent's words."""
    told = item.get("told") or {}
    if not told.get("summary") or told["how"] not in {"created", "done", "deleted"}:
        return ""
    return capitalised(thing(item["target"]["type"], item["target"]["id"]))


def by_whom(item: Item) -> str:
    agent = item.get("agent")
    if not agent:
        return _("By our assistant")
    return _("By our assistant %(agent)s") % {"agent": quoted(agent)}


def approved(item: Item) -> str:
    """`Our assistant asked first, and 1 person approved it (finance), with a change: amount 80
    instead of 100.` Empty where nobody was asked.
    """
    asked = item.get("asked")
    if not asked:
        return ""
    count, roles = int(asked["people"]), asked.get("roles") or []
    named = {"count": count, "roles": f" ({roles_listed(roles)})" if roles else ""}
    if asked.get("ahead"):
        return (
            ngettext(
                "%(count)s person had allowed calls like this beforehand%(roles)s.",
                "%(count)s people had allowed calls like this beforehand%(roles)s.",
                count,
            )
            % named
        )
    if not asked.get("changed"):
        return (
            ngettext(
                "Our assistant asked first, and %(count)s person approved it%(roles)s.",
                "Our assistant asked first, and %(count)s people approved it%(roles)s.",
                count,
            )
            % named
        )
    changes = [
        _("%(field)s %(now)s instead of %(was)s")
        % {"field": field_words(one["field"]), "now": said(one["now"]), "was": said(one["was"])}
        for one in asked.get("changes") or []
    ]
    named["changes"] = f": {and_listed(changes)}" if changes else ""
    return (
        ngettext(
            "Our assistant asked first, and %(count)s person approved it%(roles)s, with a"
            " change%(changes)s.",
            "Our assistant asked first, and %(count)s people approved it%(roles)s, with a"
            " change%(changes)s.",
            count,
        )
        % named
    )


def put_right_by(item: Item) -> str:
    """Who had it put right: people by their role, or a rule."""
    by = item.get("undone_by") or {}
    if by.get("automatic"):
        return _("Put right by a rule that people had approved")
    if by.get("roles"):
        return _("Put right by our staff (%(roles)s)") % {"roles": roles_listed(by["roles"])}
    return _("Put right by our staff")


def now(facts: dict[str, Any]) -> list[str]:
    """What the person has now, each thing once."""
    return list(dict.fromkeys(filter(None, map(_now, facts["items"]))))


def _now(item: Item) -> str:
    told, act = item.get("told"), item.get("act")
    if told is None:
        return ""
    names = {"thing": thing(item["target"]["type"], item["target"]["id"])}
    if act == "put_back" and "back_to" in told and len(told["fields"]) == 1:
        named = {**names, "field": field_words(told["fields"][0]), "value": said(told["back_to"])}
        text = _("The %(field)s of %(thing)s is %(value)s again.") % named
    elif act == "refunded":
        text = (
            _(
                "%(amount)s goes back to where it was paid from;"
                " a bank can take some days to show it."
            )
            % {"amount": sum_words(told["amount"])}
            if told.get("amount")
            else _("%(thing)s has been paid back.") % names
        )
    elif item["target"]["type"] in MAILS and act in {"corrected", "repaired", "not_undone"}:
        text = (
            _("The mail and its correction are both with whoever received them.")
            if act == "corrected"
            else _("The mail is with whoever received it.")
        )
    elif told["how"] == "deleted" and (act == "left" or item["outcome"] in LASTING):
        text = _("%(thing)s does not exist any more.") % names
    else:
        text = {
            "repaired": _("Our record of %(thing)s is right again; what was done outside stands."),
            "put_back": _("%(thing)s is as it was before."),
            "as_before": _("%(thing)s is as it was before."),
            "deleted": _("%(thing)s does not exist any more."),
            "taken_back": _("%(thing)s has been taken back."),
            "cancelled": _("%(thing)s is cancelled."),
            "put_away": _("%(thing)s is put away."),
            "by_hand": _("%(thing)s was put right by hand."),
            "undone": _("What was done with %(thing)s has been undone."),
            "made_again": _("%(thing)s is there again."),
            "corrected": _("%(thing)s stands; the correction tells what is wrong with it."),
        }.get(str(act), _("%(thing)s still stands as our assistant left it.")) % names
    return capitalised(text)


def request_words(facts: dict[str, Any]) -> str:
    """What became of the person's own request."""
    return {
        "not_done": _("This was not carried out."),
        "not_as_asked": _("You did not get this as you had asked for it."),
        "partly": _("Of this, only a part stands."),
        "stands": _("What was done for this stands, as it is told below."),
        "resumed": _("This was taken up again and carried on."),
        "done": _("This was carried out."),
    }.get(str(facts.get("request_state")), "")


def title(facts: dict[str, Any]) -> str:
    """`We changed your ticket by mistake, and put it back`"""
    items = facts["items"]
    more = facts.get("more") or {"count": 0, "undone": 0}
    outcomes = {one["outcome"] for one in items}
    outcomes |= {"compensated"} if more["undone"] else set()
    outcomes |= {"left"} if more["undone"] < more["count"] else set()
    things = {"things": things_of(items, is_all=not more["count"])}
    if not items:
        text = _("Nothing of yours was changed")
    elif outcomes == {"corrected"} and _is_recipient(facts):
        text = _("We sent you something by mistake")
    elif outcomes == {"corrected"}:
        text = _("We made a mistake with %(things)s, and sent a correction") % things
    elif outcomes <= {"restored", "as_before"}:
        one = _("We changed %(things)s by mistake, and put it back")
        many = _("We changed %(things)s by mistake, and put them back")
        text = (one if len(named_of(items)) == 1 else many) % things
    elif outcomes <= UNDONE:
        text = _("We made a mistake with %(things)s, and undid it") % things
    elif outcomes & UNDONE:
        text = _("We made a mistake with %(things)s, and undid a part of it") % things
    else:
        text = _("We made a mistake with %(things)s") % things
    return text[:TITLE_CHARACTERS_MAX]


def _is_recipient(facts: dict[str, Any]) -> bool:
    """Whether the person got what somebody else had asked for."""
    is_mail = all(one["target"]["type"] in MAILS for one in facts["items"])
    return is_mail and not facts.get("request")


def lead(facts: dict[str, Any]) -> str:
    """What our assistant did, why it was wrong, what became of it, and of the request itself."""
    if not (items := facts["items"]):
        if facts.get("takes_back"):
            return _("What we wrote to you was wrong: our assistant changed nothing of yours.")
        return _("Our assistant worked on your request and changed nothing.")
    names = dict.fromkeys(thing(one["target"]["type"], one["target"]["id"]) for one in items)
    more = facts.get("more")
    touched = {"things": _("several things of yours") if more else and_listed(list(names))}
    if any(one.get("told", {}).get("summary") for one in items):  # below, in words, not by its id
        first = _("While it worked on your request, our assistant made a mistake.")
    elif facts.get("request"):
        first = _("While it worked on your request, our assistant made a mistake with %(things)s.")
    else:
        first = _("While it worked on a request, our assistant made a mistake with %(things)s.")
    became = [_of_many(items, more)] if more else _became(items)
    parts = [first % touched, _(str(facts["why"])), *became]
    if facts.get("request_state") == "not_done":
        parts.append(_("What you had asked for was not carried out."))
    return " ".join(parts)


def _of_many(items: list[Item], more: dict[str, int]) -> str:
    """What became of changes of which not all are listed."""
    done = sum(one["outcome"] in UNDONE for one in items) + more["undone"]
    numbers = {"listed": len(items), "all": len(items) + more["count"], "done": done}
    text = _(
        "%(listed)s of %(all)s changes are listed here; %(done)s of all of them have been undone."
    )
    return text % {name: number_words(number) for name, number in numbers.items()}


def _became(items: list[Item]) -> list[str]:
    done = sum(one["outcome"] in UNDONE for one in items)
    lasting = sum(one["outcome"] == "corrected" for one in items)
    numbers = {"count": lasting, "all": len(items), "done": done}
    if lasting == len(items):
        return [_("It could not be undone, so a correction was sent.")]
    if done == len(items):
        return [_("What it had done has been undone.")]
    if done and done + lasting == len(items):
        return [
            ngettext(
                "%(count)s of %(all)s changes could not be undone and was corrected;"
                " the rest has been undone.",
                "%(count)s of %(all)s changes could not be undone and were corrected;"
                " the rest has been undone.",
                lasting,
            )
            % numbers
        ]
    if done:
        return [
            ngettext(
                "%(done)s of %(all)s changes has been undone.",
                "%(done)s of %(all)s changes have been undone.",
                done,
            )
            % numbers
        ]
    return []


def review_words(facts: dict[str, Any]) -> str:
    """`2 people reviewed this before it was done (finance, leads). A computer check read …`

    Only where all of it is restored is it as it was before.
    """
    kinds = {*UNDONE, "corrected", "repaired"} - {"as_before"}  # of which nothing had to be done
    done = [one for one in facts["items"] if one["outcome"] in kinds]
    reviewed = facts["reviewed"] if done else {}  # what was done is then none of theirs
    count, roles = int(reviewed.get("approvers", 0)), reviewed.get("roles") or []
    named = {"count": count, "roles": f" ({roles_listed(roles)})" if roles else ""}
    stays = any(one["outcome"] in {"left", "not_undone"} for one in facts["items"])
    stays = stays or bool(facts.get("more"))
    if count and stays:  # which nobody was asked about
        parts = [
            ngettext(
                "%(count)s person reviewed what we did about it, before it was done%(roles)s.",
                "%(count)s people reviewed what we did about it, before it was done%(roles)s.",
                count,
            )
            % named
        ]
    elif count:
        parts = [
            ngettext(
                "%(count)s person reviewed this before it was done%(roles)s.",
                "%(count)s people reviewed this before it was done%(roles)s.",
                count,
            )
            % named
        ]
    elif reviewed.get("automatic"):
        parts = [_("It was put right automatically, by a rule that people had approved.")]
    elif reviewed.get("by_person"):
        parts = [_("A member of staff looked at it and had it put right.")]
    else:
        parts = [_("A member of staff has looked at it.")]
    read_back = reviewed.get("read_back") and not facts.get("more")
    if read_back and all(one.get("read_back") for one in done):
        exact = all(one["outcome"] == "restored" for one in facts["items"])
        parts.append(
            _("A computer check read it back afterwards: it is as it was before.")
            if exact
            else _("A computer check read it back afterwards: what we did about it was done.")
        )
    return " ".join(parts)
