"""A time-stamp server (RFC 3161) over HTTP, for tests: `openssl ts -reply` answers, and one thing at a time is wrong.

Usage: tsa.py DIRECTORY. Makes an authority and signers in DIRECTORY, writes its port to DIRECTORY/port, and ends with its stdin.
The path of a request says what is wrong: see FAULTS, and the end of `answer`.
"""

import base64
import collections
import http.server
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

DIRECTORY = os.path.abspath(sys.argv[1])
POLICY = "1.2.3.4.1"


def openssl(*arguments, stdin=b""):
    return subprocess.run(
        ["openssl", *arguments], input=stdin, cwd=DIRECTORY, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ).stdout


def der(tag, *parts):
    content = b"".join(parts)
    length = len(content)
    if length < 0x80:
        return bytes([tag, length]) + content
    size = (length.bit_length() + 7) // 8
    return bytes([tag, 0x80 | size]) + length.to_bytes(size, "big") + content


def integer(number):
    return der(2, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def oid(text):
    numbers = [int(part) for part in text.split(".")]
    result = bytes([numbers[0] * 40 + numbers[1]])
    for number in numbers[2:]:
        part = [number & 0x7F]
        while number := number >> 7:
            part.insert(0, 0x80 | number & 0x7F)
        result += bytes(part)
    return der(6, result)


def imprint(digest):
    return der(0x30, der(0x30, oid("2.16.840.1.101.3.4.2.1"), der(5)), der(4, digest))


def make():
    def certificate(name, extensions, *options):
        path = os.path.join(DIRECTORY, name)
        with open(path + ".ext", "w") as file:
            file.write(extensions)
        openssl("req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", name + ".key", "-subj", "/CN=" + name, "-out", name + ".csr")
        openssl("x509", "-req", "-in", name + ".csr", "-extfile", name + ".ext", "-out", name + ".pem", *options)

    authority = "basicConstraints=critical,CA:true\nkeyUsage=critical,keyCertSign\n"
    stamping = "keyUsage=critical,digitalSignature\nextendedKeyUsage=critical,timeStamping\n"
    by_ca = ["-CA", "ca.pem", "-CAkey", "ca.key", "-set_serial"]
    certificate("ca", authority, "-signkey", "ca.key", "-days", "30")
    certificate("other-ca", authority, "-signkey", "other-ca.key", "-days", "30")
    certificate("tsa", stamping, *by_ca, "1", "-days", "20")
    certificate("not-critical", stamping.replace("critical,timeS", "timeS"), *by_ca, "2", "-days", "20")
    certificate("two-uses", stamping.replace("timeStamping", "timeStamping,emailProtection"), *by_ca, "3", "-days", "20")
    certificate("client", "keyUsage=critical,digitalSignature\nextendedKeyUsage=clientAuth\n", *by_ca, "4", "-days", "20")
    certificate("sha1-chain", stamping, *by_ca, "6", "-days", "20", "-sha1")
    certificate("stranger", stamping, "-CA", "other-ca.pem", "-CAkey", "other-ca.key", "-set_serial", "5", "-days", "20")
    # OpenSSL 3.0 makes no certificate that has expired.
    openssl("req", "-new", "-key", "tsa.key", "-subj", "/CN=expired", "-out", "expired.csr")
    with open(os.path.join(DIRECTORY, "index"), "w"), open(os.path.join(DIRECTORY, "ca.cnf"), "w") as file:
        file.write(
            "[ca]\ndefault_ca=d\n[d]\ndatabase=index\nnew_certs_dir=.\nserial=serial\ndefault_md=sha256\npolicy=p\n"
            "x509_extensions=e\n[p]\ncommonName=supplied\n[e]\n" + stamping
        )
    openssl(
        "ca", "-batch", "-config", "ca.cnf", "-create_serial", "-in", "expired.csr", "-cert", "ca.pem", "-keyfile", "ca.key",
        "-startdate", "20200101000000Z", "-enddate", "20210101000000Z", "-notext", "-out", "expired.pem"
    )
    os.link(os.path.join(DIRECTORY, "tsa.key"), os.path.join(DIRECTORY, "expired.key"))
    with open(os.path.join(DIRECTORY, "ts.cnf"), "w") as file:
        file.write(
            "[tsa]\ndefault_tsa=t\n[t]\nserial=%s/ts-serial\ncrypto_device=builtin\nsigner_digest=sha256\n"
            "default_policy=%s\nother_policies=1.2.3.4.2\ndigests=sha256\naccuracy=secs:1\nordering=no\ntsa_name=no\n"
            "ess_cert_id_chain=no\ness_cert_id_alg=sha256\n" % (DIRECTORY, POLICY)
        )


LOCK = threading.Lock()


def reply(query, signer="tsa"):
    """What `openssl ts` answers."""
    with LOCK, tempfile.NamedTemporaryFile(dir=DIRECTORY) as file:
        file.write(query)
        file.flush()
        return openssl(
            "ts", "-reply", "-config", "ts.cnf", "-section", "t", "-queryfile", file.name, "-signer", signer + ".pem", "-inkey",
            signer + ".key"
        )


def query(digest, nonce, policy=None):
    parts = [integer(1), imprint(digest)]
    if policy:
        parts.append(oid(policy))
    if nonce is not None:
        parts.append(nonce)
    return der(0x30, *parts, der(1, b"\xff"))


def signed(digest, nonce, signers, offset=0, attribute=True, version=1, content="1.2.840.113549.1.9.16.1.4", md="sha256"):
    """A token by the signers, which `openssl ts` would refuse to make."""
    moment = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + offset)).encode()
    info = der(0x30, integer(version), oid(POLICY), imprint(digest), integer(7), der(0x18, moment), nonce)
    options = ["-cades"] if attribute else []
    for signer in signers:
        options += ["-signer", signer + ".pem", "-inkey", signer + ".key"]
    token = openssl(
        "cms", "-sign", "-binary", "-nodetach", "-econtent_type", content, "-md", md, "-outform", "DER", *options, stdin=info)
    return der(0x30, der(0x30, integer(0)), token)


FAULTS = {
    "imprint": lambda digest, nonce: reply(query(bytes([digest[0] ^ 1]) + digest[1:], nonce)),
    "no-nonce": lambda digest, nonce: reply(query(digest, None)),
    "other-nonce": lambda digest, nonce: reply(query(digest, integer(1 + int.from_bytes(nonce[2:], "big")))),
    "other-policy": lambda digest, nonce: reply(query(digest, nonce, "1.2.3.4.2")),
    "refused": lambda digest, nonce: reply(query(digest, nonce, "1.2.3.4.99")),
    "expired": lambda digest, nonce: reply(query(digest, nonce), "expired"),
    "stranger": lambda digest, nonce: reply(query(digest, nonce), "stranger"),
    "not-critical": lambda digest, nonce: signed(digest, nonce, ["not-critical"]),
    "two-uses": lambda digest, nonce: signed(digest, nonce, ["two-uses"]),
    "client": lambda digest, nonce: signed(digest, nonce, ["client"]),
    "sha1": lambda digest, nonce: signed(digest, nonce, ["tsa"], md="sha1"),
    "sha1-chain": lambda digest, nonce: signed(digest, nonce, ["sha1-chain"]),
    "sha512": lambda digest, nonce: signed(digest, nonce, ["tsa"], md="sha512"),
    "two-signers": lambda digest, nonce: signed(digest, nonce, ["tsa", "not-critical"]),
    "unnamed": lambda digest, nonce: signed(digest, nonce, ["tsa"], attribute=False),
    "past": lambda digest, nonce: signed(digest, nonce, ["tsa"], -400),
    "future": lambda digest, nonce: signed(digest, nonce, ["tsa"], 400),
    "version": lambda digest, nonce: signed(digest, nonce, ["tsa"], version=2),
    "no-stamp": lambda digest, nonce: signed(digest, nonce, ["tsa"], content="1.2.840.113549.1.7.1"),
    "no-token": lambda digest, nonce: der(0x30, der(0x30, integer(0))),
    "empty": lambda digest, nonce: b"",
    "cut": lambda digest, nonce: reply(query(digest, nonce))[:-9],
    "trailing": lambda digest, nonce: reply(query(digest, nonce)) + b"\0",
    "large": lambda digest, nonce: b"\x30" * 65537,
    # Nothing is wrong with these.
    "crafted": lambda digest, nonce: signed(digest, nonce, ["tsa"], 290),
    "with-mods": lambda digest, nonce: signed(digest, nonce, ["tsa"]).replace(b"\x30\x03\2\1\0", b"\x30\x03\2\1\1", 1),
}


class Handler(http.server.BaseHTTPRequestHandler):
    failures = 0
    requests = 0
    # The values of the field Authorization that have come, and how often. The password is right for each user.
    logins = collections.Counter()

    def do_POST(self):
        Handler.requests += 1
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Type"] != "application/timestamp-query":
            return self.answer(415, b"")
        path = self.path.strip("/")
        if path == "login":
            login = self.headers["Authorization"]
            Handler.logins[login] += 1
            if not login or base64.b64decode(login.removeprefix("Basic ")).split(b":")[1] != b"tspass":
                return self.answer(401, b"", ("WWW-Authenticate", 'Basic realm="TSA"'))
        if path == "logins":
            wrong = base64.b64encode(body + b":wrong").decode()
            return self.answer(200, b"%d" % Handler.logins["Basic " + wrong])
        if path == "count":
            return self.answer(200, b"%d" % Handler.requests)
        if path == "hang":
            time.sleep(600)
        if path == "closed" or path == "closed-once" and not Handler.failures:
            Handler.failures += 1
            self.close_connection = True
            return self.connection.close()
        if path == "500":
            return self.answer(500, b"")
        if path == "404":
            return self.answer(404, b"not here")
        fault = FAULTS.get(path)
        if not fault:
            return self.answer(200, reply(body))
        digest = re.search(rb"\x04\x20(.{32})", body, re.S).group(1)
        after = body[body.index(digest) + 32:]
        if after[0] == 6:
            after = after[2 + after[1]:]
        self.answer(200, fault(digest, after[: 2 + after[1]]))

    def answer(self, status, body, *fields):
        self.send_response(status)
        for name, value in fields:
            self.send_header(name, value)
        self.send_header("Content-Type", "application/timestamp-reply")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


make()
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
with open(os.path.join(DIRECTORY, "port.new"), "w") as file:
    file.write(str(server.server_address[1]))
os.rename(os.path.join(DIRECTORY, "port.new"), os.path.join(DIRECTORY, "port"))
sys.stdin.read()
