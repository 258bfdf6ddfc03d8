"""A security key in software: it is added to an account as allauth keeps it, and signs what a
browser would have it sign.
"""

import hashlib
import json
from typing import Any

from allauth.mfa.models import Authenticator
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from fido2.cose import ES256, CoseKey
from fido2.utils import websafe_encode
from fido2.webauthn import Aaguid, AttestationObject, AttestedCredentialData, AuthenticatorData

DESK = "http://localhost:8000"
FLAG = AuthenticatorData.FLAG


class SecurityKey:
    """One key of one person. `counter` rises with each signature."""

    def __init__(
        self,
        person: Any,
        name: str = "blue key",
        *,
        rp_id: str = "localhost",
        cose: CoseKey | None = None,
    ) -> None:
        self.private = ec.generate_private_key(ec.SECP256R1())
        self.id = hashlib.sha256(f"{person.pk} {name}".encode()).digest()
        self.rp_id = hashlib.sha256(rp_id.encode()).digest()
        self.counter = 0
        cose = cose or ES256.from_cryptography_key(self.private.public_key())
        held = AttestedCredentialData.create(Aaguid.NONE, self.id, cose)
        flags = FLAG.UP | FLAG.UV | FLAG.AT
        made = AuthenticatorData.create(self.rp_id, flags, 0, bytes(held))
        self.row = Authenticator.objects.create(
            user=person,
            type=Authenticator.Type.WEBAUTHN,
            data={"name": name, "credential": self._created(made)},
        )

    def _created(self, made: AuthenticatorData) -> dict[str, Any]:
        client = {"type": "webauthn.create", "challenge": "", "origin": DESK}
        attested = AttestationObject.create("none", made, {})
        return {
            "id": websafe_encode(self.id),
            "rawId": websafe_encode(self.id),
            "type": "public-key",
            "response": {
                "clientDataJSON": websafe_encode(json.dumps(client).encode()),
                "attestationObject": websafe_encode(bytes(attested)),
            },
            "clientExtensionResults": {},
        }

    def sign(
        self, options: dict[str, Any], *, origin: str = DESK, flags: Any = FLAG.UP | FLAG.UV
    ) -> dict[str, Any]:
        """The answer of `navigator.credentials.get` to these options."""
        self.counter += 1
        client = json.dumps(
            {"type": "webauthn.get", "challenge": options["challenge"], "origin": origin}
        ).encode()
        data = AuthenticatorData.create(self.rp_id, flags, self.counter)
        signed = bytes(data) + hashlib.sha256(client).digest()
        return {
            "id": websafe_encode(self.id),
            "rawId": websafe_encode(self.id),
            "type": "public-key",
            "response": {
                "clientDataJSON": websafe_encode(client),
                "authenticatorData": websafe_encode(bytes(data)),
                "signature": websafe_encode(self.private.sign(signed, ec.ECDSA(SHA256()))),
            },
            "clientExtensionResults": {},
        }
