#!/usr/bin/python3
"""A key store of certprov whose keys prove where they live, by a statement in a format of its own. They are in the host's sealed store."""
import base64
import datetime
import hashlib
import itertools
import json
import sys

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DER = serialization.Encoding.DER
HELLO = {
    "version": 1, "id": "proof",
    "keyStores": [{
        "scheme": "proof", "displayName": "Proof", "summary": "Keys that prove where they live.", "parameters": [],
        "can": ["key.attest"], "certificates": False, "makes": {"p256": ["sign"]}}]}
ids = itertools.count()


class Failure(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.wire = {"code": code, "message": message}


def encoded(data):
    return base64.b64encode(data).decode()


def ask(request, **params):
    number = next(ids)
    send({"id": number, "request": request, "params": params})
    while True:
        message = json.loads(sys.stdin.readline() or sys.exit())
        if message.get("id") == number and "request" not in message:
            if "error" in message:
                raise Failure(message["error"]["code"], message["error"]["message"])
            return message.get("result") or {}
        handle(message)


def spki(key):
    return key.public_key().public_bytes(DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def read(name):
    value = ask("record.read", name=name).get("value")
    return value and serialization.load_der_private_key(base64.b64decode(value["secret"]), None)


def write(name, key):
    pkcs8 = key.private_bytes(DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    ask("record.write", name=name, value={"secret": encoded(pkcs8)})


def named(public):
    return f"key-{hashlib.sha256(public).hexdigest()[:32]}"


def described(key):
    uri = "proof:" + named(spki(key))
    return {"id": uri, "uri": uri, "publicKey": encoded(spki(key)), "schemes": ["ecdsa_secp256r1_sha256"],
            "location": "proof", "attests": True}


def found(reference):
    name = named(base64.b64decode(reference["publicKey"]))
    return read(name) if reference["uri"] in ("", "proof:", "proof:" + name) else None


def by_id(params):
    key = read(params["key"].removeprefix("proof:"))
    if key is None:
        raise Failure("notFound", "There is no such key; make a new one.")
    return key


def attest(params):
    data, public = base64.b64decode(params["data"]), spki(by_id(params))
    if len(data) != 32:
        raise Failure("malformedData", "An attestation covers 32 bytes; hash the data.")
    prover = read("prover")
    if prover is None:
        prover = ec.generate_private_key(ec.SECP256R1())
        write("prover", prover)
    now, day = datetime.datetime.now(datetime.timezone.utc), datetime.timedelta(days=1)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "prover")])
    certificate = x509.CertificateBuilder(
        name, name, prover.public_key(), x509.random_serial_number(), now - day, now + day).sign(prover, hashes.SHA256())
    return {"format": "proof", "algorithm": -7, "chain": [encoded(certificate.public_bytes(DER))],
            "signature": encoded(prover.sign(data + public, ec.ECDSA(hashes.SHA256()))),
            "fields": {"statement": encoded(data + public)}}


def answer(number, request, params):
    if request == "hello":
        return HELLO
    if request == "configure":
        return {}
    if request == "key.make":
        key = ec.generate_private_key(ec.SECP256R1())
        ask("remember", **{"for": number, "key": described(key)})
        write(named(spki(key)), key)
        return {"key": described(key)}
    if request == "key.find":
        key = found(params["key"])
        return {"key": key and described(key)}
    if request == "key.list":
        names = [name for name in ask("storage.list")["records"] if name.startswith("key-")]
        return {"keys": [described(read(name)) for name in names]}
    if request == "key.destroy":
        key = found(params["key"])
        if key:
            ask("record.write", name=named(spki(key)), value={"secret": ""})
        return {"destroyed": key is not None}
    if request == "key.sign":
        key = by_id(params)
        if params["scheme"] != "ecdsa_secp256r1_sha256":
            raise Failure("unsupportedAlgorithm", "Use ecdsa_secp256r1_sha256.")
        return {"signature": encoded(key.sign(base64.b64decode(params["message"]), ec.ECDSA(hashes.SHA256())))}
    if request == "key.attest":
        return attest(params)
    raise Failure("unsupported", request)


def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def handle(message):
    if "request" not in message:
        return
    try:
        send({"id": message["id"], "result": answer(message["id"], message["request"], message.get("params") or {})})
    except Failure as failure:
        send({"id": message["id"], "error": failure.wire})


for line in sys.stdin:
    handle(json.loads(line))
