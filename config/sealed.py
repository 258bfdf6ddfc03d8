"""Where secrets rest: every column that `AMENDS_SECRET_KEYS` opens, to be rotated and looked at."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from allauth.socialaccount.models import SocialToken
from django.db import transaction
from django.db.models import BinaryField, Model, QuerySet
from django.db.models.functions import Now

from approvals import named_lists
from approvals.models import ConsentRequest
from ledger import logkeys
from ledger.partitions import owner_alias
from recovery.models import Correction
from workspaces import encryption
from workspaces.models import Secret, Workspace, new_masking_key, opened_masking_key

BATCH = 200


class SealedColumn(NamedTuple):
    """One column; `words` name for people what is in it."""

    words: str
    model: type[Model]
    column: str

    def rows(self) -> QuerySet[Any]:
        """Those in which something is sealed."""
        nothing = b"" if self.is_binary else ""
        every: QuerySet[Any] = self.model._default_manager.all()
        return every.exclude(**{self.column: None}).exclude(**{self.column: nothing})

    @property
    def is_binary(self) -> bool:
        return isinstance(self.model._meta.get_field(self.column), BinaryField)

    def sealed(self, rows: QuerySet[Any]) -> Iterator[tuple[int, bytes]]:
        """Their keys, with what is sealed in each."""
        for pk, found in rows.values_list("pk", self.column):
            yield pk, bytes(found) if self.is_binary else found.encode()

    def rotate(self) -> tuple[int, int]:
        """Seal each anew under the first key; how many, and how many no key of the ring opens. What
        somebody writes meanwhile is under the first key by itself, and stays.
        """
        rotated = lost = after = 0
        noted = {"rotated_at": Now()} if self.model is Secret else {}
        # By the owner: the role of a desk puts no secret in another's place.
        rows = self.rows().using(owner_alias())
        while some := list(self.sealed(rows.filter(pk__gt=after).order_by("pk")[:BATCH])):
            for pk, found in some:
                try:
                    new: Any = encryption.rotate(found)
                except encryption.CannotOpen:
                    lost += 1
                    continue
                old: Any = found
                if not self.is_binary:
                    old, new = old.decode(), new.decode()
                same = rows.filter(pk=pk, **{self.column: old})
                rotated += same.update(**{self.column: new}, **noted)
            after = some[-1][0]
        return rotated, lost


COLUMNS = (
    SealedColumn("credentials of connections", Secret, "sealed"),
    SealedColumn("masking keys of workspaces", Workspace, "masking_key"),
    SealedColumn("links of corrections", Correction, "token_sealed"),
    SealedColumn("links to affected people", ConsentRequest, "token_sealed"),
    SealedColumn("log-ins with a company", SocialToken, "token_secret"),
)


# Without these two a workspace records nothing, and its log is not signed.

MASKING, LOG = "masking key", "key of the log"


def lost_keys(workspace: Workspace) -> list[str]:
    """Which of the two no key of AMENDS_SECRET_KEYS opens."""
    found = [LOG] if logkeys.is_lost(workspace) else []
    try:
        opened_masking_key(bytes(workspace.masking_key))
    except encryption.CannotOpen:
        found.insert(0, MASKING)
    return found


def replace_lost(workspace: Workspace) -> list[str]:
    """Make these anew; which they were. Masked values of before are like none from now on, and none
    is said to be missing among them (`named_lists.lose`); the log goes on under its name with
    another key.
    """
    lost = lost_keys(workspace)
    if MASKING in lost:
        alias = owner_alias()  # the role of a desk may not
        rows = Workspace.objects.using(alias).filter(pk=workspace.pk)
        with transaction.atomic(using=alias):
            if rows.filter(masking_key=bytes(workspace.masking_key)).update(
                masking_key=new_masking_key()
            ):  # else somebody else was quicker
                named_lists.lose(workspace, using=alias)
        workspace.refresh_from_db(fields=["masking_key"])
    if LOG in lost:
        logkeys.rotate(workspace, by=None)
    return lost


def lost_log_ins() -> list[str]:
    """Tokens by which companies are asked who left, that no key opens; as they are sealed."""
    lost = []
    rows = SocialToken.objects.filter(token="").exclude(token_secret="")
    for sealed in rows.values_list("token_secret", flat=True).iterator():
        try:
            encryption.open_sealed(sealed.encode())
        except encryption.CannotOpen:
            lost.append(sealed)
    return lost


def let_go(log_ins: list[str]) -> None:
    """Whose they are is asked about again from a log-in on that brings a token; one that came
    meanwhile stays. What is sealed in these would be sent as it lies once it was sealed anew, and
    its person taken for one who left.
    """
    SocialToken.objects.filter(token_secret__in=log_ins).update(token_secret="")
