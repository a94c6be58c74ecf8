#!/usr/bin/python3
"""Plays one side of a session of Documentation/PluginTranscript.md, and checks what the other side sends.

    transcript.py plugin PAGE SESSION REPORT     the plugin's side, over standard input and output
    transcript.py host PAGE SESSION PROGRAM...   the host's side, against a plugin that it starts

Lines of one side that follow each other may come in any order.
"""
import base64
import datetime
import hashlib
import itertools
import json
import pathlib
import re
import signal
import subprocess
import sys
import traceback

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

ANY = "…"
DER = serialization.Encoding.DER


class Mismatch(Exception):
    pass


def session(page, name):
    """The lines of a session from the start of the plugin to its end, each with its side."""
    blocks, lines = {}, []
    for text in re.findall(r"^```transcript\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        title, before = re.match(r"# ([\w-]+)(?:, after ([\w-]+))?\n", text).groups()
        messages = re.findall(r"^([<>]) (.*\n(?:(?![<>#]).*\n)*)", text, re.MULTILINE)
        blocks[title] = before, [(side, json.loads(message)) for side, message in messages]
    while name:
        name, own = blocks[name]
        lines = own + lines
    description = lines[1][1]["result"]
    return lines + (blocks["end"][1] if description.get("shutdown") else [])


def encoded(data):
    return base64.b64encode(data).decode()


def certificate(subject, key, signer, issuer="issuer", is_authority=False):
    now, day = datetime.datetime.now(datetime.timezone.utc), datetime.timedelta(days=1)
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)]) for text in (issuer, subject)]
    builder = x509.CertificateBuilder(*names, key, x509.random_serial_number(), now - day, now + day)
    if is_authority:
        builder = builder.add_extension(x509.BasicConstraints(True, None), critical=True)
    return encoded(builder.sign(signer, hashes.SHA256()).public_bytes(DER))


class Side:
    """One side. Requests of this side have the ids of the page."""

    def __init__(self, side, receive, send):
        self.side, self.receive, self.send = side, receive, send
        # The other side's requests, by their ids on the page.
        self.requests = {}
        # This side's private keys and the other one's public keys by name, and what was seen last.
        self.keys, self.known, self.last = {}, {}, {}
        self.authority = ec.generate_private_key(ec.SECP256R1())

    # What this side sends.

    def key(self, name):
        """A key of this side, made when it is named first."""
        if name not in self.keys:
            is_rsa = "rsa" in name
            self.keys[name] = rsa.generate_private_key(65537, 2048) if is_rsa else ec.generate_private_key(ec.SECP256R1())
        return self.keys[name]

    def public(self, fields):
        """The public key that an object names; without a name that of the key that leaves this side."""
        fields = fields.get("key") or fields
        name = fields.get("uri") or fields.get("id") or "software"
        if name in self.known:
            return self.known[name]
        self.keys[fields.get("id", name)] = self.key(name)
        return self.key(name).public_key()

    def chain(self, fields):
        if fields.keys() <= {"chain", "mayAsk"}:
            return self.last["chain"]
        # Not a root, which the host would leave out.
        issuer = certificate("issuer", self.authority.public_key(), self.authority, issuer="root")
        return [certificate("leaf", self.public(fields), self.authority), issuer]

    def value(self, name, fields, message):
        """The value for an ellipsis of the page."""
        if name == "publicKey":
            return encoded(self.public(fields).public_bytes(DER, serialization.PublicFormat.SubjectPublicKeyInfo))
        if name == "secret":
            key = self.key(message.get("params", {}).get("label", "software"))
            return encoded(key.private_bytes(DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
        if name == "signature" and "data" not in self.requests[message["id"]]["params"]:
            request = self.requests[message["id"]]["params"]
            key, digest = self.key(request["key"]), request.get("digest")
            algorithm = utils.Prehashed(hashes.SHA256()) if digest else hashes.SHA256()
            scheme = [ec.ECDSA(algorithm)]
            if isinstance(key, rsa.RSAPrivateKey):
                scheme = [padding.PSS(padding.MGF1(hashes.SHA256()), 32), algorithm]
            return encoded(key.sign(base64.b64decode(digest or request["message"]), *scheme))
        if name in ("data", "digest"):
            return encoded(hashlib.sha256(b"any").digest())
        if name == "ciphertext":
            oaep = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), label=None)
            return encoded(self.known[fields["key"]].encrypt(b"secret", {"RSA-OAEP-256": oaep}[fields["scheme"]]))
        return self.last.get(name, encoded(b"any"))

    def filled(self, value, name, fields, message):
        if isinstance(value, dict):
            return {key: self.filled(one, key, value, message) for key, one in value.items() if key != ANY}
        if isinstance(value, list) and name == "chain":
            return self.chain(fields)[:len(value)]
        if isinstance(value, list) and name == "trust":
            return [certificate("root", self.authority.public_key(), self.authority, "root", is_authority=True)]
        if isinstance(value, list):
            return [self.filled(one, name, fields, message) for one in value if one != ANY]
        if value == ANY:
            return self.value(name, fields, message)
        return value.rstrip(ANY) if isinstance(value, str) else value

    # What the other side sends.

    def learn(self, value):
        """Takes note of the keys, chains and versions that the other side names."""
        if isinstance(value, list):
            for one in value:
                self.learn(one)
        if not isinstance(value, dict):
            return
        for one in value.values():
            self.learn(one)
        self.last.update({name: value[name] for name in ("chain", "version") if name in value})
        if "publicKey" in value and (name := value.get("uri") or value["id"]) not in self.keys:
            self.known[name] = serialization.load_der_public_key(base64.b64decode(value["publicKey"]))

    def real(self, message, is_ours):
        """The message with the real ids of the other side's requests."""
        message = json.loads(json.dumps(message))
        params = message.get("params", {})
        if is_ours and "id" in message and "request" not in message:
            message["id"] = self.requests[message["id"]]["id"]
        if is_ours and "for" in params:
            params["for"] = self.requests[params["for"]]["id"]
        if not is_ours and message.get("notice") == "cancel":
            params["request"] = self.requests[params["request"]]["id"]
        return message

    def play(self, lines):
        for side, run in itertools.groupby(lines, lambda line: line[0]):
            expected = [message for _, message in run]
            if side == self.side:
                for message in expected:
                    self.send(json.dumps(self.filled(self.real(message, True), None, None, message)))
            while side != self.side and expected:
                self.accept(expected)

    def accept(self, expected):
        """Reads a line, and takes the first of the expected messages that it fits."""
        try:
            line = self.receive()
        except TimeoutError:
            line = ""
        if not line:
            raise Mismatch(f"The other side has ended or is silent; expected {expected[0]}")
        message, problems = json.loads(line), []
        for number, one in enumerate(expected):
            problem = difference(self.real(one, False), message, "")
            if problem is None:
                if "request" in message:
                    self.requests[one["id"]] = message
                self.learn(message)
                del expected[number]
                return
            problems.append(f"{problem}; expected {json.dumps(one, ensure_ascii=False)}")
        raise Mismatch(f"{problems[0]}, got {line.strip()}")


def difference(expected, actual, path):
    """Says where two values differ; None if they do not."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        if ANY not in expected and (more := actual.keys() - expected.keys()):
            return f"{path}: the page does not have {', '.join(more)}"
        for name, one in expected.items():
            # The other side numbers its requests as it likes.
            is_free = name == ANY or path == "" and name == "id" and "request" in expected
            if not is_free and (problem := difference(one, actual.get(name), f"{path}.{name}")):
                return problem
        return None
    if isinstance(expected, list) and isinstance(actual, list):
        if len(expected) > len(actual) or len(expected) < len(actual) and expected[-1:] != [ANY]:
            return f"{path}: {len(actual)} elements instead of {len(expected)}"
        return next(filter(None, (difference(one, other, path) for one, other in zip(expected, actual))), None)
    if isinstance(expected, str) and isinstance(actual, str) and expected.endswith(ANY):
        return None if actual.startswith(expected[:-1]) else f"{path}: {actual} instead of {expected}"
    return None if expected == actual else f"{path}: {actual} instead of {expected}"


def be_plugin(lines, report):
    try:
        Side("<", sys.stdin.readline, lambda text: print(text, flush=True)).play(lines)
        result = sys.stdin.readline() or "played\n"
    except Exception:
        result = traceback.format_exc()
    with pathlib.Path(report).open("a") as file:
        file.write(result)


def be_host(lines, *program):
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as plugin:
        try:
            Side(">", plugin.stdout.readline, lambda text: print(text, file=plugin.stdin, flush=True)).play(lines)
            plugin.stdin.close()
            if line := plugin.stdout.readline():
                raise Mismatch(f"After the end: {line.strip()}")
        except BaseException:
            plugin.kill()
            raise
    if plugin.returncode:
        raise Mismatch(f"The plugin has ended with the status {plugin.returncode}")


def be_late(*_):
    raise TimeoutError


def main(role, page, name, *rest):
    signal.signal(signal.SIGALRM, be_late)
    signal.alarm(60)
    lines = session(pathlib.Path(page).read_text(encoding="utf-8"), name)
    be_plugin(lines, *rest) if role == "plugin" else be_host(lines, *rest)


main(*sys.argv[1:])
