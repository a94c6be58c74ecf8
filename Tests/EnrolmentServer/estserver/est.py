"""The EST operations (RFC 7030, RFC 8951)."""

import base64
import binascii
import hashlib
import re

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from . import ca, issuing, tls
from .der import certs_only, oid, sequence
from .faults import encoded
from .messages import HTTPError, Response

PATH = re.compile(r"/\.well-known/est(?:/([^/?]+))?/(cacerts|simpleenroll|simplereenroll|csrattrs|serverkeygen)")
CHALLENGE_PASSWORD = "1.2.840.113549.1.9.7"
CERTS_ONLY = "application/pkcs7-mime; smime-type=certs-only"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def public_key_hash(key):
    return sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def alternative_names(holder):
    try:
        return holder.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def read_csr(request, record):
    if request.content_type != "application/pkcs10":
        raise HTTPError(415, "The body is to be application/pkcs10.")
    try:
        body = re.sub(rb"[\r\n\t ]", b"", request.body)
        csr = x509.load_der_x509_csr(base64.b64decode(body, validate=True))
        key = csr.public_key()
        names = alternative_names(csr)
        tuple(csr.attributes)
    except (binascii.Error, ValueError, TypeError, x509.DuplicateExtension) as error:
        raise HTTPError(400, f"The body is no CSR in base64: {error}") from error
    record["csr_key_sha256"] = public_key_hash(key)
    record["csr_sha256"] = sha256(csr.public_bytes(Encoding.DER))
    record["csr_subject"] = csr.subject.rfc4514_string()
    if not csr.is_signature_valid:
        raise HTTPError(400, "The CSR's signature is not its key's.")
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < 2048:
            raise HTTPError(400, "An RSA key has 2048 bits or more.")
    elif not isinstance(key, (ec.EllipticCurvePublicKey, ed25519.Ed25519PublicKey)):
        raise HTTPError(400, "The key is neither RSA nor on an elliptic curve.")
    if len(csr.subject) == 0 and names is None:
        raise HTTPError(400, "The CSR names nobody.")
    return csr


class ESTServer:
    """The operations, on what `server` holds. One for all connections."""

    def __init__(self, server):
        self.server, self.options = server, server.options
        # How often a request for a key is still to wait.
        self.waits = {}

    def respond(self, connection, request, operation, faults, record):
        """The answer to one request. Ends with HTTPError, or with Interruption where a fault wants no answer at all."""
        certificate = tls.client_certificate(connection)
        if operation in ("cacerts", "csrattrs"):
            if request.method != "GET":
                raise HTTPError(405, f"{operation} takes GET.", [("Allow", "GET")])
            if operation == "csrattrs" and self.options.authenticate_csrattrs:
                self.authenticate(operation, request, certificate, record)
            issuing.interrupt(request, faults)
            response = self.cacerts(faults) if operation == "cacerts" else self.csrattrs(faults)
        else:
            if request.method != "POST":
                raise HTTPError(405, f"{operation} takes POST.", [("Allow", "POST")])
            self.authenticate(operation, request, certificate, record)
            csr = read_csr(request, record)
            self.check_binding(csr, connection, record)
            self.check_content(operation, csr, certificate)
            issuing.interrupt(request, faults)
            response = self.pending(record) or self.enrol(operation, csr, faults, record)
        return response

    def authenticate(self, operation, request, certificate, record):
        self.server.authentication.check(operation, request, certificate, record)

    def cacerts(self, faults):
        certificates = self.server.authority.certificates
        if self.server.is_rolled_over:
            successor = self.server.successor
            links = self.server.authority.rollover_certificates(successor)
            certificates = [*successor.certificates, *links, *certificates]
        bag = [ca.der(certificate) for certificate in reversed(certificates)]
        return Response(200, [("Content-Type", CERTS_ONLY)], encoded(certs_only(bag), faults))

    def csrattrs(self, faults):
        if self.options.binding != "required":
            return Response(204)
        body = encoded(sequence(oid(CHALLENGE_PASSWORD)), faults)
        return Response(200, [("Content-Type", "application/csrattrs")], body)

    def check_binding(self, csr, connection, record):
        if self.options.binding == "off":
            return
        record["binding"] = state = tls.binding_state(csr, connection)
        if state == "mismatched" or (state == "absent" and self.options.binding == "required"):
            raise HTTPError(400, f"The challengePassword that binds the CSR to this connection is {state}.")

    def check_content(self, operation, csr, certificate):
        if operation == "simplereenroll":
            # Someone else's certificate may ask for a first one of ours, but there is nothing of ours to renew.
            if not self.server.issued(certificate):
                raise HTTPError(403, "The client certificate was not issued here.")
            # Byte for byte: equal names may be of other string types.
            is_same = csr.subject.public_bytes() == certificate.subject.public_bytes()
            if not is_same or alternative_names(csr) != alternative_names(certificate):
                raise HTTPError(400, "Subject and alternative names are to be those of the client certificate.")

    def pending(self, record):
        with self.server.lock:
            left = self.waits.get(record["csr_key_sha256"], self.options.pending)
            self.waits[record["csr_key_sha256"]] = max(0, left - 1)
        return Response(202, [("Retry-After", self.options.retry_after)]) if left else None

    def enrol(self, operation, csr, faults, record):
        """An answer with a certificate. From here on it counts as issued, whatever becomes of the answer."""
        key, private_key = csr.public_key(), None
        if operation == "serverkeygen":
            private_key = issuing.key_like(key)
            key = private_key.public_key()
        bag = issuing.bag(self.server, csr.subject, alternative_names(csr), key, faults, record)
        body = encoded(certs_only(bag), faults)
        if private_key is None:
            return Response(200, [("Content-Type", CERTS_ONLY)], body)
        traditional = self.options.serverkeygen == "pkcs1"
        return issuing.multipart(encoded(issuing.private_key_der(private_key, traditional), faults), body)
