"""A CA with its servers (OCSP, revocation lists, certificates, time stamps) over HTTP, for tests of validation data.

Usage: ca.py DIRECTORY. Makes a root, a CA below it and their leaves in DIRECTORY, writes its port to DIRECTORY/port, and ends with its
stdin. LEAVES says which URLs the certificate of each leaf names. Keys are also there as PKCS#8 (`.p8`).
"""

import http.server
import os
import subprocess
import sys
import tempfile
import threading

DIRECTORY = os.path.abspath(sys.argv[1])
# The leaves, with the paths of their OCSP servers and lists, and whether they are revoked. A URL stays as it is.
LEAVES = {
    "signer": (["ocsp"], ["ca.crl"], False),
    "answered": (["ocsp"], [], False),
    "checked": (["ocsp-checked"], [], False),
    "by-ca": (["ocsp-ca"], [], False),
    "listed": ([], ["ca.crl"], False),
    "fallback": (["missing"], ["ca.crl"], False),
    "second": ([], ["missing", "ca.crl"], False),
    "tsa": (["ocsp"], [], False),
    "tsa-revoked": (["ocsp"], [], True),
    "bare": ([], [], False),
    "packed": (["ocsp"], [], False),
    "never-revoked": ([], [], False),
    "redirected": (["redirect-here"], [], False),
    "redirected-away": (["redirect-away"], [], False),
    "hanging": (["hang"], [], False),
    "hanging-listed": (["hang", "hang"], ["ca.crl"], False),
    "gone": (["http://127.0.0.1:1/"], [], False),
    "unchecked": (["ocsp-unchecked"], [], False),
    "revoked-responder": (["ocsp-revoked"], [], False),
    "revoked": (["ocsp"], ["ca.crl"], True),
    "revoked-list": ([], ["ca.crl"], True),
    "missing": (["missing"], [], False),
    "missing-list": ([], ["missing"], False),
    "stranger": (["ocsp-stranger"], [], False),
    "client": (["ocsp-client"], [], False),
    "other": (["ocsp-other"], [], False),
    "cut": (["ocsp-cut"], [], False),
    "sha1": (["ocsp-sha1"], [], False),
    "large": (["large"], [], False),
    "unauthorized": (["ocsp-unauthorized"], [], False),
    "root-list": ([], ["root.crl"], False),
    "overdue-list": ([], ["overdue.crl"], False),
    "early-list": ([], ["early.crl"], False),
    "pem-list": ([], ["ca.crl.pem"], False),
    "sha1-list": ([], ["sha1.crl"], False),
}


def openssl(*arguments):
    return subprocess.run(
        ["openssl", *arguments], cwd=DIRECTORY, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ).stdout


def write(name, text):
    with open(os.path.join(DIRECTORY, name), "w") as file:
        file.write(text)


def certificate(name, serial, extensions, issuer=None):
    openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", name + ".key",
            "-subj", "/CN=" + name, "-out", name + ".csr")
    openssl("pkcs8", "-topk8", "-nocrypt", "-in", name + ".key", "-outform", "DER", "-out", name + ".p8")
    identifiers = "subjectKeyIdentifier=hash\n" + ("authorityKeyIdentifier=keyid\n" if issuer else "")
    write(name + ".ext", identifiers + extensions)
    by = ["-CA", issuer + ".pem", "-CAkey", issuer + ".key"] if issuer else ["-signkey", name + ".key"]
    openssl("x509", "-req", "-in", name + ".csr", "-extfile", name + ".ext", "-set_serial", str(serial), "-days", "30",
            "-out", name + ".pem", *by)
    openssl("x509", "-in", name + ".pem", "-outform", "DER", "-out", name + ".der")


def revocation_list(issuer, name, *times, digest="sha256"):
    write(issuer + ".cnf", "[ca]\ndefault_ca=d\n[d]\ndatabase=%s.index\ndefault_md=%s\ncrl_extensions=e\n[e]\nauthorityKeyIdentifier=keyid\n" % (issuer, digest))
    openssl("ca", "-gencrl", "-config", issuer + ".cnf", "-cert", issuer + ".pem", "-keyfile", issuer + ".key", "-out",
            name + ".pem", *times)
    openssl("crl", "-in", name + ".pem", "-outform", "DER", "-out", name)


def make(origin):
    def urls(issuer, ocsp, lists):
        def url(path):
            return "URI:" + (path if "://" in path else "%s/%s" % (origin, path))

        text = "authorityInfoAccess=caIssuers;" + url(issuer)
        text += "".join(",OCSP;" + url(path) for path in ocsp) + "\n"
        if lists:
            text += "crlDistributionPoints=%s\n" % ",".join(map(url, lists))
        return text

    authority = "basicConstraints=critical,CA:true\nkeyUsage=critical,keyCertSign,cRLSign,digitalSignature\n"
    certificate("root", 1, authority)
    certificate("ca", 2, authority + urls("root.der", [], ["root.crl"]), "root")
    openssl("crl2pkcs7", "-nocrl", "-certfile", "ca.pem", "-outform", "DER", "-out", "ca.p7c")
    certificate("other-root", 3, authority)
    answering = "keyUsage=critical,digitalSignature\nextendedKeyUsage=OCSPSigning\n"
    certificate("ocsp", 4, answering + "noCheck=ignored\n", "ca")
    certificate("ocsp-checked", 5, answering + urls("ca.der", [], ["ca.crl"]), "ca")
    certificate("ocsp-stranger", 6, answering + "noCheck=ignored\n", "other-root")
    certificate("ocsp-client", 7, "extendedKeyUsage=clientAuth\nnoCheck=ignored\n", "ca")
    certificate("ocsp-unchecked", 8, answering, "ca")
    certificate("ocsp-revoked", 9, answering + urls("ca.der", [], ["ca.crl"]), "ca")
    index = "R\t401231235959Z\t250101000000Z\t09\tunknown\t/CN=ocsp-revoked\n"
    for serial, (name, (ocsp, lists, revoked)) in enumerate(LEAVES.items(), 16):
        extensions = "keyUsage=critical,digitalSignature,nonRepudiation\n"
        if name.startswith("tsa"):
            extensions += "extendedKeyUsage=critical,timeStamping\n"
        if name == "never-revoked":
            extensions += "2.5.29.56=DER:0500\n"
        if name != "bare":
            extensions += urls("ca.p7c" if name == "packed" else "ca.der", ocsp, lists)
        certificate(name, serial, extensions, "ca")
        state = "R\t401231235959Z\t250101000000Z" if revoked else "V\t401231235959Z\t"
        index += "%s\t%02X\tunknown\t/CN=%s\n" % (state, serial, name)
    # Of a CA that names no URL of its root.
    lists = "crlDistributionPoints=URI:%s/" % origin
    certificate("private-ca", 10, authority + lists + "root.crl\n", "root")
    certificate("private", 11, "keyUsage=critical,digitalSignature\n" + lists + "private-ca.crl\n", "private-ca")
    # Two that have issued each other.
    for number, (name, other) in enumerate([("loop-a", "loop-b"), ("loop-b", "loop-a")], 12):
        write(name + ".index", "")
        certificate(name, number, authority + urls(other + ".der", [], [other + ".crl"]), number == 13 and other)
    openssl("x509", "-req", "-in", "loop-a.csr", "-extfile", "loop-a.ext", "-set_serial", "14", "-days", "30", "-CA", "loop-b.pem",
            "-CAkey", "loop-b.key", "-out", "loop-a.pem")
    openssl("x509", "-in", "loop-a.pem", "-outform", "DER", "-out", "loop-a.der")
    certificate("loop", 15, "keyUsage=critical,digitalSignature\n" + urls("loop-a.der", [], ["loop-a.crl"]), "loop-a")
    for name in ("loop-a", "loop-b"):
        revocation_list(name, name + ".crl", "-crldays", "2")
    write("private-ca.index", "")
    write("ca.index", index)
    write("root.index", "V\t401231235959Z\t\t02\tunknown\t/CN=ca\n")
    revocation_list("root", "root.crl", "-crldays", "2")
    revocation_list("ca", "ca.crl", "-crldays", "2")
    revocation_list("ca", "sha1.crl", "-crldays", "2", digest="sha1")
    revocation_list("private-ca", "private-ca.crl", "-crldays", "2")
    revocation_list("ca", "early.crl", "-crl_lastupdate", "20400101000000Z", "-crl_nextupdate", "20400201000000Z")
    revocation_list("ca", "overdue.crl", "-crl_lastupdate", "20200101000000Z", "-crl_nextupdate", "20200201000000Z")
    write("ts.cnf", "[tsa]\ndefault_tsa=t\n[t]\nserial=%s/ts-serial\nsigner_digest=sha256\ndefault_policy=1.2.3.4.1\n"
          "digests=sha256\naccuracy=secs:1\ness_cert_id_chain=no\ness_cert_id_alg=sha256\n" % DIRECTORY)


LOCK = threading.Lock()


def answer(path, body):
    """The response to a POST: a time stamp or an OCSP answer."""
    with LOCK, tempfile.NamedTemporaryFile(dir=DIRECTORY) as file:
        file.write(body)
        file.flush()
        if path.startswith("tsa"):
            return openssl("ts", "-reply", "-config", "ts.cnf", "-section", "t", "-queryfile", file.name, "-signer", path + ".pem",
                           "-inkey", path + ".key")
        if path == "ocsp-unauthorized":
            return bytes.fromhex("30030a0106")
        request = file.name
        if path == "ocsp-other":
            openssl("ocsp", "-issuer", "ca.pem", "-cert", "signer.pem", "-no_nonce", "-reqout", "other.req")
            request = "other.req"
        name = "ca" if path == "ocsp-ca" else path if os.path.exists(os.path.join(DIRECTORY, path + ".pem")) else "ocsp"
        openssl("ocsp", "-index", "ca.index", "-CA", "ca.pem", "-rsigner", name + ".pem", "-rkey", name + ".key", "-reqin", request,
                "-respout", "answer", "-ndays", "2", *(["-rmd", "sha1"] if path == "ocsp-sha1" else []))
        with open(os.path.join(DIRECTORY, "answer"), "rb") as response:
            whole = response.read()
        return whole[:-9] if path == "ocsp-cut" else whole


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.strip("/")
        if "/" in path or not path.endswith((".crl", ".crl.pem", ".der", ".p7c")):
            return self.answer(404, b"")
        with open(os.path.join(DIRECTORY, path), "rb") as file:
            self.answer(200, file.read())

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = self.path.strip("/")
        if path.startswith("redirect"):
            return self.answer(307, b"", "/ocsp" if path == "redirect-here" else "http://localhost:1/ocsp")
        if path == "hang":
            threading.Event().wait()
        if path == "large":
            return self.answer(200, bytes(65537))
        if not path.startswith(("ocsp", "tsa")):
            return self.answer(404, b"")
        self.answer(200, answer(path, body))

    def answer(self, status, body, location=None):
        self.send_response(status)
        self.send_header("Content-Type", self.headers.get("Accept", "application/octet-stream"))
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
make("http://127.0.0.1:%d" % server.server_address[1])
threading.Thread(target=server.serve_forever, daemon=True).start()
write("port.new", str(server.server_address[1]))
os.rename(os.path.join(DIRECTORY, "port.new"), os.path.join(DIRECTORY, "port"))
sys.stdin.read()
