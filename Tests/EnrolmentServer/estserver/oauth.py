"""A token endpoint of OAuth 2 (RFC 6749): client credentials and resource owner password."""

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
        self.tokens = {}
        self.lock = threading.Lock()

    def subject(self, token):
        """Whom the token was issued to, or None if it is unknown or expired."""
        with self.lock:
            subject, expiry = self.tokens.get(token, (None, 0))
        return subject if time.monotonic() < expiry else None

    def respond(self, request, record):
        if request.method != "POST":
            raise HTTPError(405, "The token endpoint takes POST.", [("Allow", "POST")])
        try:
            status, answer = 200, self.grant(request, record)
        except TokenError as error:
            status, answer = error.status, {"error": error.code, "error_description": str(error)}
        record["grant"] = answer.get("error", "granted")
        headers = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]
        if status == 401:
            headers.append(("WWW-Authenticate", 'Basic realm="token"'))
        return Response(status, headers, json.dumps(answer).encode())

    def grant(self, request, record):
        if request.content_type != "application/x-www-form-urlencoded":
            raise TokenError("invalid_request", "The body is to be application/x-www-form-urlencoded.")
        fields = urllib.parse.parse_qsl(request.body.decode("latin-1"), keep_blank_values=True)
        form = dict(fields)
        if len(form) != len(fields):
            raise TokenError("invalid_request", "A parameter is there twice.")
        client = self.client(request, form)
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
        elif kind is None:
            raise TokenError("invalid_request", "grant_type is missing.")
        else:
            raise TokenError("unsupported_grant_type", "The grants here are client_credentials and password.")
        record["user"] = subject
        scope = self.scope(form)
        token = secrets.token_urlsafe(24)
        with self.lock:
            self.tokens[token] = (subject, time.monotonic() + self.options.token_lifetime)
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": self.options.token_lifetime}
        return answer | ({"scope": scope} if scope else {})

    def client(self, request, form):
        """The authenticated client: None if there is no attempt, which the password grant of a public client is."""
        given = basic_credentials(request.headers.get("authorization", ""))
        if given is not None:
            given = [urllib.parse.unquote_plus(part) for part in given]
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
