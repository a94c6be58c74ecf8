"""An issuer (D-TA): holds one half of the secret, in a process of its own, and gives shares to who has a ticket."""

import base64
import hashlib
import hmac
import json
import os
import secrets
import time
import urllib.error
import urllib.request

from . import curve, mpin
from .curve import Malformed
from .store import Database, private_file
from .web import Refusal

TICKET_LIFETIME = 60
SCHEMA = "CREATE TABLE IF NOT EXISTS tickets (tag TEXT PRIMARY KEY, expires REAL NOT NULL)"


def ticket_key(state: str, name: str) -> bytes:
    """Each issuer has a key of its own with the authority, so that no issuer can ask another."""
    return private_file(os.path.join(state, name, "ticket-key"), lambda: secrets.token_bytes(32))


def make_ticket(key: bytes, now: float, **content) -> str:
    content.update(expires=int(now) + TICKET_LIFETIME, nonce=secrets.token_hex(16))
    data = json.dumps(content).encode()
    return base64.urlsafe_b64encode(data).decode() + "." + hmac.new(key, data, hashlib.sha256).hexdigest()


class Issuer:
    def __init__(self, state: str, name: str, clock=time.time):
        folder = os.path.join(state, name)
        self.name, self.clock = name, clock
        self.secret = int.from_bytes(private_file(os.path.join(folder, "secret"), self.make_secret), "big")
        self.key = ticket_key(state, name)
        self.database = Database(os.path.join(folder, "tickets.sqlite"), SCHEMA)
        self.routes = {"/share": {"GET": self.share}, "/verifier-key": {"GET": self.verifier_key}}

    @staticmethod
    def make_secret() -> bytes:
        return (secrets.randbelow(curve.R - 1) + 1).to_bytes(32, "big")

    def share(self, request) -> dict:
        """Cᵢ = sᵢ·A for the identity of the ticket."""
        ticket = self.use(request.query.get("ticket", ""), "share")
        point = mpin.identity_point(bytes.fromhex(ticket["mpinId"]), bytes.fromhex(ticket["publicKey"]))
        return {"dvsClientSecret": curve.write_g1(point.scalar_mul(self.secret)).hex()}

    def verifier_key(self, request) -> dict:
        """sᵢ·Q, a part of the verifier's key."""
        self.use(request.query.get("ticket", ""), "verifier-key")
        return {"verifierKey": curve.write_g2(curve.G2_GENERATOR.scalar_mul(self.secret)).hex()}

    def use(self, ticket: str, use: str) -> dict:
        encoded, _, tag = ticket.partition(".")
        try:
            data = base64.b64decode(encoded, altchars=b"-_", validate=True)
        except ValueError:
            raise Malformed("the ticket is not base64") from None
        expected = hmac.new(self.key, data, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(expected.encode(), tag.encode()):
            raise Refusal(403, "The ticket is not for this issuer.")
        content = json.loads(data)
        if content["use"] != use:
            raise Refusal(403, "The ticket is for something else.")
        with self.database.transaction() as db:
            db.execute("DELETE FROM tickets WHERE expires < ?", (self.clock() - 3600,))
            row = (expected, content["expires"])
            is_new = db.execute("INSERT OR IGNORE INTO tickets VALUES (?, ?)", row).rowcount == 1
        if not is_new or content["expires"] < self.clock():
            raise Refusal(410, "The ticket is used or over. Register again.")
        return content


class IssuerClient:
    """The authority's side of an issuer."""

    def __init__(self, name: str, url: str, key: bytes, context, clock=time.time):
        self.name, self.url, self.key, self.context, self.clock = name, url, key, context, clock

    def share_url(self, mpin_id: bytes, public_key: bytes) -> str:
        ticket = make_ticket(self.key, self.clock(), use="share", mpinId=mpin_id.hex(), publicKey=public_key.hex())
        return f"{self.url}/share?ticket={ticket}"

    def share(self, mpin_id: bytes, public_key: bytes) -> str:
        return self.get(self.share_url(mpin_id, public_key))["dvsClientSecret"]

    def verifier_key(self):
        ticket = make_ticket(self.key, self.clock(), use="verifier-key")
        return curve.read_g2(bytes.fromhex(self.get(f"{self.url}/verifier-key?ticket={ticket}")["verifierKey"]))

    def get(self, url: str) -> dict:
        try:
            with urllib.request.urlopen(url, context=self.context, timeout=10) as answer:
                return json.load(answer)
        except (OSError, ValueError) as error:
            raise Refusal(503, f"Issuer {self.name} gives no answer: {error}.") from None
