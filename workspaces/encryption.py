"""The key ring for secrets at rest: the first key encrypts, every key decrypts.

Fernet (AES-128-CBC with HMAC-SHA256, https://github.com/fernet/spec) from `cryptography`; keys
come from the setting `AMENDS_SECRET_KEYS`, so that a rotation is "put the new key first, run
`manage.py rotate_secrets`, drop the old one".
"""

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

VALUE_BYTES_MAX = 16 * 1024


class CannotOpen(Exception):
    """We stopped because no key of the ring opens this secret: put the old key back and rotate."""


class TooLong(ValueError):
    """We stopped because a secret of more than 16 KiB is a file, not a credential."""


def _ring() -> MultiFernet:
    return MultiFernet([Fernet(key) for key in settings.AMENDS_SECRET_KEYS])


def seal(clear: str, *, bytes_max: int = VALUE_BYTES_MAX) -> bytes:
    """Sealed under the first key; TooLong above `bytes_max`, which is larger for what is sealed and
    is no credential.
    """
    if len(clear.encode()) > bytes_max:
        raise TooLong(f"a secret may have {bytes_max} bytes")
    return _ring().encrypt(clear.encode())


def open_sealed(sealed: bytes) -> str:
    try:
        return _ring().decrypt(sealed).decode()
    except InvalidToken as wrong_key:
        raise CannotOpen("no key of AMENDS_SECRET_KEYS opens this secret") from wrong_key


def rotate(sealed: bytes) -> bytes:
    try:
        return _ring().rotate(sealed)
    except InvalidToken as wrong_key:
        raise CannotOpen("no key of AMENDS_SECRET_KEYS opens this secret") from wrong_key
