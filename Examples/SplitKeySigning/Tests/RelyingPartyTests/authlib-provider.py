"""An OpenID provider of Debian's python3-authlib, for one client and any user. Only its HTTP is written here.

    /usr/bin/python3 authlib-provider.py CERTIFICATE KEY PORTS-FILE CLIENT-ID CLIENT-SECRET REDIRECT-URI

The user is named by the field X-User of a request for authorization, and by X-Fault what is wrong with the ID token.
"""

import base64
import hashlib
import hmac
import http.server
import json
import os
import ssl
import sys
import time

from authlib.jose import JsonWebKey
from authlib.oauth2.rfc6749 import AuthorizationServer, ClientMixin, OAuth2Request, grants
from authlib.oauth2.rfc6749.models import AuthorizationCodeMixin
from authlib.oauth2.rfc6750 import BearerTokenGenerator
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core import UserInfo
from authlib.oidc.core.grants import OpenIDCode

certificate, certificate_key, ports_file, client_id, client_secret, redirect_uri = sys.argv[1:]
key = JsonWebKey.generate_key("RSA", 2048, is_private=True)


class Client(ClientMixin):
    def get_client_id(self): return client_id
    def get_default_redirect_uri(self): return redirect_uri
    def get_allowed_scope(self, scope): return scope
    def check_redirect_uri(self, uri): return uri == redirect_uri
    def check_client_secret(self, secret): return secret == client_secret
    def check_endpoint_auth_method(self, method, endpoint): return method == "client_secret_basic"
    def check_response_type(self, response_type): return response_type == "code"
    def check_grant_type(self, grant_type): return grant_type == "authorization_code"


class Code(AuthorizationCodeMixin):
    def __init__(self, code, request):
        self.code, self.user, self.fault = code, request.user, request.headers.get("X-Fault")
        self.redirect_uri, self.scope, self.nonce = request.redirect_uri, request.scope, request.data.get("nonce")
        self.code_challenge = request.data.get("code_challenge")
        self.code_challenge_method = request.data.get("code_challenge_method")
        self.auth_time = int(time.time())

    def get_redirect_uri(self): return self.redirect_uri
    def get_scope(self): return self.scope
    def get_auth_time(self): return self.auth_time
    def get_nonce(self): return "another" if self.fault == "nonce" else self.nonce


codes = {}


class CodeGrant(grants.AuthorizationCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ["client_secret_basic"]

    def save_authorization_code(self, code, request): codes[code] = Code(code, request)
    def query_authorization_code(self, code, client): return codes.get(code)
    def delete_authorization_code(self, code): codes.pop(code.code, None)
    def authenticate_user(self, code): return code.user


class OpenID(OpenIDCode):
    def exists_nonce(self, nonce, request): return any(code.nonce == nonce for code in codes.values())

    def get_jwt_config(self, grant):
        fault = grant.request.credential.fault
        issuer = "https://localhost" if fault == "issuer" else server.url
        return {"key": key, "alg": "RS256", "iss": issuer, "exp": -120 if fault == "expired" else 300}

    def get_audiences(self, request):
        return {"audience": ["another"], "audiences": [client_id, "another"], "text": client_id}.get(
            request.credential.fault, [client_id])

    def generate_user_info(self, user, scope):
        return UserInfo(sub=user, email=user)

    def process_token(self, grant, token):
        token = super().process_token(grant, token)
        fault = grant.request.credential.fault
        if fault in ("none", "hs256"):
            def part(data): return base64.urlsafe_b64encode(data).rstrip(b"=")
            header = part(json.dumps({"alg": {"none": "none", "hs256": "HS256"}[fault]}).encode())
            text = header + b"." + token["id_token"].split(".")[1].encode()
            signature = b"" if fault == "none" else hmac.digest(key.as_pem(), text, hashlib.sha256)
            token["id_token"] = (text + b"." + part(signature)).decode()
        return token


class Provider(AuthorizationServer):
    def query_client(self, id): return Client() if id == client_id else None
    def save_token(self, token, request): pass
    def send_signal(self, name, *args, **kwargs): pass
    def create_oauth2_request(self, request): return request
    def handle_response(self, status, body, headers): return status, body, headers


provider = Provider(["openid", "profile", "email"])
provider.register_token_generator("default", BearerTokenGenerator(lambda **_: os.urandom(24).hex()))
provider.register_grant(CodeGrant, [CodeChallenge(required=True), OpenID(require_nonce=True)])


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.partition("?")[0]
        if path == "/.well-known/openid-configuration":
            url = server.url
            self.answer(200, {"issuer": url, "authorization_endpoint": url + "/authorize", "token_endpoint": url + "/token",
                              "jwks_uri": url + "/jwks"}, [])
        elif path == "/jwks":
            self.answer(200, {"keys": [key.as_dict(is_private=False)]}, [])
        elif path == "/authorize":
            request = OAuth2Request("GET", server.url + self.path, None, self.headers)
            request.user = self.headers["X-User"]
            self.answer(*provider.create_authorization_response(request, request.user))
        else:
            self.answer(404, "", [])

    def do_POST(self):
        from authlib.common.urls import url_decode
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        request = OAuth2Request("POST", server.url + self.path, dict(url_decode(body)), self.headers)
        self.answer(*provider.create_token_response(request))

    def answer(self, status, body, headers):
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers or [("Content-Type", "application/json")]:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_): pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, certificate_key)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.url = f"https://localhost:{server.server_port}"
with open(ports_file + ".new", "w") as file:
    json.dump({"port": server.server_port, "url": server.url}, file)
os.replace(ports_file + ".new", ports_file)
server.serve_forever()
