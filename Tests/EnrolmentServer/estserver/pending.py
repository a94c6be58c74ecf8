"""Requests that an officer would have to approve first: 202 until they have been asked for often enough."""

import email.utils
import threading
import time

from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import AttributeOID


def retry_after(text):
    """The value of Retry-After: seconds, an HTTP-date that many seconds ahead, or None for no such header."""
    kind, _, seconds = text.partition("-")
    if kind == "date":
        return email.utils.formatdate(time.time() + int(seconds), usegmt=True)
    return None if kind == "absent" else str(int(text))


def content(csr):
    """What has to stay the same from one request to the next.

    That is the whole CSR, but for one with a challengePassword: that is bound to its connection, and the next request
    may come over another one.
    """
    attributes = [(one.oid.dotted_string, one.value) for one in csr.attributes]
    others = [one for one in attributes if one[0] != AttributeOID.CHALLENGE_PASSWORD.dotted_string]
    if len(others) == len(attributes):
        return csr.public_bytes(Encoding.DER)
    return csr.subject.public_bytes(), tuple(others)


class PendingRequests:
    def __init__(self):
        self.entries = {}
        self.lock = threading.Lock()

    def waits(self, key, csr, client, count, notes):
        """Whether this request is answered 202 once more; `notes` takes what a client should not have done."""
        wanted = content(csr)
        with self.lock:
            entry = self.entries.get(key)
            if entry is None and any(other["client"] == client and other["open"] for other in self.entries.values()):
                notes.append("another key by a client with a pending request")
            if entry is not None and entry["content"] != wanted:
                notes.append("another CSR for the key of an earlier request")
                entry = None
            if entry is None:
                entry = self.entries[key] = {"content": wanted, "client": client, "left": count}
            entry["open"] = entry["left"] > 0
            entry["left"] -= entry["open"]
            return entry["open"]
