"""The keys of the ring are changed: once it was rotated, the old one is needed by nothing."""

import pytest
from allauth.socialaccount.models import SocialAccount, SocialToken
from cryptography.fernet import Fernet
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db.models import BinaryField

from approvals.models import ConsentRequest
from config.sealed import COLUMNS
from recovery import corrections
from recovery.corrections import draft as draft_corrections
from recovery.corrections import publishing
from recovery.models import Correction
from tests.approvals.cast import asker
from workspaces import encryption
from workspaces.models import Secret

# Binary, and nothing that a key of the ring opens.
NOT_SEALED = {"digest", "person_digest", "salt", "facts_salt", "hash", "root", "content",
              "public_key"}  # fmt: skip


def test_every_binary_column_is_sealed_and_rotated_or_is_neither():
    ours = ("workspaces", "ledger", "connectors", "approvals", "recovery")
    found = {
        (model._meta.label, column.name)
        for app in ours
        for model in apps.get_app_config(app).get_models()
        for column in model._meta.local_concrete_fields
        if isinstance(column, BinaryField) and column.name not in NOT_SEALED
    }
    assert found == {(one.model._meta.label, one.column) for one in COLUMNS if one.is_binary}


@pytest.fixture
def sealed(raised, acme, ada):
    """A letter's link, a question's, a credential, and a log-in that is looked after."""
    [letter] = draft_corrections(raised.case())
    letter = corrections.publish(letter, by=ada, seen=letter.revision, ways=(publishing.LINK,))
    ConsentRequest.objects.create(
        approval=asker(acme, ada)(), person_ref="eve", name="Eve", contact="eve@example.com",
        question="May we?", token_digest="d", token_sealed=encryption.seal("token"),
    )  # fmt: skip
    Secret.objects.seal(acme, "payments", {"api_key": "sk_1"})
    account = SocialAccount.objects.create(user=ada, provider="oidc", uid="ada")
    SocialToken.objects.create(
        account=account, token="", token_secret=encryption.seal("refresh").decode()
    )
    return letter


@pytest.mark.django_db
def test_once_it_was_rotated_the_old_key_may_go(sealed, settings, capsys):
    link, old = corrections.link_of(sealed), settings.AMENDS_SECRET_KEYS
    new = Fernet.generate_key().decode()

    settings.AMENDS_SECRET_KEYS = [new]
    with pytest.raises(CommandError, match="put the key back"):
        call_command("rotate_secrets")
    settings.AMENDS_SECRET_KEYS = [new, *old]
    call_command("rotate_secrets")
    settings.AMENDS_SECRET_KEYS = [new]

    assert corrections.link_of(Correction.objects.get(pk=sealed.pk)) == link
    for one in COLUMNS:
        kept = dict(one.sealed(one.rows()))
        assert kept, one.words
        assert all(encryption.open_sealed(found) for found in kept.values())
    assert encryption.open_sealed(SocialToken.objects.get().token_secret.encode()) == "refresh"
    assert Secret.objects.get(name="payments").open() == {"api_key": "sk_1"}
