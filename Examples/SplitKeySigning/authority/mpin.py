"""The scheme: identities, a signature as it comes over the wire, and its verification by one pairing."""

import hashlib
import re
from dataclasses import dataclass

import pyblst

from . import curve
from .curve import Malformed

CURVE = "BLS12381"
LOGIN, SIGNING = "auth", "dvs-auth"


def identity_point(mpin_id: bytes, public_key: bytes):
    """A = Map(mpinId ‖ Pa)."""
    return curve.map_to_g1(mpin_id + public_key)


def number(timestamp: int, u: bytes, message: bytes) -> int:
    """y = H(t, U ‖ M) mod r."""
    return int.from_bytes(hashlib.sha256(timestamp.to_bytes(4, "big") + u + message).digest(), "big") % curve.R


def is_valid(a, public_key, u, v, y: int, verifier_key) -> bool:
    """Whether e(V, Pa)·e(U + y·A, W) = 1."""
    sum_ = u + a.scalar_mul(y)
    if curve.is_infinity(sum_):
        return False
    return pyblst.final_verify(pyblst.miller_loop(v, public_key), pyblst.miller_loop(-sum_, verifier_key))


def read_hex(text, what: str) -> bytes:
    # bytes.fromhex alone would read spaces as well.
    if not isinstance(text, str) or not re.fullmatch("(?:[0-9a-fA-F]{2})+", text):
        raise Malformed(f"{what} is not hex")
    return bytes.fromhex(text)


def read_public_key(text) -> bytes:
    data = read_hex(text, "publicKey")
    curve.read_g2(data)
    return data


@dataclass(frozen=True)
class Signature:
    """A signature object with its time: well formed, every point checked, and not verified yet."""

    message: bytes
    timestamp: int
    mpin_id: bytes
    public_key: bytes
    u: bytes
    v: bytes

    @classmethod
    def read(cls, value, timestamp) -> "Signature":
        if not isinstance(value, dict):
            raise Malformed("signature is not an object")
        fields = dict(value)
        if "mpinid" in fields:
            fields.setdefault("mpinId", fields["mpinid"])
        for name in ("hash", "mpinId", "u", "v", "publicKey", "dtas"):
            if not isinstance(fields.get(name), str) or not fields[name]:
                raise Malformed(f"{name} of the signature is missing or empty")
        # A bool is an int in Python.
        if type(timestamp) is not int or not 0 < timestamp < 2 ** 32:
            raise Malformed("timestamp is not a number of whole seconds from 1 to 2³² − 1")
        message = read_hex(fields["hash"], "hash")
        if len(message) != 32:
            raise Malformed("hash has not 64 hex digits")
        u, v = read_hex(fields["u"], "u"), read_hex(fields["v"], "v")
        curve.read_g1(u)
        curve.read_g1(v)
        return cls(message, timestamp, read_hex(fields["mpinId"], "mpinId"), read_public_key(fields["publicKey"]), u, v)

    @property
    def digest(self) -> bytes:
        """Names one try of a key: of the bytes, so that another spelling in hex is the same try."""
        return hashlib.sha256(self.message + self.timestamp.to_bytes(4, "big") + self.u + self.v).digest()

    def verify(self, verifier_key) -> bool:
        return is_valid(
            identity_point(self.mpin_id, self.public_key), curve.read_g2(self.public_key), curve.read_g1(self.u),
            curve.read_g1(self.v), number(self.timestamp, self.u, self.message), verifier_key)
