"""Who a client is: HTTP Basic, Digest or bearer token, a client certificate, or one of those with a certificate."""

import base64
import binascii
import hmac

from .messages import HTTPError

REALM = "Enrolment Test"


def equal(given, right):
    return hmac.compare_digest(given.encode(), right.encode())


def basic_credentials(authorization):
    """(user, password) of a Basic header, None where there is none that can be read."""
    scheme, _, text = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(text.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (user, password) if colon else None


class Authentication:
    """`digest` and `tokens` serve the two schemes that have a state."""

    def __init__(self, options, digest, tokens):
        self.options, self.digest, self.tokens = options, digest, tokens
        self.modes = set(options.auth.split("+")) - {"none"}

    def check(self, operation, request, certificate, record):
        """Ends with 401 or 403, or with the user in the record.

        Re-enrolment stands on the certificate it renews. It needs a password as well only where --auth demands both.
        """
        if certificate is None and ("certificate" in self.modes or operation == "simplereenroll"):
            record["refused"] = "certificate"
            raise HTTPError(403, "A client certificate is required.")
        schemes = self.modes - {"certificate"}
        if operation == "simplereenroll" and "certificate" not in self.modes:
            schemes = set()
        if not schemes:
            return
        headers = self.refusal(schemes, request, record)
        if headers is not None:
            record["refused"] = "authentication"
            raise HTTPError(401, "Authentication is required.", headers)

    def refusal(self, schemes, request, record):
        """None if the request is authenticated, else the challenges."""
        authorization = request.headers.get("authorization", "")
        scheme, _, text = authorization.partition(" ")
        challenges = []
        if "digest" in schemes:
            right, stale = False, False
            if scheme.lower() == "digest":
                right, stale = self.digest.check(request.method, request.target, text)
                record["user"] = self.options.user if right else None
                record["stale_nonce"] = stale
            challenges += [] if right else self.digest.challenges(stale)
        if "basic" in schemes:
            user, password = basic_credentials(authorization) or ("", "")
            if equal(user, self.options.user) & equal(password, self.options.password):
                record["user"] = user
            challenges.append(f'Basic realm="{REALM}", charset="UTF-8"')
        if schemes & {"bearer", "oauth"}:
            given = scheme.lower() == "bearer"
            if given:
                record["user"] = self.bearer(schemes, text.strip())
            challenges.append(f'Bearer realm="{REALM}"' + (', error="invalid_token"' if given else ""))
        return None if record["user"] is not None else [("WWW-Authenticate", value) for value in challenges]

    def bearer(self, schemes, token):
        if "bearer" in schemes and equal(token, self.options.token):
            return "bearer"
        return self.tokens.subject(token) if "oauth" in schemes else None
