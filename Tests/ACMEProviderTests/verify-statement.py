"""Checks an answer to device-attest-01 by PyPI's fido2: verify-statement.py OBJECT KEY-AUTHORIZATION PUBLIC-KEY

OBJECT and PUBLIC-KEY are files, the latter DER. Prints 'accepted', or why not.
"""
import pathlib
import sys
import types

from cryptography.hazmat.primitives.serialization import load_der_public_key
from fido2 import cbor
from fido2.attestation.base import InvalidAttestation
from fido2.attestation.tpm import TpmAttestation
from fido2.cose import CoseKey


class KeyAuthorization:
    """Stands for the authenticator data, which ACME does not have."""

    def __init__(self, text, key):
        self.text = text.encode()
        cose = CoseKey.for_alg(-7 if hasattr(key, "curve") else -257)
        self.credential_data = types.SimpleNamespace(public_key=cose.from_cryptography_key(key))

    def __add__(self, other):
        return self.text + other


attestation = cbor.decode(pathlib.Path(sys.argv[1]).read_bytes())
assert list(attestation) == ["fmt", "attStmt"] and attestation["fmt"] == "tpm", attestation
assert attestation["attStmt"]["ver"] == "2.0", attestation
key = load_der_public_key(pathlib.Path(sys.argv[3]).read_bytes())
try:
    TpmAttestation().verify(attestation["attStmt"], KeyAuthorization(sys.argv[2], key), b"")
    print("accepted")
except (InvalidAttestation, AssertionError) as error:
    print(f"refused: {error!r}")
