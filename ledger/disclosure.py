"""Disclosure: what a person is shown of a payload, decided here for every page and every endpoint.

A payload is what agents, customers and outside systems wrote: arguments, results, snapshots, values
that a connector read, answers of probes. Whoever lacks `view_sensitive` is shown its names, never
its values. Sentences that people need for their work (a request, an error, a headline) stay,
without the card numbers, account numbers and tokens in them; config/middleware.py takes these out
of whatever else is answered, so that no page can forget it. Whoever holds `view_sensitive` is shown
values as the ledger keeps them: what a connector read is masked as what an agent reports.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from amends.protocol import masking
from amends.protocol.vocabulary import EventType
from workspaces import delegations, exporting, outbox
from workspaces.access import Codename, may
from workspaces.models import User, Workspace

HIDDEN = "hidden: needs view_sensitive"
TAKEN_OUT = "⟦hidden: needs view_sensitive⟧"
# Whoever is asked, or repairs, has to see the call that an approval is about.
OF_APPROVALS: tuple[Codename, ...] = ("approve", "recover", "view_sensitive")

# A page may break a long word with <wbr> after a sign.
_SIGN = r"[_-](?:<wbr>)?"
# Each alternative begins with a letter of its own and looks back from there: so every place of a
# page at which none of them stands is passed over at once.
_TOKEN = re.compile(
    "(?:" + "|".join(
        rf"{first}(?<![0-9A-Za-z]{first}){more}"
        for first, more in {
            "s": "k", "r": "k", "t": "ok", "p": "at", "g": "(?:h[posu]|lpat)", "x": "ox[a-z]",
        }.items()
    ) + rf"){_SIGN}(?:[0-9A-Za-z]|{_SIGN}){{16,}}"
    r"|A(?<![0-9A-Za-z]A)KIA[0-9A-Z]{16}(?![0-9A-Za-z])"
    r"|e(?<![0-9A-Za-z]e)yJ[0-9A-Za-z_-]{8,}(?:\.(?:<wbr>)?[0-9A-Za-z_-]{8,}){1,2}"
)  # fmt: skip
# Where a card or an account may begin, and how far either could reach; check digits decide. An id
# in the form of a UUID (RFC 9562) is neither.
_UUID = r"(?<![0-9A-Za-z])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Za-z])"
_START = re.compile(
    rf"(?P<id>{_UUID})|(?<![0-9A-Za-z])(?:[2-6](?=[ -]?[0-9])|[A-Za-z]{{2}}[0-9]{{2}})"
)
_REACH = re.compile(r"[0-9A-Za-z](?:[ \u00a0\u202f-]?[0-9A-Za-z]){12,33}")
_DIGITS = re.compile(r"[0-9 \u00a0\u202f-]+")
SUSPECTED = (
    r"(?<![0-9A-Za-z])(?![0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Za-z]))"
    r"(?:[2-6](?:[^0-9A-Za-z]?[0-9]){12}|[A-Za-z]{2}[0-9]{2}(?:[^0-9A-Za-z]?[0-9A-Za-z]){11}"
    r"|(?:sk|rk|tok|pat|gh[posu]|glpat|xox[a-z])[_-]|AKIA|eyJ)"
)
"""What PostgreSQL (`~`) says of every text that holds a secret, and of some that hold none."""
# ISO/IEC 7812: a card's number.
CARD_MIN, CARD_MAX = 13, 19
# ISO 13616: the shortest account number there is has 15 characters, the longest 34.
IBAN_MIN, IBAN_MAX = 15, 34


def sees(person: User, workspace: Workspace, *, deciding: bool = False) -> bool:
    """Whether a person is shown payloads; `deciding` where a call is put in front of people."""
    needed = OF_APPROVALS if deciding else ("view_sensitive",)
    if any(may(person, codename, workspace) for codename in needed):
        return True
    return deciding and delegations.is_deputy(person, workspace)


def reveals(person: User, workspace: Workspace, **what: Any) -> bool:
    """Whether a person's script is given payloads, `what` being the run and more; a reveal is on
    the record.
    """
    if not sees(person, workspace):
        return False
    outbox.record(workspace, EventType.PAYLOAD_REVEALED, by=person, data=what)
    return True


def value(found: Any, *, sensitive: bool, paths: Iterable[str] = ()) -> Any:
    """One value of a payload, for a reader; `paths` are the policy's `mask`."""
    if not sensitive:
        return None if found is None else HIDDEN
    try:
        return masking.masked(found, paths)
    except masking.Unfit:
        return HIDDEN  # what the ledger would not have kept cannot be masked by its rule


@exporting.cleans
def cleaner(person: User, workspace: Workspace, *, deciding: bool = False) -> Callable[[Any], Any]:
    """What a value of a file is put through for a person: pages are, after they are drawn."""
    return (lambda value: value) if sees(person, workspace, deciding=deciding) else without_secrets


def headline(plain: str, in_full: str, *, sensitive: bool) -> str:
    """What a case is called, for a reader. `in_full` says it with values of a payload, where a case
    has such a sentence; lists that are kept, search, messages and agents have the plain one alone.
    """
    return in_full if sensitive and in_full else plain


def fields(
    rows: Iterable[Mapping[str, Any]],
    *,
    sensitive: bool,
    paths: Iterable[str] = (),
    among: Collection[str] = ("was", "agent_wrote", "now"),
) -> list[dict[str, Any]]:
    """Rows of a difference, each of a `field`, with the values that stand `among` its members.

    A field whose name stands for a secret, or which a path of the policy names, is masked by it.
    """
    paths = list(paths)
    return [
        dict(row)
        | {
            name: _of_field(str(row.get("field")), row[name], paths)
            if sensitive
            else value(row[name], sensitive=False)
            for name in among
            if name in row
        }
        for row in rows
    ]


def _of_field(field: str, found: Any, paths: Iterable[str]) -> Any:
    """The value as it would be masked inside a snapshot, where the policy's paths find it."""
    names = field.split(".")
    inside = found
    for name in reversed(names):
        inside = {name: inside}
    seen = value({"before": inside, "after": inside}, sensitive=True, paths=paths)
    if not isinstance(seen, dict):
        return seen
    for side in ("before", "after"):
        end = seen[side]
        for name in names:
            if not isinstance(end, dict):
                break
            end = end[name]
        if end != found:
            return end
    return found


def without_secrets(found: Any) -> Any:
    """The same without the card numbers, account numbers and tokens in its texts and numbers."""
    if isinstance(found, str):
        return _without_numbers(_TOKEN.sub(TAKEN_OUT, found))
    if isinstance(found, dict):
        return {without_secrets(name): without_secrets(inner) for name, inner in found.items()}
    if isinstance(found, list | tuple):
        return [without_secrets(inner) for inner in found]
    if isinstance(found, int) and not isinstance(found, bool):
        return TAKEN_OUT if holds_secret(str(found)) else found
    return found


def holds_secret(text: str) -> bool:
    return without_secrets(text) != text  # type: ignore[no-any-return]


def parted(text: str) -> tuple[str, list[str]]:
    """The text as everybody is shown it, with blanks for its secrets; and the secrets."""
    secrets = [found[0] for found in _TOKEN.finditer(text)]
    rest = _TOKEN.sub(TAKEN_OUT, text)
    secrets += [rest[start:end] for start, end in _numbers(rest)]
    return _without_numbers(rest).replace(TAKEN_OUT, " "), secrets


def _without_numbers(text: str) -> str:
    kept, last = [], 0
    for start, end in _numbers(text):
        kept += [text[last:start], TAKEN_OUT]
        last = end
    return "".join(kept) + text[last:] if kept else text


def _numbers(text: str) -> Iterator[tuple[int, int]]:
    """Where each card and account in the text begins and ends."""
    last = 0
    for found in _START.finditer(text):
        start = found.start()
        end = 0 if found["id"] or start < last else _end_of_number(text, start)
        if end:
            yield start, end
            last = end


def _end_of_number(text: str, start: int) -> int:
    """Where the longest card or account that begins here ends; 0 where none does."""
    reach = _REACH.match(text, start)
    if reach is None:
        return 0
    for end in range(reach.end(), start + CARD_MIN - 1, -1):
        if text[end : end + 1].isalnum() or not text[end - 1].isalnum():
            continue
        if is_iban(text[start:end]) or is_card(text[start:end]):
            return end
    return 0


def is_card(text: str) -> bool:
    """Whether it is digits alone, and its check digit is right, as the ledger's rule has it."""
    plain = re.sub(r"[^0-9]", "", text)
    if not _DIGITS.fullmatch(text) or not CARD_MIN <= len(plain) <= CARD_MAX:
        return False
    return masking.holds_mask(masking.masked(plain))


def is_iban(text: str) -> bool:
    """Whether its check digits are right (ISO 13616: modulo 97 of ISO/IEC 7064)."""
    plain = re.sub(r"[^0-9A-Za-z]", "", text).upper()
    if not IBAN_MIN <= len(plain) <= IBAN_MAX or not plain[:2].isalpha():
        return False
    moved = plain[4:] + plain[:4]
    return int("".join(str(int(one, 36)) for one in moved)) % 97 == 1
