"""The keys that sign heads, one living key per workspace; private halves are sealed secrets."""

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from amends.protocol.proofs import Checkpoint, NotProven
from amends.protocol.proofs import LogKey as PublicKey
from amends.protocol.vocabulary import EventType
from ledger import desk_events, merkle
from ledger.merkle import ParsedHead, Signer
from ledger.models import LogKey
from workspaces.encryption import CannotOpen
from workspaces.models import Secret, User, Workspace

KEYS_OPENED_MAX = 4_096
"""A kilobyte each. They are asked for in turn: of more, each would be opened anew each time."""


def signer(workspace: Workspace) -> Signer:
    """The workspace's living key; made when first needed."""
    found = living(workspace) or _make(workspace, _first_origin(workspace))
    return Signer(found.origin, _private(found.pk))


def living(workspace: Workspace) -> LogKey | None:
    found = LogKey.objects.filter(workspace=workspace, retired_at=None)
    # The sealer forbids PostgreSQL to sort: for an order it would read the keys of every workspace.
    return max(found, key=lambda one: one.pk, default=None)


def public_keys(workspace: Workspace) -> list[PublicKey]:
    """Every public key that ever signed the log, the living one first."""
    rows = LogKey.objects.filter(workspace=workspace).order_by("-pk")
    return [PublicKey.of(row.origin, bytes(row.public_key)) for row in rows]


def own_keys(workspace: Workspace) -> list[PublicKey]:
    """The same out of the private halves, which only the desk can open: rows of public keys are
    what who owns the database writes there. One that is lost is none of them.
    """
    found = []
    for one in LogKey.objects.filter(workspace=workspace).order_by("-pk"):
        with suppress(CannotOpen):
            public = _private(one.pk).public_key().public_bytes_raw()
            found.append(PublicKey.of(one.origin, public))
    return found


def is_lost(workspace: Workspace) -> bool:
    """Whether no key of AMENDS_SECRET_KEYS opens the key by which the next head is signed."""
    found = living(workspace)
    try:
        if found is not None:
            _private(found.pk)
    except CannotOpen:
        return True
    return False


def published(workspace: Workspace) -> list[str]:
    """The same as texts that verifiers take."""
    return list(map(str, public_keys(workspace)))


def has_signed(workspace: Workspace, note: str) -> bool:
    """Whether a key of this log, living or retired, signed the note."""
    try:
        Checkpoint.parse(note).check(public_keys(workspace))
    except NotProven:
        return False
    return True


@transaction.atomic
def rotate(workspace: Workspace, *, by: User | None) -> LogKey:
    """Sign under the same origin with a new key from the next head on."""
    old = living(workspace)
    origin = old.origin if old else _first_origin(workspace)
    LogKey.objects.filter(workspace=workspace, retired_at=None).update(retired_at=Now())
    new = _make(workspace, origin)
    desk_events.record(
        workspace, EventType.LEDGER_KEY_ROTATED, by=by, part="sealer",
        data={"origin": origin, "public": str(PublicKey.of(origin, bytes(new.public_key)))},
    )  # fmt: skip
    return new


def begin_anew(
    workspace: Workspace, last_good: ParsedHead, *, is_taken: Callable[[str], bool]
) -> Signer:
    """Start a new origin after the log went back; the old one is never signed over. Nor is one that
    `is_taken`: of a desk that was restored from this backup before, and forgot it again.
    """
    number = LogKey.objects.filter(workspace=workspace).values("origin").distinct().count() + 1
    LogKey.objects.filter(workspace=workspace, retired_at=None).update(retired_at=Now())
    while is_taken(origin := f"{_first_origin(workspace)}/{number}"):
        number += 1
    _make(workspace, origin)
    new = signer(workspace)
    desk_events.record(
        workspace, EventType.LEDGER_ORIGIN_CHANGED, part="sealer",
        data={"from": last_good.origin, "to": new.origin, "size": last_good.size,
              "root": merkle.base64_text(last_good.root)},
    )  # fmt: skip
    return new


def _first_origin(workspace: Workspace) -> str:
    return f"{urlsplit(settings.AMENDS_URL).netloc}/{workspace.slug}"


def _make(workspace: Workspace, origin: str) -> LogKey:
    private = Ed25519PrivateKey.generate()
    sealed = Secret.objects.seal(
        workspace, f"log key {origin}", {"seed": private.private_bytes_raw().hex()}
    )
    return LogKey.objects.create(
        workspace=workspace,
        origin=origin,
        public_key=private.public_key().public_bytes_raw(),
        secret=sealed,
    )


@lru_cache(maxsize=KEYS_OPENED_MAX)
def _private(log_key_id: int) -> Ed25519PrivateKey:
    row = LogKey.objects.select_related("secret").get(pk=log_key_id)
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(row.secret.open()["seed"]))
