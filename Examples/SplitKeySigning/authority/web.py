"""JSON over HTTPS: routes, requests, refusals, and the certificate."""

import base64
import json
import os
import re
import shutil
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl

from .curve import Malformed
from .store import NotCounted

LONGEST_BODY = 64 * 1024
LENGTH = re.compile("[0-9]{1,18}")


class Refusal(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, message: str, **more):
        super().__init__(message)
        self.status, self.body = status, {"message": message, **more}


class Redirect(Exception):
    def __init__(self, location: str):
        self.location = location


class Request:
    def __init__(self, headers, query: str, body: bytes):
        self.headers, self.body = headers, body
        self.query = _parameters(query)

    def json(self) -> dict:
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            raise Malformed("the body is not JSON") from None
        if not isinstance(value, dict):
            raise Malformed("the body is not a JSON object")
        return value

    def text(self, name: str) -> str:
        """A member of the JSON body that is a string, not empty."""
        value = self.json().get(name)
        if not isinstance(value, str) or not value.isprintable() or not value:
            raise Malformed(f"{name} is missing, empty or not a string")
        return value

    def form(self) -> dict:
        try:
            return _parameters(self.body.decode())
        except UnicodeDecodeError:
            raise Malformed("the body is not a form") from None

    def bearer(self):
        kind, _, token = self.headers.get("Authorization", "").partition(" ")
        return token if kind.lower() == "bearer" and token.isprintable() else None

    def basic(self):
        """(name, password), or None."""
        kind, _, value = self.headers.get("Authorization", "").partition(" ")
        try:
            name, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
        except ValueError:
            return None
        return (name, password) if kind.lower() == "basic" and colon else None


def _parameters(text: str) -> dict:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict")
    except ValueError:
        raise Malformed("a parameter is not UTF-8") from None
    if len(dict(pairs)) != len(pairs):
        raise Malformed("a parameter is there twice")
    return dict(pairs)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "authority", ""
    timeout = 60
    # Head and body of an answer are two packets, of which the second must not wait for the first.
    disable_nagle_algorithm = True

    def setup(self):
        # The handshake is this thread's: a peer that never finishes it must not keep others waiting.
        self.request.settimeout(self.timeout)
        self.request.do_handshake()
        super().setup()

    def do_GET(self):
        self.answer_request()

    def do_POST(self):
        self.answer_request()

    def answer_request(self):
        path, _, query = self.path.partition("?")
        try:
            body = self.read_body()
            methods = self.server.routes.get(path)
            if methods is None:
                raise Refusal(404, "There is nothing at this path.")
            if self.command not in methods:
                raise Refusal(405, "This path has another method.")
            status, answer, location = 200, methods[self.command](Request(self.headers, query, body)), None
        except Redirect as redirect:
            status, answer, location = 302, {}, redirect.location
        except Malformed as malformed:
            status, answer, location = 400, {"message": f"The request is malformed: {malformed}."}, None
        except Refusal as refusal:
            status, answer, location = refusal.status, refusal.body, None
        except (ConnectionError, TimeoutError):
            raise
        except sqlite3.OperationalError as error:
            traceback.print_exc()
            status, location = 503, None
            answer = {"message": "The authority's database is locked or full; the log says which. Try again later."}
            if isinstance(error, NotCounted):
                answer["counted"] = False
        except Exception:
            traceback.print_exc()
            status, answer, location = 500, {"message": "The authority failed; its log says why."}, None
        data = json.dumps(answer).encode()
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(data)

    def read_body(self) -> bytes:
        lengths = self.headers.get_all("Content-Length", ["0"] if self.command == "GET" else [])
        # Python reads no number of thousands of digits.
        if "Transfer-Encoding" in self.headers or len(lengths) != 1 or not LENGTH.fullmatch(lengths[0]):
            self.close_connection = True
            raise Refusal(411, "The request needs one Content-Length.")
        length = int(lengths[0])
        if length > LONGEST_BODY:
            self.close_connection = True
            # Closed before it has come, the connection would lose the answer.
            self.rfile.read(min(length, 16 * LONGEST_BODY))
            raise Refusal(413, "The body is longer than 64 KiB.")
        return self.rfile.read(length)

    def log_request(self, code="-", size="-"):
        # Without the query, which may hold a ticket, and with what cannot be printed escaped.
        line = self.requestline.partition("?")[0].removesuffix(" " + self.request_version)
        print(ascii(line)[1:-1], int(code), file=sys.stderr, flush=True)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    """`routes` is {path: {method: function of the request that returns the JSON of 200}}."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, state: str, routes: dict):
        super().__init__(("127.0.0.1", port), Handler)
        self.routes = routes
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(os.path.join(state, "tls", "server.pem"), os.path.join(state, "tls", "server-key.pem"))
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def url(self) -> str:
        return f"https://localhost:{self.server_port}"

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def make_certificate(state: str):
    """STATE/ca.pem and what the servers show. The CA's key is thrown away: it signs once."""
    folder = os.path.join(state, "tls")
    if not os.path.isdir(folder):
        temporary = tempfile.mkdtemp(dir=state)
        def openssl(*words):
            subprocess.run(["openssl", *words], cwd=temporary, check=True, capture_output=True)
        new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc")
        openssl("req", "-x509", *new, "-days", "3650", "-subj", "/CN=Split key test CA", "-keyout", "ca-key.pem",
                "-out", "ca.pem", "-addext", "keyUsage=critical,keyCertSign")
        openssl("req", "-x509", *new, "-days", "3650", "-subj", "/CN=localhost", "-keyout", "server-key.pem", "-out",
                "server.pem", "-CA", "ca.pem", "-CAkey", "ca-key.pem", "-addext", "basicConstraints=critical,CA:FALSE",
                "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "extendedKeyUsage=serverAuth",
                "-addext", "keyUsage=critical,digitalSignature")
        os.unlink(os.path.join(temporary, "ca-key.pem"))
        os.rename(temporary, folder)
    shutil.copy(os.path.join(folder, "ca.pem"), os.path.join(state, "ca.pem.new"))
    os.replace(os.path.join(state, "ca.pem.new"), os.path.join(state, "ca.pem"))
