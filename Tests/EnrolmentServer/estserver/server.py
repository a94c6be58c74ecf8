"""The server: its authorities, its directory and its listening socket."""

import base64
import hashlib
import ipaddress
import json
import os
import pathlib
import socket
import threading

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from OpenSSL import crypto

from . import ca, tls
from .auth import REALM, Authentication
from .connection import serve
from .digest import Digest
from .est import ESTServer
from .faults import Counter
from .oauth import TokenEndpoint


class Server:
    def __init__(self, options):
        self.options = options
        self.directory = pathlib.Path(options.directory)
        (self.directory / "issued").mkdir(parents=True, exist_ok=True)
        self.lock = threading.Lock()
        self.log_file = open(self.directory / "log.jsonl", "a", buffering=1, encoding="utf-8")

        self.authority = ca.Authority("Root CA", "Issuing CA", options.ca_key)
        self.stranger = ca.Authority("Stranger's Root CA", "Stranger's Issuing CA", "ec")
        self.manufacturer = ca.Authority("Manufacturer", None, "ec")
        self._successor = None
        self.is_rolled_over = False

        self.tokens = TokenEndpoint(options)
        algorithms = options.digest_algorithm.split("+")
        digest = Digest(REALM, options.user, options.password, algorithms, options.nonce_uses)
        self.authentication = Authentication(options, digest, self.tokens)
        self.counter = Counter()
        self.est = ESTServer(self)
        self.prepare()

    def take_certificate(self, authority):
        """Makes the server's own certificate, and uses it for connections from now on."""
        key = ca.new_key(self.options.ca_key)
        addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in ("127.0.0.1", "::1")]
        names = x509.SubjectAlternativeName([x509.DNSName("localhost"), *addresses])
        leaf = authority.issue(ca.name("localhost"), key.public_key(), names, ends=30 * 86400, usages=("SERVER_AUTH",))
        chain = [leaf, *authority.intermediates]
        successors = self._successor.certificates if self._successor else []
        trusted = [*self.authority.certificates, *successors, self.manufacturer.root]
        if self.options.refuse_clients == "unknown-ca":
            trusted = [self.manufacturer.root]
        self.context = tls.server_context(self.options.tls, chain, key, trusted, self.verified)
        self.write("server.pem", b"".join(map(ca.pem, chain)))
        public_key = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self.write("server.pin", b"sha256/" + base64.b64encode(hashlib.sha256(public_key).digest()) + b"\n")

    def verified(self, connection):
        """Whether a client with a valid certificate may go on; where not, the connection ends here, without an alert."""
        if self.options.refuse_clients != "close":
            return True
        connection.sock_shutdown(socket.SHUT_RDWR)
        return False

    def roll_over(self):
        """From now on the new root's authority issues, the server's own certificate too."""
        self.take_certificate(self.successor)
        self.is_rolled_over = True
        self.log({"event": "rolled-over"})

    def prepare(self):
        """The files that a test begins with."""
        self.take_certificate(self.authority)
        self.write("ca.pem", ca.pem(self.authority.root))
        self.write("intermediate.pem", b"".join(map(ca.pem, self.authority.intermediates)))
        self.write("stranger-ca.pem", ca.pem(self.stranger.root))
        device_key = ca.new_key()
        device = self.manufacturer.issue(ca.name("Device"), device_key.public_key(), ends=3650 * 86400)
        self.write("manufacturer.pem", ca.pem(device))
        plain_key = device_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self.write("manufacturer.key", plain_key)

    @property
    def successor(self):
        """The authority after a rollover: a root of the same name, made when first asked for."""
        with self.lock:
            if self._successor is None:
                self._successor = ca.Authority("Root CA", "Issuing CA 2", self.options.ca_key)
                for certificate in self._successor.certificates:
                    self.context.get_cert_store().add_cert(crypto.X509.from_cryptography(certificate))
                self.write("new-ca.pem", ca.pem(self._successor.root))
            return self._successor

    @property
    def authority_in_use(self):
        return self.successor if self.is_rolled_over else self.authority

    def issued(self, certificate):
        return self.authority.issued(certificate) or bool(self._successor and self._successor.issued(certificate))

    @property
    def validity(self):
        """Seconds from now: of the file that a test has put there, or a day."""
        file = self.directory / "validity"
        return tuple(map(int, file.read_text().split())) if file.exists() else (0, 86400)

    def issue(self, authority, subject, key, names, validity, record):
        usages = ("CLIENT_AUTH", "SERVER_AUTH") if self.options.both_sides else ("CLIENT_AUTH",)
        leaf = authority.issue(subject, key, names, *validity, usages)
        serial = ca.serial_text(leaf)
        self.write(f"issued/{serial}.pem", ca.pem(leaf))
        record["serial"] = serial
        return leaf

    def write(self, name, content):
        """Whole or not at all, for a test may be looking."""
        path = self.directory / name
        temporary = path.parent.parent / f".{path.name}" if name.startswith("issued/") else path.with_name("." + name)
        temporary.write_bytes(content)
        os.replace(temporary, path)

    def log(self, record):
        with self.lock:
            self.log_file.write(json.dumps(record) + "\n")

    def listen(self):
        """Accepts connections from now on, and returns the port."""
        listener = socket.create_server(("127.0.0.1", self.options.port), backlog=128)
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()
        return listener.getsockname()[1]

    def accept(self, listener):
        while True:
            plain, _ = listener.accept()
            threading.Thread(target=serve, args=(self, plain), daemon=True).start()
