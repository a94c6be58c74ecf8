"""The TLS context, and what of a connection the enrolment needs: version, client certificate, channel binding."""

import base64
import hmac

from cryptography import x509
from cryptography.x509.oid import AttributeOID
from OpenSSL import SSL, crypto

VERSIONS = {
    "1.2": (SSL.TLS1_2_VERSION, SSL.TLS1_2_VERSION),
    "1.3": (SSL.TLS1_3_VERSION, SSL.TLS1_3_VERSION),
    "any": (SSL.TLS1_2_VERSION, SSL.TLS1_3_VERSION),
}


def server_context(versions, chain, key, trusted, verified=lambda connection: True):
    """Asks for a client certificate without requiring one: which operation needs one is decided with the request.
    `verified` has the last word on one that is valid.

    No session is resumed and nothing renegotiated, so that there is one handshake and tls-unique is the client's
    Finished of it: RFC 7030, section 3.5, wants that of the first handshake.
    """
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    minimum, maximum = VERSIONS[versions]
    context.set_min_proto_version(minimum)
    context.set_max_proto_version(maximum)
    context.set_options(SSL.OP_NO_TICKET | SSL.OP_NO_RENEGOTIATION)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_session_id(b"enrolment")
    context.use_privatekey(crypto.PKey.from_cryptography_key(key))
    context.use_certificate(crypto.X509.from_cryptography(chain[0]))
    for certificate in chain[1:]:
        context.add_extra_chain_cert(crypto.X509.from_cryptography(certificate))
    for certificate in trusted:
        context.get_cert_store().add_cert(crypto.X509.from_cryptography(certificate))
        context.add_client_ca(crypto.X509.from_cryptography(certificate))
    context.set_verify(SSL.VERIFY_PEER, lambda connection, certificate, error, depth, ok: bool(ok) and (depth > 0 or verified(connection)))
    return context


def client_certificate(connection):
    certificate = connection.get_peer_certificate()
    return certificate and certificate.to_cryptography()


def channel_binding(connection):
    """What the challengePassword must be: tls-unique (RFC 5929), from TLS 1.3 on tls-exporter (RFC 9266)."""
    if connection.get_protocol_version_name() == "TLSv1.3":
        value = connection.export_keying_material(b"EXPORTER-Channel-Binding", 32, b"")
    else:
        value = connection.get_peer_finished()
    return base64.b64encode(value)


def binding_state(csr, connection):
    """absent, matched or mismatched"""
    try:
        password = csr.attributes.get_attribute_for_oid(AttributeOID.CHALLENGE_PASSWORD).value
    except x509.AttributeNotFound:
        return "absent"
    return "matched" if hmac.compare_digest(password, channel_binding(connection)) else "mismatched"
