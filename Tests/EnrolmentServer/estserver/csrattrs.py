"""What the server asks of a CSR (RFC 7030, section 4.5.2; key types as RFC 9908 spells them out)."""

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from . import der

CHALLENGE_PASSWORD = "1.2.840.113549.1.9.7"
EXTENSION_REQUEST = "1.2.840.113549.1.9.14"
EC_PUBLIC_KEY = "1.2.840.10045.2.1"
RSA_ENCRYPTION = "1.2.840.113549.1.1.1"
ED25519 = "1.3.101.112"
CURVES = {"P-256": "1.2.840.10045.3.1.7", "P-384": "1.3.132.0.34", "P-521": "1.3.132.0.35"}
CURVE_NAMES = {"P-256": "secp256r1", "P-384": "secp384r1", "P-521": "secp521r1"}
DIGESTS = {"sha256": "2.16.840.1.101.3.4.2.1", "sha384": "2.16.840.1.101.3.4.2.2", "sha512": "2.16.840.1.101.3.4.2.3"}
SIGNATURES = {
    "ec": {"sha256": "1.2.840.10045.4.3.2", "sha384": "1.2.840.10045.4.3.3", "sha512": "1.2.840.10045.4.3.4"},
    "rsa": {"sha256": "1.2.840.113549.1.1.11", "sha384": "1.2.840.113549.1.1.12", "sha512": "1.2.840.113549.1.1.13"},
}


def attribute(kind, *values):
    return der.sequence(der.oid(kind), der.set_of(*values))


class Wishes:
    """The list of --csrattrs: challengePassword, key:rsa:BITS, key:ec:CURVE, key:ed25519, hash:NAME, extension:OID or
    oid:OID."""

    def __init__(self, words, binding_required):
        self.extensions, self.other, self.key, self.hash = [], [], None, None
        self.challenge_password = binding_required
        for word in words:
            kind, _, rest = word.partition(":")
            if word == "challengePassword":
                self.challenge_password = True
            elif kind == "key":
                self.key = tuple(rest.split(":"))
                self.encoded_key()
            elif kind == "hash":
                self.hash = rest
                DIGESTS[rest]
            elif kind == "extension":
                self.extensions.append(rest)
            elif kind == "oid":
                self.other.append(rest)
            else:
                raise ValueError(word)

    def encoded_key(self):
        if self.key == ("ed25519",):
            return der.oid(ED25519)
        kind, parameter = self.key
        if kind == "ec":
            return attribute(EC_PUBLIC_KEY, der.oid(CURVES[parameter]))
        if kind == "rsa":
            return attribute(RSA_ENCRYPTION, der.integer(int(parameter)))
        raise ValueError(kind)

    def encoded(self):
        """The CsrAttrs, or None where there is nothing to ask."""
        members = [der.oid(CHALLENGE_PASSWORD)] if self.challenge_password else []
        if self.extensions:
            members.append(attribute(EXTENSION_REQUEST, *map(der.oid, self.extensions)))
        if self.key:
            members.append(self.encoded_key())
        if self.hash:
            members.append(der.oid(SIGNATURES[self.key[0]][self.hash] if self.key else DIGESTS[self.hash]))
        members += map(der.oid, self.other)
        return der.sequence(*members) if members else None

    def unmet(self, csr):
        """What the CSR lacks, as a text, or None. The challengePassword is the binding's matter."""
        key = csr.public_key()
        if self.key and self.key[0] == "rsa":
            if not isinstance(key, rsa.RSAPublicKey) or key.key_size != int(self.key[1]):
                return f"The key is to be RSA of {self.key[1]} bits."
        if self.key and self.key[0] == "ec":
            if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != CURVE_NAMES[self.key[1]]:
                return f"The key is to be on {self.key[1]}."
        if self.key == ("ed25519",) and not isinstance(key, ed25519.Ed25519PublicKey):
            return "The key is to be Ed25519."
        if self.hash and (csr.signature_hash_algorithm is None or csr.signature_hash_algorithm.name != self.hash):
            return f"The CSR is to be signed with {self.hash}."
        present = {extension.oid.dotted_string for extension in csr.extensions}
        missing = [extension for extension in self.extensions if extension not in present]
        return f"The CSR lacks the extension {missing[0]}." if missing else None
