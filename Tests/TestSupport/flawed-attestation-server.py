"""The attestation server of the examples, which may break a rule: flawed-attestation-server.py SERVER DIRECTORY FLAW

Prints its address. Its decisions are in DIRECTORY/log.
"""
import base64
import importlib.machinery
import importlib.util
import pathlib
import sys
import threading

path, directory, flaw = sys.argv[1:]
loader = importlib.machinery.SourceFileLoader("server", path)
server = importlib.util.module_from_spec(importlib.util.spec_from_loader("server", loader))
loader.exec_module(server)


def encoded(data):
    return base64.b64encode(data).decode()


def flipped(text):
    data = bytearray(base64.b64decode(text))
    data[-1] ^= 1
    return encoded(data)


def cut(text):
    return encoded(base64.b64decode(text)[:-1])


CREDENTIALS = {
    "no JSON": lambda answer: "garbage",
    "another object": lambda answer: {"credential": answer["credential"]},
    "huge": lambda answer: answer | {"more": "x" * (1 << 16)},
    "cut credential": lambda answer: answer | {"credential": cut(answer["credential"])},
    "cut secret": lambda answer: answer | {"secret": cut(answer["secret"])},
    "empty secret": lambda answer: answer | {"secret": ""},
    "long secret": lambda answer: answer | {"secret": encoded(server.sized(bytes(600)))},
    "damaged credential": lambda answer: answer | {"credential": flipped(answer["credential"])},
    "damaged secret": lambda answer: answer | {"secret": flipped(answer["secret"])},
    "garbage secret": lambda answer: answer | {"secret": encoded(server.sized(b"garbage"))},
    "URL alphabet": lambda answer: answer | {
        "credential": base64.urlsafe_b64encode(server.sized(b"\xfb" * 60)).decode()},
    "no padding": lambda answer: answer | {"credential": answer["credential"].rstrip("=")},
}
CHAINS = {
    "empty chain": lambda chain: [],
    "many certificates": lambda chain: chain * 5,
    "no certificate": lambda chain: [encoded(b"certificate")],
    "no chain": lambda chain: "garbage",
    "huge chain": lambda chain: chain + ["x" * (1 << 16)],
}


class Flawed(server.Server):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        issue, other = self.attestation.issue, server.ec.generate_private_key(server.ec.SECP256R1()).public_key()
        if flaw == "another key":
            self.attestation.issue = lambda key, *rest: issue(other, *rest)
        if flaw == "expired":
            self.attestation.issue = lambda key, subject, extensions, lifetime: issue(key, subject, extensions, -1)
        if flaw == "a subject":
            self.attestation.issue = lambda key, subject, *rest: issue(key, self.attestation.name, *rest)

    def say(self, text):
        if text.startswith("listening"):
            return super().say(text)
        with (self.directory / "log").open("a") as log:
            log.write(text + "\n")

    def attest(self, request):
        return CREDENTIALS.get(flaw, lambda answer: answer)(super().attest(request))

    def secret(self, request):
        self.say("got a secret")
        if flaw == "late":
            threading.Event().wait()
        answer = super().secret(request)
        return {"chain": CHAINS.get(flaw, lambda chain: chain)(answer["chain"])}


class Handler(server.Handler):
    def reply(self, status, content, headers=None):
        if flaw == "redirection" and self.path == "/attest":
            return super().reply(307, {}, {"Location": "/secret"})
        if self.path == "/secret":
            if flaw == "another place for the secret":
                return super().reply(307, {}, {"Location": "/secret"})
            if flaw == "busy":
                return super().reply(503, {}, {"Retry-After": "0"})
            if flaw == "lost answer":
                self.close_connection = True
                return
        super().reply(status, content, headers)
        if flaw == "twice":
            super().reply(status, content, headers)


make_credential = server.make_credential
if flaw == "another name":
    server.make_credential = lambda ek, name, secret: make_credential(ek, server.sha256(name), secret)
server.Server, server.Handler = Flawed, Handler
(pathlib.Path(directory) / "log").touch()
sys.argv = [path, directory, "--port", "0"]
server.main()
