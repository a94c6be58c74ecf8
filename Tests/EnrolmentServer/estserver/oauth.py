"""A token endpoint of OAuth 2 (RFC 6749): client credentials, resource owner password, codes with PKCE, refresh tokens."""

import base64
import hashlib
import json
import secrets
import threading
import time
import urllib.parse

from .auth import basic_credentials, equal
from .messages import HTTPError, Response


class TokenError(Exception):
    def __init__(self, code, description, status=400):
        super().__init__(description)
        self.code, self.status = code, status


class TokenEndpoint:
    def __init__(self, options):
        self.options = options
        self.tokens, self.refresh_tokens, self.codes = {}, {}, {}
        self.lock = threading.Lock()

    def subject(self, token):
        """Whom the token was issued to, or None if it is unknown, expired or used up. Counts as a use."""
        with self.lock:
            subject, expiry, uses = self.tokens.get(token, (None, 0, 0))
            if subject is None or time.monotonic() >= expiry or 0 < self.options.token_uses <= uses:
                return None
            self.tokens[token] = subject, expiry, uses + 1
        return subject

    def authorize(self, request):
        """Where the browser of a user who agrees is sent: the authorization endpoint, which asks no one."""
        query = dict(urllib.parse.parse_qsl(request.target.partition("?")[2]))
        wanted = "response_type client_id redirect_uri state nonce code_challenge code_challenge_method".split()
        if any(name not in query for name in wanted) or query["code_challenge_method"] != "S256":
            raise HTTPError(400, f"Wanted are {' '.join(wanted)}, and S256.")
        code = secrets.token_urlsafe(24) + "+/ &"
        with self.lock:
            self.codes[code] = query
        place = query["redirect_uri"] + "?" + urllib.parse.urlencode({"code": code, "state": query["state"]})
        return Response(302, [("Location", place)])

    def authorized(self, client, form):
        """The request that the code was issued for. A code is used up, whatever comes with it."""
        with self.lock:
            query = self.codes.pop(form.get("code"), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if query is None or query["client_id"] != (client or form.get("client_id")):
            raise TokenError("invalid_grant", "The code is unknown, used up or another client's.")
        if query["redirect_uri"] != form.get("redirect_uri") or query["code_challenge"] != challenge:
            raise TokenError("invalid_grant", "The code is of another request.")
        return query

    def respond(self, request, faults, record):
        if request.method != "POST":
            raise HTTPError(405, "The token endpoint takes POST.", [("Allow", "POST")])
        try:
            if (fault := faults.get("error")) is not None:
                raise TokenError(fault["error"], "It is told to.", int(fault["status"] or 400))
            status, answer = 200, self.grant(request, faults, record)
        except TokenError as error:
            status, answer = error.status, {"error": error.code, "error_description": str(error)}
        record["grant"] = answer.get("error", "granted")
        headers = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]
        if status == 401:
            headers.append(("WWW-Authenticate", 'Basic realm="token"'))
        return Response(status, headers, distorted(request, answer, faults))

    def grant(self, request, faults, record):
        if request.content_type != "application/x-www-form-urlencoded":
            raise TokenError("invalid_request", "The body is to be application/x-www-form-urlencoded.")
        fields = urllib.parse.parse_qsl(request.body.decode("latin-1"), keep_blank_values=True)
        form = dict(fields)
        if len(form) != len(fields):
            raise TokenError("invalid_request", "A parameter is there twice.")
        client = self.client(request, form)
        authorized = {}
        kind = form.get("grant_type")
        record["grant_type"] = kind
        if kind == "client_credentials":
            if client is None:
                raise TokenError("invalid_client", "This grant needs client authentication.", 401)
            subject = client
        elif kind == "password":
            if "username" not in form or "password" not in form:
                raise TokenError("invalid_request", "username and password are needed.")
            right = equal(form["username"], self.options.user) & equal(form["password"], self.options.password)
            if not right:
                raise TokenError("invalid_grant", "The user name or the password is wrong.")
            subject = form["username"]
        elif kind == "authorization_code":
            authorized = self.authorized(client, form)
            subject = self.options.user
        elif kind == "refresh_token":
            if (fault := faults.get("refresh-error")) is not None:
                raise TokenError(fault["error"], "It is told to.", int(fault["status"] or 400))
            subject = self.refreshed(client, form)
        elif kind is None:
            raise TokenError("invalid_request", "grant_type is missing.")
        else:
            raise TokenError("unsupported_grant_type", "The grants here are client_credentials, password, authorization_code and refresh_token.")
        record["user"] = subject
        scope = self.scope(form)
        token = secrets.token_urlsafe(24)
        with self.lock:
            self.tokens[token] = subject, time.monotonic() + self.options.token_lifetime, 0
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": self.options.token_lifetime}
        if self.options.refresh_tokens != "off" and (kind != "refresh_token" or self.options.refresh_tokens == "rotate"):
            answer["refresh_token"] = secrets.token_urlsafe(24)
            with self.lock:
                self.refresh_tokens[answer["refresh_token"]] = subject, client
        if "openid" in authorized.get("scope", "").split():
            # Of the claims, a test looks at the nonce. The signature is none.
            claims = json.dumps({"nonce": authorized["nonce"]}).encode()
            answer["id_token"] = "e30." + base64.urlsafe_b64encode(claims).decode().rstrip("=") + ".AAAA"
        return answer | ({"scope": scope} if scope else {})

    def refreshed(self, client, form):
        """Whom the refresh token was issued to."""
        with self.lock:
            subject, issued_to = self.refresh_tokens.get(form.get("refresh_token"), (None, None))
            if subject is None or issued_to != client or self.options.refresh_tokens == "refuse":
                raise TokenError("invalid_grant", "The refresh token is unknown, used up or another client's.")
            if self.options.refresh_tokens == "rotate":
                del self.refresh_tokens[form["refresh_token"]]
        return subject

    def client(self, request, form):
        """The authenticated client: None if there is no attempt, which the password grant of a public client is."""
        given = basic_credentials(request.headers.get("authorization", ""))
        if given is not None:
            given = [urllib.parse.unquote_plus(part) for part in given]
            if "client_secret" in form:
                raise TokenError("invalid_request", "A client may use one way to authenticate.")
        elif "client_secret" in form:
            given = form.get("client_id", ""), form["client_secret"]
        else:
            return None
        if not equal(given[0], self.options.client_id) & equal(given[1], self.options.client_secret):
            raise TokenError("invalid_client", "The client is unknown or its secret is wrong.", 401)
        return given[0]

    def scope(self, form):
        asked, allowed = form.get("scope", "").split(), self.options.scope.split()
        if allowed and not set(asked) <= set(allowed):
            raise TokenError("invalid_scope", f"The scopes here are: {self.options.scope}.")
        return " ".join(asked or allowed)


EXPIRIES = {"text": "1800", "word": "soon", "null": None, "list": [3600], "huge": 10**300}


def distorted(request, answer, faults):
    """The answer's body, or what the faults make of it."""
    if faults.has("not-json"):
        return b"access_token=abc&token_type=bearer"
    if faults.has("array"):
        return json.dumps([answer]).encode()
    if faults.has("loud-error"):
        answer = {"error": "invalid_request\x1b[2J", "error_description": "a\r\nb\u202e" + "c" * 5000,
                  "error_uri": "https://example.com/\x07" + "d" * 5000}  # fmt: skip
    if (echo := faults.get("echo")) is not None:
        sent = request.headers.get("authorization", "") if echo["part"] == "header" else request.body.decode()
        sent += " " + " ".join(value for _, value in urllib.parse.parse_qsl(sent))
        sent += " " + sent.lower()
        answer = {"error": "invalid_request", "error_description": f"What is this: {sent}"}
    if (kind := faults.get("type")) is not None:
        answer["token_type"] = kind["type"]
        if kind["type"] == "absent":
            del answer["token_type"]
    if (expiry := faults.get("expires")) is not None:
        value = expiry["value"]
        answer["expires_in"] = EXPIRIES[value] if value in EXPIRIES else None if value == "absent" else float(value)
        if value == "absent":
            del answer["expires_in"]
    if faults.has("split-token"):
        answer["access_token"] = "abc\r\nX-Injected: def"
    if (deep := faults.get("deep")) is not None:
        levels = int(deep["levels"])
        return json.dumps(answer).encode()[:-1] + b', "more": ' + b"[" * levels + b"]" * levels + b"}"
    if (large := faults.get("large")) is not None:
        answer["filler"] = "x" * int(large["octets"])
    return json.dumps(answer).encode()
