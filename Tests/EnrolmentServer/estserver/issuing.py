"""Certificates as they should be and as faults make them, and what answers instead of one."""

import secrets

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from . import ca
from .messages import HTTPError, Response


class Interruption(Exception):
    """A fault in place of an answer: hang, half-close or close-after-request."""


def location(request, where):
    """same leads out of the fault, loop back into it; other is the same server by its other name."""
    host, _, port = request.headers["host"].rpartition(":")
    other = "127.0.0.1" if host == "localhost" else "localhost"
    path = request.target.partition("/fault-")[0]
    origin = {"same": f"https://{host}", "other": f"https://{other}", "http": f"http://{host}"}
    return request.target if where == "loop" else f"{origin[where]}:{port}{path}"


def interrupt(request, faults):
    """Ends the request where a fault says so. Nothing has been issued then."""
    for name in ("hang", "half-close", "close-after-request"):
        if faults.has(name):
            raise Interruption(name)
    if (status := faults.get("status")) is not None:
        later = [("Retry-After", status["retry"])] if status["retry"] else []
        raise HTTPError(int(status["status"]), "The certification authority is out of order.", later)
    if (redirect := faults.get("redirect")) is not None:
        target = location(request, redirect["where"])
        raise HTTPError(int(redirect["status"]), "It is elsewhere.", [("Location", target)])


def key_like(public_key):
    if isinstance(public_key, rsa.RSAPublicKey):
        return rsa.generate_private_key(65537, public_key.key_size)
    if isinstance(public_key, ed25519.Ed25519PublicKey):
        return ed25519.Ed25519PrivateKey.generate()
    return ec.generate_private_key(public_key.curve)


def bag(server, subject, names, key, faults, record):
    """The certificates of the answer in DER, in an order that is not the chain's."""
    authority = server.stranger if faults.has("untrusted") else server.authority_in_use
    if faults.has("other-key"):
        key = key_like(key).public_key()
    validity = (-86460, -60) if faults.has("expired") else server.validity
    leaf = server.issue(authority, subject, key, names, validity, record)
    return [ca.der(certificate) for certificate in [*authority.intermediates, leaf]]


def private_key_der(key, traditional):
    layout = PrivateFormat.TraditionalOpenSSL if traditional else PrivateFormat.PKCS8
    return key.private_bytes(Encoding.DER, layout, NoEncryption())


def multipart(key, certificates):
    """RFC 7030, section 4.4.2: the private key, then its certificate."""
    boundary = "part-" + secrets.token_hex(12)
    body = b""
    for kind, content in (
        ("application/pkcs8", key),
        ("application/pkcs7-mime; smime-type=certs-only", certificates),
    ):
        head = f"--{boundary}\r\nContent-Type: {kind}\r\nContent-Transfer-Encoding: base64\r\n\r\n"
        body += head.encode() + content.rstrip(b"\r\n") + b"\r\n"
    body += f"--{boundary}--\r\n".encode()
    return Response(200, [("Content-Type", f"multipart/mixed; boundary={boundary}")], body)
