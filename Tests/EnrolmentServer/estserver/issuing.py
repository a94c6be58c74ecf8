"""Certificates as they should be and as faults make them, and what answers instead of one."""

import secrets

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.name import _ASN1Type

from . import ca
from .messages import HTTPError, Response
from .pending import retry_after


class Interruption(Exception):
    """A fault in place of an answer: hang, half-close or close-after-request."""


def location(request, operation, where):
    """same leads out of the fault, loop back into it; other is the same server by its other name, so that its log tells
    what a client sends to another origin."""
    host, _, port = request.headers["host"].rpartition(":")
    other = "127.0.0.1" if host == "localhost" else "localhost"
    path = "/token" if operation == "token" else f"/.well-known/est/{operation}"
    return {
        "same": f"https://{host}:{port}{path}",
        "loop": request.target,
        "other": f"https://{other}:{port}{path}",
        "http": f"http://{host}:{port}{path}",
    }[where]


def interrupt(request, operation, faults):
    """Ends the request where a fault says so. Nothing has been issued then."""
    for name in ("hang", "half-close", "close-after-request"):
        if faults.has(name):
            raise Interruption(name)
    if (status := faults.get("status")) is not None:
        later = retry_after(status["retry"] or "absent")
        headers = [("Retry-After", later)] if later is not None else []
        raise HTTPError(int(status["status"]), "The certification authority is out of order.", headers)
    if faults.has("429"):
        raise HTTPError(429, "Too many requests.", [("Retry-After", "1")])
    if (redirect := faults.get("redirect")) is not None:
        target = location(request, operation, redirect["where"])
        raise HTTPError(int(redirect["status"]), "It is elsewhere.", [("Location", target)])


def key_like(public_key):
    if isinstance(public_key, rsa.RSAPublicKey):
        return rsa.generate_private_key(65537, public_key.key_size)
    if isinstance(public_key, ed25519.Ed25519PublicKey):
        return ed25519.Ed25519PrivateKey.generate()
    return ec.generate_private_key(public_key.curve)


def server_key(public_key, faults):
    return ed25519.Ed25519PrivateKey.generate() if faults.has("other-kind") else key_like(public_key)


def other_names(subject, names):
    """The same subject in strings of another type, and one more alternative name, if it is not there already."""
    printable = [x509.NameAttribute(a.oid, a.value, _ASN1Type.PrintableString) for a in subject]
    added = x509.DNSName("added.example")
    known = list(names or [])
    return x509.Name(printable), x509.SubjectAlternativeName(known + ([] if added in known else [added]))


def validity(lifetime, faults):
    """(start, end) in seconds from now"""
    if (expired := faults.get("expired")) is not None:
        end = -int(expired["seconds"] or 60)
        return end - lifetime, end
    if (early := faults.get("not-yet-valid")) is not None:
        start = int(early["seconds"] or 3600)
        return start, start + lifetime
    return 0, lifetime


def bag(server, subject, names, key, presented, faults, record):
    """The certificates of the answer in DER, in an order that is not the chain's."""
    authority = server.successor if server.is_rolled_over or faults.has("rollover") else server.authority
    if faults.has("untrusted"):
        authority = server.stranger
    # Not looked for without need: after thousands of certificates that takes longer than to issue one.
    earlier = presented or (authority.latest(subject) if "old-certificate" in faults.chosen else None)
    if earlier is not None and faults.has("old-certificate"):
        leaves = [earlier]
    else:
        if faults.has("wrong-subject"):
            subject = ca.name("Somebody Else")
        if faults.has("wrong-san"):
            names = x509.SubjectAlternativeName([x509.DNSName("somebody-else.example")])
        if faults.has("other-names"):
            subject, names = other_names(subject, names)
        if faults.has("other-key"):
            key = key_like(key).public_key()
        leaves = [server.issue(authority, subject, key, names, validity(server.options.lifetime, faults), record)]
        if faults.has("two-leaves"):
            another = (ca.name("Somebody Else"), key_like(key).public_key(), None, (0, server.options.lifetime))
            leaves.append(server.issue(authority, *another, record))
    if faults.has("empty-bag"):
        return []
    alone = faults.has("no-intermediate") or server.options.leaf_only
    return [ca.der(certificate) for certificate in ([] if alone else authority.intermediates) + leaves[::-1]]


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
