"""An authority in this process, with a clock that is turned by hand, and one in processes of its own."""

import base64
import contextlib
import json
import os
import secrets
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from authority import web
from authority.issuer import Issuer, IssuerClient, ticket_key
from authority.oidc import Provider
from authority.verifier import Verifier

from .signer import Host, Key

FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
USER, LOGIN_PIN, PIN = "alice@example.com", 12345678, 4711
REDIRECT_URI = "https://localhost:1/login"
# A proxy that is set here does not reach this host's servers.
os.environ["no_proxy"] = "localhost"


def vectors():
    """The vectors of ../shared/testdata, or a skip."""
    folder = FOLDER
    while folder != "/":
        path = os.path.join(folder, "shared", "testdata", "dvs", "BLS381.json")
        if os.path.exists(path):
            with open(path) as file:
                return json.load(file)
        folder = os.path.dirname(folder)
    raise unittest.SkipTest("shared/testdata/dvs is not beside the checkout")


def basic(client) -> str:
    return "Basic " + base64.b64encode(f"{client['client_id']}:{client['client_secret']}".encode()).decode()


class Temporary(unittest.TestCase):
    def setUp(self):
        self.state = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.state)


class LocalAuthority(Temporary):
    """`self.now` is the time of all parts."""

    def setUp(self):
        super().setUp()
        self.now = 1_800_000_000.0
        clock = lambda: self.now
        web.make_certificate(self.state)
        self.ca = os.path.join(self.state, "ca.pem")
        context = ssl.create_default_context(cafile=self.ca)
        clients = [IssuerClient(name, self.serve(Issuer(self.state, name, clock).routes).url,
                                ticket_key(self.state, name), context, clock) for name in ("dta1", "dta2")]
        server = self.serve({})
        self.verifier = Verifier(self.state, clients, server.url, clock=clock)
        self.store = self.verifier.store
        server.routes = self.verifier.routes | Provider(self.state, self.store, server.url).routes
        self.host = Host(server.url, self.ca)
        self.client = self.store.add_client("shop", REDIRECT_URI)
        self.basic = basic(self.client)

    def serve(self, routes):
        server = web.Server(0, self.state, routes)
        server.RequestHandlerClass = type("Quiet", (web.Handler,), {"log_request": lambda *_: None})
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server

    @property
    def second(self) -> int:
        return int(self.now)

    def login_key(self) -> Key:
        return self.host.enrol(self.store.add_code(USER), LOGIN_PIN, self.second)

    def session(self, key) -> str:
        status, answer = self.host.login(key, LOGIN_PIN, self.second)
        self.assertEqual(status, 200, answer)
        return answer["session"]

    def signing_key(self) -> Key:
        return self.host.enrol(self.session(self.login_key()), PIN, self.second)

    def signature(self, key, pin=PIN, message=None) -> dict:
        return key.sign(message or secrets.token_bytes(32), self.second, pin)

    def verify(self, body) -> int:
        return self.host.verify(body, self.basic)[0]

    def forget_tries(self):
        with self.store.transaction() as db:
            db.execute("DELETE FROM tries")

    def count(self, table="tries") -> int:
        return self.store.row(f"SELECT count(*) FROM {table}")[0]

    def wrong(self, key) -> int:
        return self.store.wrong(key.mpin_id)


class ServedAuthority(Temporary):
    """`python3 -m authority serve`, restarted on the same port."""

    def setUp(self):
        super().setUp()
        self.port, self.process = 0, None
        self.log = open(os.path.join(self.state, "log"), "a")
        self.addCleanup(self.log.close)
        self.addCleanup(self.kill)
        self.start()

    def command(self, *words, **options):
        return [sys.executable, "-m", "authority", words[0], "--state", self.state, *words[1:]]

    def run_command(self, *words) -> str:
        done = subprocess.run(self.command(*words), cwd=FOLDER, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def start(self):
        ports = os.path.join(self.state, "ports")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(ports)
        self.process = subprocess.Popen(self.command("serve", "--port", str(self.port), "--ports-file", ports),
                                        cwd=FOLDER, stdout=self.log, stderr=self.log)
        self.wait(lambda: os.path.exists(ports) or self.process.poll() is not None)
        self.assertIsNone(self.process.poll(), "the authority does not start")
        with open(ports) as file:
            answer = json.load(file)
        self.port = answer["port"]
        self.host = Host(answer["url"], os.path.join(self.state, "ca.pem"))

    def kill(self, number=signal.SIGKILL):
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(30)

    def wait(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), deadline, "waited for a minute")
            time.sleep(0.01)
