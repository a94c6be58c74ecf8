"""Certification authorities made at start, so that nothing of theirs ever expires in a repository."""

import datetime
import secrets
import threading

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)


def name(common_name):
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Enrolment Test"),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def new_key(kind="ec"):
    return ec.generate_private_key(ec.SECP256R1()) if kind == "ec" else rsa.generate_private_key(65537, 2048)


def der(certificate):
    return certificate.public_bytes(Encoding.DER)


def pem(certificate):
    return certificate.public_bytes(Encoding.PEM)


def serial_text(certificate):
    """As in file names and the log: lower-case hexadecimal."""
    return f"{certificate.serial_number:032x}"


def serial_number():
    """127 bits, the first one set: positive, and of the same length for every certificate."""
    return 1 << 126 | secrets.randbits(126)


def now():
    return datetime.datetime.utcnow().replace(microsecond=0)


def builder(subject, public_key, issuer, issuer_key, not_before, not_after):
    issuer_identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(serial_number())
        .not_valid_before(not_before)
        .not_valid_after(not_after)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(issuer_identifier, critical=False)
    )


def key_usage(*names):
    every = (
        "digital_signature content_commitment key_encipherment data_encipherment key_agreement "
        "key_cert_sign crl_sign encipher_only decipher_only"
    )
    return x509.KeyUsage(**{usage: usage in names for usage in every.split()})


def ca_certificate(subject, public_key, issuer, issuer_key):
    draft = builder(subject, public_key, issuer, issuer_key, now() - DAY, now() + 3650 * DAY)
    draft = draft.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    draft = draft.add_extension(key_usage("key_cert_sign", "crl_sign"), critical=True)
    return draft.sign(issuer_key, hashes.SHA256())


class Authority:
    """A root and what it issues with: an intermediate, or the root itself."""

    def __init__(self, root_name, issuing_name, key_kind):
        self.leaves = {}
        self.lock = threading.Lock()
        self.root_key = new_key(key_kind)
        subject = name(root_name)
        self.root = ca_certificate(subject, self.root_key.public_key(), subject, self.root_key)
        self.issuing_key, self.issuer, self.intermediates = self.root_key, self.root, []
        if issuing_name:
            self.issuing_key = new_key(key_kind)
            public_key = self.issuing_key.public_key()
            self.issuer = ca_certificate(name(issuing_name), public_key, subject, self.root_key)
            self.intermediates = [self.issuer]

    @property
    def certificates(self):
        return [self.root, *self.intermediates]

    def issue(self, subject, public_key, names=None, starts=0, ends=86400, usages=("CLIENT_AUTH",)):
        """A leaf; `starts` and `ends` are seconds from now, `names` a SubjectAlternativeName or None."""
        second = datetime.timedelta(seconds=1)
        draft = builder(
            subject, public_key, self.issuer.subject, self.issuing_key, now() + starts * second, now() + ends * second
        )
        identifiers = [getattr(ExtendedKeyUsageOID, usage) for usage in usages]
        draft = draft.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        draft = draft.add_extension(key_usage("digital_signature"), critical=True)
        draft = draft.add_extension(x509.ExtendedKeyUsage(identifiers), critical=False)
        if names is not None:
            draft = draft.add_extension(names, critical=len(subject) == 0)
        leaf = draft.sign(self.issuing_key, hashes.SHA256())
        with self.lock:
            self.leaves[leaf.serial_number] = leaf
        return leaf

    def issued(self, certificate):
        with self.lock:
            return self.leaves.get(certificate.serial_number) == certificate

    def rollover_certificates(self, successor):
        """OldWithNew and NewWithOld (RFC 4210, section 4.4): each root's key, certified by the other."""
        old, new = self.root, successor.root
        return [
            ca_certificate(old.subject, old.public_key(), new.subject, successor.root_key),
            ca_certificate(new.subject, new.public_key(), old.subject, self.root_key),
        ]
