"""HTTP Digest (RFC 7616) with qop=auth."""

import hashlib
import hmac
import re
import secrets
import threading

HASHES = {"MD5": hashlib.md5, "SHA-256": hashlib.sha256}
PARAMETER = re.compile(r'\s*([A-Za-z0-9_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))\s*(?:,|$)')
REQUIRED = {"username", "realm", "nonce", "uri", "response", "qop", "nc", "cnonce"}


def parameters(text):
    """The parameters of a Digest header, or None where there is anything else between them."""
    found, position = {}, 0
    while position < len(text):
        match = PARAMETER.match(text, position)
        if not match or match[1].lower() in found:
            return None
        found[match[1].lower()] = match[3] if match[2] is None else re.sub(r"\\(.)", r"\1", match[2])
        position = match.end()
    return found


class Digest:
    """Checks Digest responses. A nonce serves `uses` requests (0: any number), and each of its counts once."""

    def __init__(self, realm, user, password, algorithms, uses):
        self.realm, self.user, self.password = realm, user, password
        self.algorithms, self.uses = algorithms, uses
        self.counts = {}
        # By nonce: a session's key is made with the cnonce of the first request (section 3.4.2).
        self.sessions = {}
        self.lock = threading.Lock()

    def challenges(self, stale=False):
        nonce = secrets.token_urlsafe(24)
        with self.lock:
            self.counts[nonce] = set()
        ending = ", stale=true" if stale else ""
        return [
            f'Digest realm="{self.realm}", qop="auth", algorithm={algorithm}, nonce="{nonce}", '
            f'opaque="{hashlib.sha256(nonce.encode()).hexdigest()[:16]}"{ending}'
            for algorithm in self.algorithms
        ]

    def expected(self, algorithm, method, given):
        def hashed(*parts):
            return HASHES[algorithm.removesuffix("-sess")](":".join(parts).encode()).hexdigest()

        secret = hashed(self.user, self.realm, self.password)
        if algorithm.endswith("-sess"):
            secret = hashed(secret, given["nonce"], self.sessions.get(given["nonce"], given["cnonce"]))
        request = hashed(method, given["uri"])
        return hashed(secret, given["nonce"], given["nc"], given["cnonce"], given["qop"], request)

    def check(self, method, target, text):
        """(whether the response is right, whether a new nonce is all that it lacks)"""
        given = parameters(text)
        if given is None or not REQUIRED <= given.keys() or not re.fullmatch("[0-9a-f]{8}", given["nc"]):
            return False, False
        algorithm = given.get("algorithm", "MD5")
        opaque = hashlib.sha256(given["nonce"].encode()).hexdigest()[:16]
        same = (given["realm"], given["uri"], given["qop"], given.get("opaque")) == (self.realm, target, "auth", opaque)
        if algorithm not in self.algorithms or not same or given["username"] != self.user:
            return False, False
        if not hmac.compare_digest(self.expected(algorithm, method, given).encode(), given["response"].encode()):
            return False, False
        with self.lock:
            counts = self.counts.get(given["nonce"])
            if counts is None or given["nc"] in counts or (self.uses and len(counts) >= self.uses):
                return False, True
            counts.add(given["nc"])
            self.sessions.setdefault(given["nonce"], given["cnonce"])
        return True, False
