#!/usr/bin/python3
"""A plugin that does the one wrong thing that BEHAVIOUR names, and everything else right.

It is a provider, whose key is its own and signs with the program openssl, and a key store of one key with the scheme zoo.
"""
import base64
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

BEHAVIOUR = "@behaviour@"
# How much is a lot.
MEBIBYTES = @mebibytes@
ID = "zoo"
config = {}
ids = iter(range(1, 1 << 30))


def send(message):
    text = json.dumps(message)
    if BEHAVIOUR == "half a message" and "result" in message and message["result"].get("identity"):
        os.write(1, text[: len(text) // 2].encode())
        os._exit(0)
    os.write(1, text.encode() + b"\n")
    if BEHAVIOUR == "an answer twice" and "result" in message:
        os.write(1, text.encode() + b"\n")


def read():
    line = sys.stdin.readline()
    if not line:
        if BEHAVIOUR == "stops its launcher":
            time.sleep(1000)
        sys.exit(0)
    return json.loads(line)


def ask(request, params):
    """A request of the plugin: its answer."""
    number = next(ids)
    send({"id": number, "request": request, "params": params})
    while True:
        message = read()
        if message.get("id") == number and "request" not in message:
            return message
        handle(message)


def file(name):
    return pathlib.Path(config["directory"], name)


def key():
    public = base64.b64encode(file("spki.der").read_bytes()).decode()
    key = {"id": "the key", "publicKey": public, "schemes": ["ecdsa_secp256r1_sha256"], "location": "zoo"}
    if BEHAVIOUR == "a key that signs in thirty years":
        key["timeout"] = 1e9
    return key


def identity():
    names = ["leaf.der", "issuer.der"]
    if BEHAVIOUR == "a chain out of order":
        names.append("leaf.der")
    if BEHAVIOUR == "another certificate at each call" and next(ids) % 2:
        names[0] = "other.der"
    chain = [base64.b64encode(file(name).read_bytes()).decode() for name in names]
    if BEHAVIOUR == "an empty chain":
        chain = []
    if BEHAVIOUR == "a key that does not fit the leaf":
        chain[0] = base64.b64encode(file("stranger.der").read_bytes()).decode()
    trust = [base64.b64encode(path.read_bytes()).decode() for path in pathlib.Path(config["directory"]).glob("trust-*.der")]
    one = {"chain": chain, "key": key(), "source": "the zoo", "trust": trust}
    if BEHAVIOUR in ["for servers", "for an unknown side"]:
        one["usage"] = "server" if BEHAVIOUR == "for servers" else "referee"
    return {"identity": one}


def stop_launcher():
    """Keeps the launcher stopped, together with a process of another session."""
    launcher = os.getppid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        for stream in range(3):
            os.close(stream)
        while True:
            os.kill(launcher, signal.SIGSTOP)
            time.sleep(0.001)
    os.kill(launcher, signal.SIGSTOP)


def sign(params):
    if BEHAVIOUR == "a key that signs in thirty years":
        time.sleep(1000)
    if BEHAVIOUR == "a signature that does not verify":
        return {"signature": base64.b64encode(bytes(70)).decode()}
    done = subprocess.run(["openssl", "dgst", "-sha256", "-sign", str(file("key.pem"))],
                          input=base64.b64decode(params["message"]), capture_output=True, check=True)
    return {"signature": base64.b64encode(done.stdout).decode()}


def hello():
    parameters = [{"name": "directory", "type": "path", "required": True, "summary": "Where its files are."},
                  {"name": "password-source", "type": "secret-source", "summary": "A secret."}]
    if BEHAVIOUR == "two parameters of one name":
        parameters.append(parameters[0])
    if BEHAVIOUR == "a parameter that the host adds":
        parameters.append({"name": "key", "type": "key-store", "summary": "A store."})
        parameters.append({"name": "key-pin-source", "type": "string", "summary": "Its PIN."})
    if BEHAVIOUR == "a default that chooses a library":
        parameters.append({"name": "key", "type": "key-store", "summary": "A store.",
                           "default": "pkcs11:?module-path=/tmp/of-the-plugin.so"})
    stores = []
    if BEHAVIOUR == "a scheme that is not its own":
        stores.append({"scheme": "aquarium", "displayName": "Aquarium", "summary": "Fish.", "parameters": [],
                       "makes": {"p256": ["sign"]}})
    if BEHAVIOUR == "has a key store":
        stores.append({"scheme": "zoo", "displayName": "Zoo", "summary": "Keys.", "parameters": [], "makes": {"p256": ["sign"]}})
    return {"keyStores": stores, "version": 99 if BEHAVIOUR == "an unknown version" else 1,
            "id": "other" if BEHAVIOUR == "another plugin's id" else ID, "pluginVersion": "1.0",
            "provider": {"displayName": "Zoo", "summary": "Misbehaves.", "parameters": parameters, "can": ["list", "updated", "announceDeletions", "discardReplaced", "advice", "revoke"],
                         "keyStore": stores[0]["scheme"] if stores else None},
            "concurrency": 4, "fieldOfALaterVersion": {"a": [1]}}


def listed():
    one = identity()["identity"]
    return {"identities": [{"chain": one["chain"], "stored": True, "location": "zoo", "usage": one.get("usage")}], "remarks": ["a remark"]}


def result(number, name, params):
    if name == "hello":
        return hello()
    if name == "configure":
        config.update(params["parameters"])
        return {}
    if name == "obtain":
        if BEHAVIOUR == "prompts for ever":
            while True:
                ask("prompt", {"for": number, "kind": "secret", "text": "Once more"})
        if BEHAVIOUR == "asks for another's secret":
            answer = ask("secret", {"source": "file:/etc/shadow"})
            raise Failure(answer["error"]["code"], answer["error"]["message"])
        if BEHAVIOUR == "uses everything":
            return everything(number)
        if BEHAVIOUR == "progress for ever":
            while True:
                send({"notice": "progress", "params": {"for": number, "text": "working"}})
                time.sleep(1)
        if BEHAVIOUR == "stops its launcher":
            stop_launcher()
        return identity()
    if name == "stored":
        return identity()
    if name == "forget":
        return {}
    if name == "list":
        return listed()
    if name == "announceDeletions":
        return {"sentences": ["Nothing is lost."]}
    if name == "advice":
        return {"window": {"start": 2, "end": 1} if BEHAVIOUR == "a window that ends before it begins" else {"start": 1, "end": 2}}
    if name in ("discardReplaced", "revoke", "closeAccount"):
        return {}
    if name == "key.sign":
        return sign(params)
    if BEHAVIOUR == "ignores what it does not know":
        return None
    raise Failure("unsupported", name)


def everything(number):
    """Each service of the host, whose answers it checks."""
    assert ask("no such request", {})["error"]["code"] == "unsupported"
    send({"notice": "no such notice"})
    send({"notice": "log", "params": {"level": "info", "message": "hello\u001b[31m"}})
    send({"notice": "progress", "params": {"for": number, "text": "working"}})
    said = ask("prompt", {"for": number, "kind": "secret", "text": "The secret"})["result"]["secret"]["secret"]
    assert base64.b64decode(said) == b"s3cret"
    assert ask("prompt", {"for": number, "kind": "confirm", "text": "Really?"})["result"]["confirmed"] is True
    name = ask("prompt", {"for": number, "kind": "text", "text": "Your name"})["result"]["text"]
    assert name == "s3cret"
    choices = {"for": number, "kind": "choice", "text": "Which?", "choices": ["one", "two"]}
    assert ask("prompt", choices)["result"]["choice"] == 1
    assert ask("prompt", dict(choices, choices=[]))["error"]["code"] == "protocolError"
    secret = ask("secret", {"source": config["password-source"]})["result"]["value"]["secret"]
    assert base64.b64decode(secret) == b"from a file"
    nothing = ask("record.read", {"name": "state"})["result"]
    assert nothing.get("value") is None
    new = {"secret": base64.b64encode(b"one").decode()}
    assert ask("record.write", {"name": "state", "value": new, "version": nothing["version"]})["result"]["written"]
    assert not ask("record.write", {"name": "state", "value": new, "version": nothing["version"]})["result"]["written"]
    assert base64.b64decode(ask("record.read", {"name": "state"})["result"]["value"]["secret"]) == b"one"
    assert ask("record.write", {"name": "state"})["error"]["code"] == "protocolError"
    assert ask("record.write", {"name": "state", "value": {"secret": ""}})["result"]["written"]
    assert ask("record.read", {"name": "state"})["result"] == nothing
    assert ask("record.write", {"name": "state", "value": new, "version": nothing["version"]})["result"]["written"]
    for wrong in ("../etc", "at@sign", "x" * 96):
        assert ask("record.read", {"name": wrong})["error"]["code"] == "protocolError"
    assert ask("record.read", {"name": "x" * 95})["result"] == nothing
    two = {"secret": base64.b64encode(b"two").decode()}
    assert ask("record.write", {"name": "state", "value": two, "shared": True})["result"]["written"]
    assert base64.b64decode(ask("record.read", {"name": "state", "shared": True})["result"]["value"]["secret"]) == b"two"
    assert base64.b64decode(ask("record.read", {"name": "state"})["result"]["value"]["secret"]) == b"one"
    assert ask("entry.read", {"name": "state", "shared": True})["error"]["code"] == "protocolError"
    for shared in (False, True):
        assert ask("storage.list", {"shared": shared})["result"] == {"entries": [], "records": ["state"]}
    assert ask("lease.take", {"name": "work"})["result"]["taken"]
    assert not ask("lease.take", {"name": "work"})["result"]["taken"]
    assert ask("lease.take", {"name": "work", "shared": True})["result"]["taken"]
    ask("lease.release", {"name": "work", "shared": True})
    assert ask("lease.look", {"name": "work"})["result"]["taken"]
    ask("lease.release", {"name": "work"})
    for lease in range(64):
        assert ask("lease.take", {"name": f"work {lease}"})["result"]["taken"]
    assert ask("lease.take", {"name": "one too many"})["error"]["code"] == "operationNotAllowed"
    library = ask("key.list", {"store": "pkcs11:token=zoo?module-path=/tmp/of-the-plugin.so", "for": number})
    assert library["error"]["code"] == "operationNotAllowed"
    store = {"store": "store:", "for": number}
    library = ask("key.identity", dict(store, uri="pkcs11:token=zoo?module-path=/tmp/of-the-plugin.so"))
    assert library["error"]["code"] == "operationNotAllowed"
    made = ask("key.make", dict(store, type="p256", label="zoo", use=["sign"]))["result"]["key"]
    assert remembered == [made["publicKey"]]
    message = base64.b64encode(b"message").decode()
    signed = ask("key.sign", {"key": made["id"], "scheme": "ecdsa_secp256r1_sha256", "message": message})
    assert len(base64.b64decode(signed["result"]["signature"])) > 60
    reference = {"uri": made["uri"], "publicKey": made["publicKey"]}
    assert ask("key.find", dict(store, key=reference))["result"]["key"]["publicKey"] == made["publicKey"]
    assert len(ask("key.list", store)["result"]["keys"]) == 1
    for _ in range(2):
        assert "error" not in ask("key.destroy", dict(store, key=reference))
    assert ask("key.find", dict(store, key=reference))["result"].get("key") is None
    decryption(store)
    return identity()


def decryption(store):
    """Keys of the host that decrypt. A plugin that does not name the scheme means RSAES-PKCS1-v1_5."""
    def made(*use):
        return ask("key.make", dict(store, type="rsa2048", label="zoo", use=use))

    def decrypted(key, options, **scheme):
        public = file("public.der")
        public.write_bytes(base64.b64decode(key["publicKey"]))
        command = ["openssl", "pkeyutl", "-encrypt", "-pubin", "-keyform", "DER", "-inkey", str(public)]
        for option in options:
            command += ["-pkeyopt", option]
        done = subprocess.run(command, input=b"secret", capture_output=True, check=True)
        return ask("key.decrypt", dict(scheme, key=key["id"], ciphertext=base64.b64encode(done.stdout).decode()))

    secret = base64.b64encode(b"secret").decode()
    old = made("sign", "decrypt")["result"]["key"]
    assert old["decrypts"] is True and old["decryptionSchemes"] == ["RSA1_5"]
    assert decrypted(old, [])["result"]["plaintext"]["secret"] == secret
    oaep = ["rsa_padding_mode:oaep", "rsa_oaep_md:sha256"]
    assert decrypted(old, oaep, scheme="RSA-OAEP-256")["error"]["code"] == "unsupportedAlgorithm"
    assert decrypted(old, oaep)["error"]["code"] == "malformedData"
    new = made("decryptOAEP")["result"]["key"]
    assert new["decrypts"] is False and new["decryptionSchemes"] == ["RSA-OAEP-256", "RSA-OAEP"]
    assert decrypted(new, oaep, scheme="RSA-OAEP-256")["result"]["plaintext"]["secret"] == secret
    assert decrypted(new, [])["error"]["code"] == "unsupportedAlgorithm"
    assert made("sign", "teleport")["error"]["code"] == "unsupportedAlgorithm"
    for key in (old, new):
        ask("key.destroy", dict(store, key={"uri": key["uri"], "publicKey": key["publicKey"]}))


class Failure(Exception):
    def __init__(self, code, message):
        self.code, self.message = code, message


remembered = []


def misbehave(name):
    """Before the answer to a request."""
    if BEHAVIOUR == f"hangs at {name}":
        time.sleep(1000)
    if BEHAVIOUR == f"crashes at {name}":
        os.kill(os.getpid(), signal.SIGSEGV)
    if BEHAVIOUR.startswith(f"exits at {name} with "):
        os._exit(int(BEHAVIOUR.rsplit(" ", 1)[1]))
    if name != "obtain":
        return
    if BEHAVIOUR == "garbage":
        os.write(1, b"\x00\xff garbage\n")
    if BEHAVIOUR == "a lot on standard output":
        for _ in range(MEBIBYTES):
            os.write(1, b"x" * (1 << 20))
    if BEHAVIOUR == "a lot of notices":
        # Mostly blanks, which are quick to read: the limit is one of a minute, and the machine may be busy.
        line = b" " * 900000 + json.dumps({"notice": "log", "params": {"level": "debug", "message": "x"}}).encode() + b"\n"
        while True:
            os.write(1, line)
    if BEHAVIOUR == "a lot on standard error":
        for _ in range(MEBIBYTES):
            os.write(2, b"x" * (1 << 20))
        os.write(2, b"\nthe end\n")
        os._exit(5)
    if BEHAVIOUR == "a child that keeps standard output open":
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(1000)
            os._exit(0)
        os._exit(0)
    if BEHAVIOUR == "ignores cancel and SIGTERM":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(1)
    if BEHAVIOUR == "closes standard output":
        os.close(1)
        time.sleep(1000)


def handle(message):
    if message.get("request") == "remember":
        remembered.append(message["params"]["key"]["publicKey"])
        return send({"id": message["id"], "result": {}})
    if "request" not in message:
        return None
    name = message["request"]
    misbehave(name)
    number = message["id"] + 1000 if BEHAVIOUR == "another request's id" and name == "obtain" else message["id"]
    try:
        if BEHAVIOUR == "an unknown code" and name == "obtain":
            raise Failure("fullMoon", "the moon is full")
        answer = result(message["id"], name, message.get("params", {}))
        if answer is not None:
            send({"id": number, "result": answer})
        if BEHAVIOUR == "announces updates" and name == "stored":
            send({"notice": "updated"})
    except Failure as failure:
        send({"id": number, "error": {"code": failure.code, "message": failure.message}})
    return None


while True:
    handle(read())
