import base64
import hashlib
import secrets
import unittest
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt

from .support import REDIRECT_URI, USER, LocalAuthority, basic

VERIFIER = secrets.token_urlsafe(48)
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()


class CodeFlow(LocalAuthority):
    def setUp(self):
        super().setUp()
        self.token = self.session(self.login_key())

    def authorize(self, session=None, **changes):
        """(status, parameters of the redirect); a change to None leaves a parameter out."""
        query = {"response_type": "code", "client_id": self.client["client_id"], "redirect_uri": REDIRECT_URI,
                 "scope": "openid profile email", "state": "s&1", "nonce": "n", "code_challenge": CHALLENGE,
                 "code_challenge_method": "S256"} | changes
        query = urlencode({name: value for name, value in query.items() if value is not None}, doseq=True)
        bearer = {"Authorization": f"Bearer {self.token if session is None else session}"}
        status, _, headers = self.host.call("/oidc/authorize?" + query, headers=bearer)
        location = headers.get("Location", "")
        self.assertEqual(location.startswith(REDIRECT_URI + "?"), status == 302)
        return status, {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}

    def exchange(self, code, client=None, **changes):
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT_URI,
                "code_verifier": VERIFIER} | changes
        form = urlencode({name: value for name, value in form.items() if value is not None}).encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Authorization": basic(client or self.client)}
        return self.host.post("/oidc/token", form, headers)

    def code(self):
        status, parameters = self.authorize()
        self.assertEqual((status, parameters["state"]), (302, "s&1"))
        return parameters["code"]

    def test_a_client_of_others_gets_an_id_token(self):
        try:
            from authlib.integrations.requests_client import OAuth2Session
        except ImportError:
            self.skipTest("authlib is not installed: see requirements-tests.txt")
        configuration = self.host.call("/.well-known/openid-configuration")[1]
        for method in configuration["token_endpoint_auth_methods_supported"]:
            with OAuth2Session(self.client["client_id"], self.client["client_secret"], scope="openid profile email",
                               redirect_uri=REDIRECT_URI, code_challenge_method="S256",
                               token_endpoint_auth_method=method) as client:
                url, state = client.create_authorization_url(
                    configuration["authorization_endpoint"], nonce="the nonce", code_verifier=VERIFIER)
                status, _, headers = self.host.call(url, headers={"Authorization": "Bearer " + self.token})
                self.assertEqual(status, 302)
                token = client.fetch_token(configuration["token_endpoint"], state=state, code_verifier=VERIFIER,
                                           authorization_response=headers["Location"], verify=self.ca)
            self.assertEqual((token["token_type"], token["expires_in"]), ("Bearer", 600))
            keys = jwt.PyJWKSet.from_dict(self.host.call("/oidc/jwks")[1])
            claims = jwt.decode(token["id_token"], keys[jwt.get_unverified_header(token["id_token"])["kid"]], ["RS256"],
                                audience=self.client["client_id"], issuer=configuration["issuer"],
                                options={"verify_exp": False, "verify_iat": False})
            self.assertEqual({name: claims[name] for name in ("sub", "email", "userID", "nonce")},
                             {"sub": USER, "email": USER, "userID": USER, "nonce": "the nonce"})
            self.assertEqual((claims["iat"], claims["exp"], claims["auth_time"]),
                             (self.second, self.second + 600, self.second))

    def test_a_code_is_good_once(self):
        code = self.code()
        status, answer = self.exchange(code)
        self.assertEqual(status, 200, answer)
        status, answer = self.exchange(code)
        self.assertEqual((status, answer["error"]), (400, "invalid_grant"))

    def test_a_code_is_good_for_60_seconds(self):
        for seconds, expected in ((59, 200), (60, 400)):
            code = self.code()
            self.now += seconds
            self.assertEqual(self.exchange(code)[0], expected)

    def test_a_wrong_verifier_is_refused_and_the_code_is_gone(self):
        for wrong in (None, "", VERIFIER + "x", CHALLENGE):
            code = self.code()
            self.assertEqual(self.exchange(code, code_verifier=wrong)[1].get("error"), "invalid_grant")
            self.assertEqual(self.exchange(code)[0], 400)

    def test_another_redirect_uri_is_refused(self):
        for uri in (None, "", REDIRECT_URI + "/", REDIRECT_URI + "?x", "https://evil.example/login", REDIRECT_URI[:-1]):
            self.assertEqual(self.authorize(redirect_uri=uri)[0], 400)
            self.assertEqual(self.exchange(self.code(), redirect_uri=uri)[0], 400)

    def test_without_pkce_there_is_no_code(self):
        for changes in ({"code_challenge": None}, {"code_challenge_method": None}, {"code_challenge_method": "plain"},
                        {"code_challenge": ""}, {"code_challenge": "x"},
                        {"code_challenge": None, "code_challenge_method": None}):
            status, parameters = self.authorize(**changes)
            self.assertEqual((status, parameters["error"], parameters["state"]), (302, "invalid_request", "s&1"))
            self.assertNotIn("code", parameters)
        self.assertEqual(self.authorize(response_type="token")[1]["error"], "unsupported_response_type")
        self.assertEqual(self.authorize(scope="profile")[1]["error"], "invalid_scope")

    def test_without_a_session_there_is_no_code(self):
        for session in ("", "x", "é", self.store.add_code(USER), self.client["client_secret"]):
            self.assertEqual(self.authorize(session=session)[0], 401)
        self.now += 601
        self.assertEqual(self.authorize()[0], 401)

    def test_another_client_gets_nothing_for_a_code_and_does_not_spend_it(self):
        other = self.store.add_client("other", REDIRECT_URI)
        code = self.code()
        self.assertEqual(self.exchange(code, other)[1]["error"], "invalid_grant")
        wrong = {"client_id": self.client["client_id"], "client_secret": other["client_secret"]}
        self.assertEqual(self.exchange(code, wrong)[0], 401)
        self.assertEqual(self.exchange(code)[0], 200)

    def test_malformed_requests_are_refused(self):
        self.assertEqual(self.authorize(client_id="x")[0], 400)
        self.assertEqual(self.authorize(client_id=[self.client["client_id"]] * 2)[0], 400)
        self.assertEqual(self.exchange(self.code(), grant_type="password")[1]["error"], "unsupported_grant_type")
        for data in (b"\xff", b"a=%ff", b"code=1&code=2", b"", b"{}"):
            status, _ = self.host.post("/oidc/token", data, {"Authorization": self.basic})
            self.assertEqual(status, 400)

    def test_an_id_token_has_no_nonce_without_one_in_the_request(self):
        token = self.exchange(self.authorize(nonce=None)[1]["code"])[1]["id_token"]
        self.assertNotIn("nonce", jwt.decode(token, options={"verify_signature": False}))


if __name__ == "__main__":
    unittest.main()
