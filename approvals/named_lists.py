"""Named lists: put on, taken off, looked up. Each change is a version, with a digest over it and
all before, so that whoever was asked can be shown by which one a call was judged.

Entries are found by an index, and no list is ever read whole for a call. What a list of accounts
or cards holds is kept by marks alone, as the ledger keeps such values.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from amends.protocol.masking import MaskingKey, Unfit, holds_mask, masked
from amends.protocol.vocabulary import EventType
from approvals.models import ListChange, ListEntry, NamedList
from approvals.policy import Policy, PolicyUnreadable, Rule, active
from approvals.policy.conditions import IN_LIST
from approvals.policy.named_lists import (
    ENTRY_CHARACTERS_MAX,
    HIDDEN_KINDS,
    KINDS,
    NAME,
    WantedValue,
    key_of,
    mark_of,
    normal,
    sought,
    stands,
)
from ledger import desk_events, disclosure
from ledger.append.statements import Statement
from ledger.canonical import digest
from workspaces import access, locks
from workspaces.free_text import NOTE_CHARACTERS_MAX, InvalidInput, kept_text
from workspaces.models import User, Workspace

FORM = "amends list 1"
ENTRIES_MAX = 100_000
LISTS_MAX = 200
AT_ONCE_MAX = 10_000
TOO_MANY = f"At most {AT_ONCE_MAX:,} entries at once, please."
LABEL_CHARACTERS_MAX = 200
WRONG_TOLD_MAX = 5
EXAMPLES = {
    "text": "a name",
    "mail": "eve@example.com",
    "domain": "example.com or *.example.com",
    "iban": "DE89 3704 and the rest of it",
    "card": "a card number",
}


class Stale(InvalidInput):
    """We stopped because somebody changed the list meanwhile: look at it again."""


@dataclass(frozen=True, slots=True)
class NewEntry:
    """One entry as a person wrote it."""

    text: str
    label: str = ""


def read_lines(text: str) -> list[NewEntry]:
    """Entries that were pasted, one a line, with a label behind a tab or a semicolon."""
    found = []
    for line in text.replace("\t", ";").splitlines():
        value, _, label = line.partition(";")
        if value.strip():
            found.append(NewEntry(value.strip(), " ".join(label.split())))
    return found


@transaction.atomic
def create(workspace: Workspace, name: str, kind: str) -> NamedList:
    """A new list without entries, at version 0. Raises InvalidInput."""
    if not NAME.fullmatch(name):
        raise InvalidInput("A name has small letters, digits and _, and begins with a letter.")
    if kind not in KINDS:
        raise InvalidInput(f"A kind is one of {', '.join(KINDS)}.")
    locks.locked(Workspace.objects.all()).get(pk=workspace.pk)
    lists = NamedList.objects.filter(workspace=workspace)
    found = lists.filter(name=name).first()
    if found is not None:
        if found.kind != kind:
            raise InvalidInput(f"There is a list {name} of the kind {found.kind} already.")
        return found
    if lists.count() >= LISTS_MAX:
        raise InvalidInput(f"There are {LISTS_MAX} lists here, and no more may be.")
    return NamedList.objects.create(workspace=workspace, name=name, kind=kind)


@transaction.atomic
def change(
    kept: NamedList,
    *,
    by: User,
    add: Sequence[NewEntry] = (),
    remove: Sequence[str] = (),
    note: str = "",
    seen: int | None = None,
) -> ListChange | None:
    """Put entries on the list and take others off, by their keys, as one version; None where that
    changes nothing. Raises InvalidInput, with the first that do not fit, and Stale where the list
    is no longer at the version that was `seen`.
    """
    if len(add) + len(remove) > AT_ONCE_MAX:
        raise InvalidInput(TOO_MANY)
    kept = _locked(kept, seen)
    new = _entries(kept, add)
    if not new.keys().isdisjoint(remove):
        raise InvalidInput("Nothing was changed: what is taken off is not put on at once.")
    gone = kept.entries.filter(until=None, key__in=list(remove))
    return _changed(kept, new, gone, by=by, note=note)


@transaction.atomic
def replace(
    kept: NamedList,
    *,
    by: User,
    entries: Sequence[NewEntry],
    note: str = "",
    seen: int | None = None,
) -> ListChange | None:
    """Have exactly these entries on the list, as one version: what stood there already stays as it
    is, and the rest is taken off. Raises as `change` does.
    """
    if len(entries) > AT_ONCE_MAX:
        raise InvalidInput(TOO_MANY)
    kept = _locked(kept, seen)
    wanted = _entries(kept, entries)
    gone = kept.entries.filter(until=None).exclude(key__in=list(wanted))
    return _changed(kept, wanted, gone, by=by, note=note)


def _locked(kept: NamedList, seen: int | None) -> NamedList:
    """The list as it stands, under the lock of its workspace. Raises Stale."""
    locks.locked(Workspace.objects.all()).get(pk=kept.workspace_id)
    kept = NamedList.objects.select_related("workspace").get(pk=kept.pk)
    if seen is not None and seen != kept.version:
        raise Stale(f"Somebody has changed the list meanwhile: it is at version {kept.version}.")
    return kept


def _changed(
    kept: NamedList,
    entries: Mapping[str, ListEntry],
    leaving: QuerySet[ListEntry],
    *,
    by: User,
    note: str,
) -> ListChange | None:
    note = kept_text(note, NOTE_CHARACTERS_MAX)
    workspace, standing = kept.workspace, kept.entries.filter(until=None)
    there = set(standing.filter(key__in=list(entries)).values_list("key", flat=True))
    new = [one for key, one in entries.items() if key not in there]
    gone = list(leaving.values_list("key", flat=True)[: AT_ONCE_MAX + 1])
    if not new and not gone:
        return None
    if len(gone) > AT_ONCE_MAX:
        raise InvalidInput(
            f"Nothing was changed: more than {AT_ONCE_MAX:,} entries would be taken off at once."
            " Take some off before."
        )
    if kept.count + len(new) - len(gone) > ENTRIES_MAX:
        raise InvalidInput(f"A list has at most {ENTRIES_MAX:,} entries.")
    version = kept.version + 1
    standing.filter(key__in=gone).update(until=version)
    for one in new:
        one.since = version
    ListEntry.objects.bulk_create(new, batch_size=1_000)
    made = digest(
        {
            "form": FORM, "workspace": workspace.slug, "list": kept.name, "kind": kept.kind,
            "version": version, "previous": kept.digest,
            "added": sorted(one.key for one in new), "removed": sorted(gone),
        }
    )  # fmt: skip
    count = kept.count + len(new) - len(gone)
    NamedList.objects.filter(pk=kept.pk).update(version=version, digest=made, count=count)
    changed = ListChange.objects.create(
        list=kept, version=version, digest=made, by=by, note=note,
        added=len(new), removed=len(gone),
    )  # fmt: skip
    data = {
        "list": kept.name, "kind": kept.kind, "version": version, "digest": made,
        "added": len(new), "removed": len(gone), "entries": count, "note": note,
    }  # fmt: skip
    desk_events.record(workspace, EventType.LIST_CHANGED, by=by, part="policy", data=data)
    return changed


def _entries(kept: NamedList, add: Iterable[NewEntry]) -> dict[str, ListEntry]:
    """The entries by their keys. Raises InvalidInput with the first that are none."""
    key = desk_events.masking_key(kept.workspace)
    found: dict[str, ListEntry] = {}
    wrong: list[int] = []
    for number, one in enumerate(add, 1):
        form = _form(kept, one.text)
        is_shown_whole = kept.kind in HIDDEN_KINDS or _is_plain(one.text)
        is_labelled = len(one.label) <= LABEL_CHARACTERS_MAX and _is_plain(one.label)
        if not (form and is_shown_whole and is_labelled):
            wrong.append(number)
            continue
        shown = key.placeholder(kept.kind, form) if kept.kind in HIDDEN_KINDS else one.text
        own = key_of(kept.kind, form, key)
        policy = mark_of(key.placeholder("policy", one.text))
        found[own] = ListEntry(list=kept, key=own, mark=policy, shown=shown, label=one.label)
    _all_read(kept, wrong, "line")
    return found


def keys_of(kept: NamedList, texts: Sequence[str]) -> list[str]:
    """The keys of entries that are named by their values, or by what the list or a card shows of a
    masked one. Raises InvalidInput with the first that are none.
    """
    key = desk_events.masking_key(kept.workspace)
    found, marks, wrong = [], [], []
    for number, text in enumerate(texts, 1):
        if mark := mark_of(text):
            marks.append(mark)
        elif form := _form(kept, text):
            found.append(key_of(kept.kind, form, key))
        else:
            wrong.append(number)
    _all_read(kept, wrong, "of what is taken off number")
    shown = kept.entries.filter(Q(key__in=marks) | Q(mark__in=marks), until=None)
    return found + list(shown.values_list("key", flat=True)) if marks else found


def _form(kept: NamedList, text: str) -> str:
    """The normal form of an entry; empty where it is none."""
    try:
        masked(text)
    except Unfit:  # NUL, or half a pair
        return ""
    return normal(kept.kind, text) if len(text) <= ENTRY_CHARACTERS_MAX else ""


def _is_plain(text: str) -> bool:
    """Whether it is shown as it is: the ledger would keep it, and masks nothing in it."""
    try:
        return not holds_mask(masked(text))
    except Unfit:
        return False


def _all_read(kept: NamedList, wrong: Sequence[int], what: str) -> None:
    """Raises InvalidInput where some could not be read, with the numbers of the first."""
    if wrong:
        more = " and more" if len(wrong) > WRONG_TOLD_MAX else ""
        which = f"{what}{'s' * (len(wrong) != 1)} {', '.join(map(str, wrong[:WRONG_TOLD_MAX]))}"
        raise InvalidInput(
            f"Nothing was changed: {which}{more} cannot be read as {kept.kind}. An entry is"
            f" written as {EXAMPLES[kept.kind]}; numbers of cards stand on lists of the kind card"
            " alone."
        )


# Looking up.

LOST = "lost"
"""The mark of an account or a card whose masking key is lost: it stands on the list, and nobody can
tell any more which one it is.
"""

LOOK = f"""
SELECT json_build_array(l.version, l.digest, l.kind, (
    SELECT json_agg(e.key) FROM approvals_listentry e
    WHERE e.list_id = l.id AND e.until IS NULL AND e.key = ANY(%b::text[])), (
    SELECT json_agg(e.mark) FROM approvals_listentry e
    WHERE e.list_id = l.id AND e.until IS NULL AND e.mark <> '' AND e.mark = ANY(%b::text[])),
    EXISTS (SELECT FROM approvals_listentry e
        WHERE e.list_id = l.id AND e.until IS NULL AND e.mark = '{LOST}'))
FROM approvals_namedlist l WHERE l.workspace_id = %b AND l.name = %b"""  # noqa: S608


def look(workspace_id: int, name: str, wanted: Iterable[WantedValue]) -> Statement:
    """Version, digest and kind of a list, which of the keys stand on it, and whether it has entries
    that are `LOST`.
    """
    keys = sorted({key for one in wanted for key in one.keys})
    return LOOK, [keys, keys, workspace_id, name]


def standing_keys(kept: NamedList, wanted: Iterable[WantedValue], *, version: int) -> set[str]:
    """Which of the keys stood there at a version and stand there now."""
    keys = {key for one in wanted for key in one.keys}
    rows = kept.entries.filter(Q(key__in=keys) | Q(mark__in=keys), until=None, since__lte=version)
    return {one for pair in rows.values_list("key", "mark") for one in pair if one}


def lose(workspace: Workspace, *, using: str) -> None:
    """The masking key was lost: nothing is found among the accounts and cards on its lists. By the
    owner of the tables, for a desk changes no entry.
    """
    rows = ListEntry.objects.using(using).filter(list__workspace=workspace, until=None)
    rows.filter(list__kind__in=HIDDEN_KINDS).update(mark=LOST)


def holds_lost(kept: NamedList) -> bool:
    """Whether of no value it can be said that it is missing there."""
    return kept.entries.filter(until=None, mark=LOST).exists()


# What a bounded grant for a list is bound to.


def bound(workspace: Workspace, listed: Mapping[str, str]) -> dict[str, Any]:
    """The list as it stands, for the terms of a grant. Raises InvalidInput where it is empty."""
    kept = NamedList.objects.filter(workspace=workspace, name=listed["list"]).first()
    if kept is None or not kept.count:
        raise InvalidInput(f"Nothing stands on the list {listed['list']}.")
    return {**listed, "version": kept.version, "digest": kept.digest}


def is_bound(workspace: Workspace, listed: Mapping[str, Any], value: Any) -> bool:
    """Whether a value stood on the list at the version that a grant names, and stands there now."""
    kept = NamedList.objects.filter(workspace=workspace, name=listed["list"]).first()
    if kept is None or value is None:
        return False
    wanted = sought(kept.kind, value, desk_events.masking_key(workspace))
    if wanted is None:
        return False
    found = standing_keys(kept, wanted, version=listed["version"])
    return stands(wanted, found) is True


# For people.


def policy_now(workspace: Workspace) -> Policy:
    """The policy in force; an empty one where it cannot be read, for lists outlive it."""
    try:
        return active(workspace)
    except PolicyUnreadable:
        return Policy(digest="", document={})


def rules_about(policy: Policy, name: str) -> list[Rule]:
    """The rules that ask about a list."""
    return [
        rule
        for rule in (*policy.rules, *policy.always)
        if rule.when
        and any(one.function == IN_LIST and one.option("list") == name for one in rule.when.lookups)
    ]


def reader_sees(person: User, workspace: Workspace) -> bool:
    """Whether a person is shown what stands on lists."""
    return access.may(person, "edit_lists", workspace) or disclosure.sees(person, workspace)


def search(kept: NamedList, text: str, key: MaskingKey) -> QuerySet[ListEntry]:
    """Its entries, newest first; with `text`, the one that it names, and those it stands in."""
    rows = kept.entries.filter(until=None).order_by("-pk")
    text = " ".join(text.split())
    if not text:
        return rows
    form = normal(kept.kind, text)
    exact = Q(key=key_of(kept.kind, form, key)) if form else Q(pk=None)
    return rows.filter(exact | Q(shown__icontains=text) | Q(label__icontains=text))


def history(kept: NamedList) -> QuerySet[ListChange]:
    return ListChange.objects.filter(list=kept).select_related("by").order_by("-version")


Entries = dict[int, list[ListEntry]]


def of_versions(kept: NamedList, versions: Sequence[int], most: int) -> tuple[Entries, Entries]:
    """What came and what went with each of these versions, at most so many of each."""
    return _of(kept, "since", versions, most), _of(kept, "until", versions, most)


def _of(kept: NamedList, field: str, versions: Sequence[int], most: int) -> Entries:
    place = Window(RowNumber(), partition_by=F(field), order_by="pk")
    rows = kept.entries.filter(**{f"{field}__in": versions}).annotate(place=place)
    found: Entries = {}
    for one in rows.filter(place__lte=most).order_by("pk"):
        found.setdefault(getattr(one, field), []).append(one)
    return found


def as_json(kept: NamedList) -> dict[str, Any]:
    return {
        "name": kept.name, "kind": kept.kind, "version": kept.version, "digest": kept.digest,
        "entries": kept.count,
    }  # fmt: skip
