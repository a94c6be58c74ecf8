"""The OpenID provider: the code flow with PKCE, for a user who has a session of a login."""

import base64
import hashlib
import os
import secrets
from urllib.parse import urlencode

from .store import hashed
from .verifier import JWTKey
from .web import Redirect, Refusal

GRANT_LIFETIME = 60
TOKEN_LIFETIME = 600


class Provider:
    def __init__(self, state: str, store, url: str):
        self.store, self.url, self.clock = store, url, store.clock
        self.key = JWTKey(os.path.join(state, "oidc-key.pem"))
        self.routes = {
            "/.well-known/openid-configuration": {"GET": self.configuration},
            "/oidc/authorize": {"GET": self.authorize},
            "/oidc/token": {"POST": self.token},
            "/oidc/jwks": {"GET": self.key.jwks},
        }

    def configuration(self, request) -> dict:
        return {
            "issuer": self.url,
            "authorization_endpoint": self.url + "/oidc/authorize",
            "token_endpoint": self.url + "/oidc/token",
            "jwks_uri": self.url + "/oidc/jwks",
            "scopes_supported": ["openid", "profile", "email"],
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
            "code_challenge_methods_supported": ["S256"],
            "claims_supported": ["iss", "aud", "sub", "email", "userID", "nonce", "iat", "exp", "auth_time"],
        }

    def authorize(self, request):
        query = request.query
        client = self.store.client(query.get("client_id", ""))
        redirect_uri = query.get("redirect_uri")
        # Without these two right, the answer must not go to the redirect URI.
        if not client or client["redirect_uri"] != redirect_uri:
            raise Refusal(400, "The client is unknown, or its redirect URI is another.")
        session = self.store.session(request.bearer() or "")
        if not session:
            raise Refusal(401, "There is no session, or it is over. Log in first.")

        def answer(**parameters):
            if "state" in query:
                parameters["state"] = query["state"]
            return Redirect(redirect_uri + ("&" if "?" in redirect_uri else "?") + urlencode(parameters))

        if query.get("response_type") != "code":
            raise answer(error="unsupported_response_type")
        if "openid" not in query.get("scope", "").split():
            raise answer(error="invalid_scope")
        challenge = query.get("code_challenge", "")
        if query.get("code_challenge_method") != "S256" or len(challenge) != 43:
            raise answer(error="invalid_request", error_description="PKCE with S256 is required")
        code, now = secrets.token_hex(32), self.clock()
        with self.store.transaction() as db:
            db.execute("DELETE FROM grants WHERE expires < ?", (now,))
            db.execute("INSERT INTO grants VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                       (hashed(code), client["id"], redirect_uri, session["user"], query.get("nonce"), challenge,
                        session["began"], now + GRANT_LIFETIME))
        raise answer(code=code)

    def token(self, request) -> dict:
        form = request.form()
        client = self.store.authenticated_client(
            request.basic() or (form.get("client_id", ""), form.get("client_secret", "")))
        if not client:
            raise Refusal(401, "The client is unknown, or its secret is wrong.", error="invalid_client")
        if form.get("grant_type") != "authorization_code":
            raise Refusal(400, "grant_type is not authorization_code.", error="unsupported_grant_type")
        code, now = hashed(form.get("code", "")), self.clock()
        with self.store.transaction() as db:
            grant = db.execute("SELECT * FROM grants WHERE code = ? AND client = ?", (code, client["id"])).fetchone()
            # A code is for one attempt, right or wrong.
            db.execute("DELETE FROM grants WHERE code = ? AND client = ?", (code, client["id"]))
        verifier = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(verifier).rstrip(b"=")
        if (not grant or grant["expires"] <= now or grant["redirect_uri"] != form.get("redirect_uri")
                or not secrets.compare_digest(challenge, grant["challenge"].encode())):
            raise Refusal(400, "The code is unknown, used, over, or not for this request.", error="invalid_grant")
        user = grant["user"]
        claims = {"iss": self.url, "aud": client["id"], "sub": user, "email": user, "userID": user,
                  "iat": int(now), "exp": int(now) + TOKEN_LIFETIME, "auth_time": int(grant["began"])}
        if grant["nonce"] is not None:
            claims["nonce"] = grant["nonce"]
        return {"access_token": secrets.token_hex(32), "token_type": "Bearer", "expires_in": TOKEN_LIFETIME,
                "id_token": self.key.sign(claims)}
