"""The verifier: registers keys, logs in, verifies signatures and gives receipts."""

import base64
import hashlib
import hmac
import json
import os
import secrets
import time

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from . import mpin
from .curve import Malformed
from .mpin import LOGIN, SIGNING, Signature
from .store import Store, hashed, private_file
from .web import Refusal

CHALLENGE_LIFETIME = 60
SESSION_LIFETIME = 600
RECEIPT_LIFETIME = 600
CLOCK_TOLERANCE = 60


class JWTKey:
    """An RSA key of the state directory that signs tokens."""

    def __init__(self, path: str):
        self.private = serialization.load_pem_private_key(private_file(path, self.make), None)
        public = self.private.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        self.id = hashlib.sha256(public).hexdigest()[:16]

    @staticmethod
    def make() -> bytes:
        return rsa.generate_private_key(65537, 2048).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())

    def sign(self, claims: dict) -> str:
        return jwt.encode(claims, self.private, algorithm="RS256", headers={"kid": self.id})

    def jwks(self, request) -> dict:
        key = jwt.algorithms.RSAAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        more = {"kid": self.id, "alg": "RS256", "use": "sig"}
        return {"keys": [{name: key[name] for name in ("kty", "n", "e")} | more]}


class Verifier:
    """`issuers` are the two clients of issuers, `url` is the authority's own."""

    def __init__(self, state: str, issuers: list, url: str, company="COMPANY", clock=time.time):
        self.store, self.issuers, self.url = Store(state, clock), issuers, url
        self.company, self.clock = company, clock
        self.receipt_key = JWTKey(os.path.join(state, "receipt-key.pem"))
        self.session_key = private_file(os.path.join(state, "session-key"), lambda: secrets.token_bytes(32))
        # W. It is worth as much as all PINs, and is never on disk.
        self.verifier_key = issuers[0].verifier_key() + issuers[1].verifier_key()
        self.routes = {
            "/rps/v2/dvsregister": {"POST": self.register},
            "/rps/v2/dvsconfirm": {"POST": self.confirm},
            "/rps/v2/login/challenge": {"POST": self.challenge},
            "/rps/v2/login": {"POST": self.login},
            "/dvs/verify": {"POST": self.verify},
            "/dvs/jwks": {"GET": self.receipt_key.jwks},
        }

    def register(self, request) -> dict:
        """A code gives a login key, a session a signing key. Neither counts before `confirm`."""
        token, public_key = request.text("token"), mpin.read_public_key(request.text("publicKey"))
        code, session = self.store.code(token), self.store.session(token)
        if code and code["used"] is None:
            user, scope = code["user"], LOGIN
        elif session:
            user, scope = session["user"], SIGNING
        else:
            raise Refusal(401, "The token is unknown, used or over.")
        names = [issuer.name for issuer in self.issuers]
        mpin_id = json.dumps(
            {"iat": int(self.clock()), "userID": user, "cID": self.company, "salt": secrets.token_hex(16), "v": 5,
             "scope": [scope], "dtas": names, "vt": "pv"}, separators=(",", ":"), ensure_ascii=False).encode()
        share = self.issuers[0].share(mpin_id, public_key)
        with self.store.transaction() as db:
            db.execute("INSERT INTO keys (mpin_id, public_key, user, scope, token) VALUES (?, ?, ?, ?, ?)",
                       (mpin_id, public_key, user, scope, hashed(token)))
        dtas = base64.b64encode(json.dumps(names, separators=(",", ":")).encode()).decode()
        return {"dvsClientSecretShare": share, "cs2url": self.issuers[1].share_url(mpin_id, public_key),
                "curve": mpin.CURVE, "dtas": dtas, "mpinId": mpin_id.hex()}

    def confirm(self, request) -> dict:
        """The probe: enrols the key of this token, or tests the PIN of an enrolled key of the session's user."""
        signature, key = self.read(request)
        token = request.text("token")

        def claim(db, is_known):
            code, session = self.store.code(token), self.store.session(token)
            if code:
                # A used code answers for its key alone, and only the probe that it has had.
                is_again = code["used"] == signature.mpin_id and is_known
                is_allowed = key["token"] == hashed(token) and (code["used"] is None or is_again)
            else:
                is_users = session is not None and session["user"] == key["user"]
                is_allowed = is_users and (key["enrolled"] or key["scope"] == SIGNING)
            if not is_allowed:
                raise Refusal(403, "The token is not for this key, is used, or is over.")

        def accept(db):
            db.execute("UPDATE keys SET enrolled = 1 WHERE mpin_id = ?", (signature.mpin_id,))
            db.execute("UPDATE codes SET used = ? WHERE token = ?", (signature.mpin_id, hashed(token)))

        self.decide(signature, claim, accept)
        return {}

    def challenge(self, request) -> dict:
        mpin_id = mpin.read_hex(request.text("mpinId"), "mpinId")
        key = self.store.key(mpin_id)
        if not key or not key["enrolled"] or key["scope"] != LOGIN:
            raise Refusal(404, "There is no enrolled login key of this mpinId.")
        challenge = secrets.token_bytes(32)
        with self.store.transaction() as db:
            db.execute("DELETE FROM challenges WHERE expires < ?", (self.clock(),))
            db.execute("INSERT INTO challenges (challenge, mpin_id, expires) VALUES (?, ?, ?)",
                       (challenge, mpin_id, self.clock() + CHALLENGE_LIFETIME))
        return {"challenge": challenge.hex(), "expires": CHALLENGE_LIFETIME}

    def login(self, request) -> dict:
        signature, key = self.read(request, scope=LOGIN)

        def claim(db, is_known):
            # A challenge is for one signature, right or wrong; the same one may come again.
            if db.execute("UPDATE challenges SET used = ?1 WHERE challenge = ?2 AND mpin_id = ?3 AND expires > ?4"
                          " AND (used IS NULL OR used = ?1)",
                          (signature.digest, signature.message, signature.mpin_id, self.clock())).rowcount != 1:
                raise Refusal(400, "The challenge is unknown, used or over. Get another.")

        # Computed, so that the same login gets the same session without one being on disk.
        session = hmac.new(self.session_key, signature.mpin_id + signature.digest, hashlib.sha256).hexdigest()

        def accept(db):
            now = self.clock()
            db.execute("DELETE FROM sessions WHERE expires < ?", (now,))
            db.execute("INSERT INTO sessions VALUES (?, ?, ?, ?)",
                       (hashed(session), key["user"], now, now + SESSION_LIFETIME))

        self.decide(signature, claim, accept)
        return {"session": session, "expires": SESSION_LIFETIME}

    def verify(self, request) -> dict:
        client = self.store.authenticated_client(request.basic())
        if not client:
            raise Refusal(403, "The client is unknown, or its secret is wrong.")
        if request.json().get("type") != "verification":
            raise Malformed("type is not verification")
        signature, _ = self.read(request, scope=SIGNING)
        self.decide(signature)
        now = int(self.clock())
        return {"certificate": self.receipt_key.sign({
            "iss": self.url, "aud": client["id"], "iat": now, "exp": now + RECEIPT_LIFETIME,
            "hash": signature.message.hex(), "mpinId": signature.mpin_id.hex(), "publicKey": signature.public_key.hex(),
            "timestamp": signature.timestamp, "cAt": max(now, signature.timestamp)})}

    def read(self, request, scope=None):
        """The signature of the body and its key: of its own publicKey, enrolled and of this scope if one is wanted."""
        body = request.json()
        signature = Signature.read(body.get("signature"), body.get("timestamp"))
        if signature.timestamp > self.clock() + CLOCK_TOLERANCE:
            raise Malformed("timestamp is in the future")
        key = self.store.key(signature.mpin_id)
        if not key or key["public_key"] != signature.public_key:
            raise Malformed("there is no key of this mpinId and publicKey")
        if scope and (not key["enrolled"] or key["scope"] != scope):
            raise Malformed(f"the key is not an enrolled one of the scope {scope}")
        return signature, key

    def decide(self, signature, claim=None, accept=None):
        """Returns if the signature is right. It is one try of its key."""
        is_right = self.store.try_(
            signature.mpin_id, signature.digest, lambda: signature.verify(self.verifier_key), claim, accept)
        if is_right is None:
            raise Refusal(410, "The key is blocked after three wrong PINs. Enrol a new one.")
        if not is_right:
            raise Refusal(401, "The PIN is wrong.")
