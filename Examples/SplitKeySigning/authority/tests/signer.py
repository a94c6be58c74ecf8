"""A host for the tests: the least that enrols, logs in and signs. Not constant in time, nothing is wiped."""

import hashlib
import json
import secrets
import ssl
import urllib.error
import urllib.request

from authority import curve, mpin


class Key:
    """What a host stores of a key, and what it does with a PIN."""

    def __init__(self, mpin_id, public_key, token, dtas="W10="):
        self.mpin_id, self.public_key, self.token, self.dtas = mpin_id, public_key, token, dtas
        self.a = mpin.identity_point(mpin_id, public_key)

    def sign(self, message: bytes, timestamp: int, pin: int) -> dict:
        x = secrets.randbelow(curve.R - 1) + 1
        u = curve.write_g1(self.a.scalar_mul(x))
        y = mpin.number(timestamp, u, message)
        v = -(self.token + self.a.scalar_mul(pin)).scalar_mul((x + y) % curve.R)
        signature = {"hash": message.hex(), "mpinId": self.mpin_id.hex(), "u": u.hex(), "v": curve.write_g1(v).hex(),
                     "publicKey": self.public_key.hex(), "dtas": self.dtas}
        return {"signature": signature, "timestamp": timestamp}


def new_pair():
    """z, and Pa = z⁻¹·Q."""
    z = secrets.randbelow(curve.R - 1) + 1
    return z, curve.write_g2(curve.G2_GENERATOR.scalar_mul(pow(z, -1, curve.R)))


def token_of(z, shares, mpin_id, public_key, pin):
    a = mpin.identity_point(mpin_id, public_key)
    return (shares[0] + shares[1]).scalar_mul(z) + -a.scalar_mul(pin)


class Host:
    """Calls an authority at a URL."""

    def __init__(self, url: str, ca: str):
        self.url, self.context = url, ssl.create_default_context(cafile=ca)
        self.opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=self.context), NoRedirect())

    def call(self, path, body=None, headers=None):
        """(status, JSON, headers); `body` is JSON, or bytes as they are."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        url = path if path.startswith("https:") else self.url + path
        try:
            with self.opener.open(urllib.request.Request(url, data, headers or {}), timeout=30) as answer:
                return answer.status, json.load(answer), answer.headers
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error), error.headers

    def post(self, path, body, headers=None):
        return self.call(path, body, headers)[:2]

    def register(self, token, pin) -> Key:
        z, public_key = new_pair()
        status, one = self.post("/rps/v2/dvsregister", {"token": token, "publicKey": public_key.hex()})
        assert status == 200, one
        status, two, _ = self.call(one["cs2url"])
        assert status == 200, two
        mpin_id = bytes.fromhex(one["mpinId"])
        shares = [curve.read_g1(bytes.fromhex(share))
                  for share in (one["dvsClientSecretShare"], two["dvsClientSecret"])]
        return Key(mpin_id, public_key, token_of(z, shares, mpin_id, public_key, pin), one["dtas"])

    def enrol(self, token, pin, now) -> Key:
        key = self.register(token, pin)
        status, answer = self.post("/rps/v2/dvsconfirm", {"token": token} | key.sign(secrets.token_bytes(32), now, pin))
        assert status == 200, answer
        return key

    def challenge(self, key) -> bytes:
        status, answer = self.post("/rps/v2/login/challenge", {"mpinId": key.mpin_id.hex()})
        assert status == 200, answer
        return bytes.fromhex(answer["challenge"])

    def login(self, key, pin, now):
        return self.post("/rps/v2/login", key.sign(self.challenge(key), now, pin))

    def verify(self, body, basic):
        return self.post("/dvs/verify", {"type": "verification"} | body, {"Authorization": basic})


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def document_hash(document: bytes) -> bytes:
    return hashlib.sha256(document).digest()
