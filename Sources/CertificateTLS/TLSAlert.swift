import CertificateProviding
import NIOSSL

/// A TLS alert (RFC 8446, section 6), by its number.
public struct TLSAlert: RawRepresentable, Hashable, Sendable {
    public let rawValue: UInt8
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// Client and server have no parameters in common; in TLS 1.2 also sent to a client without a certificate.
    static let handshakeFailure = Self(rawValue: 40)
    /// The certificate is damaged, or a signature in it does not verify.
    static let badCertificate = Self(rawValue: 42)
    /// The certificate has a type or purpose that is not accepted.
    static let unsupportedCertificate = Self(rawValue: 43)
    /// The issuer has revoked the certificate.
    static let certificateRevoked = Self(rawValue: 44)
    /// The certificate is outside its validity period.
    static let certificateExpired = Self(rawValue: 45)
    /// The certificate is not accepted for another reason.
    static let certificateUnknown = Self(rawValue: 46)
    /// The certificate's chain does not lead to a CA that the peer trusts.
    static let unknownCA = Self(rawValue: 48)
    /// The certificate is valid, but its subject has no access.
    static let accessDenied = Self(rawValue: 49)
    /// A signature, in the handshake or in a certificate, does not verify.
    static let decryptError = Self(rawValue: 51)
    /// Client and server have no TLS version in common.
    static let protocolVersion = Self(rawValue: 70)
    /// The peer demands stronger parameters.
    static let insufficientSecurity = Self(rawValue: 71)
    /// The peer has a problem of its own.
    static let internalError = Self(rawValue: 80)
    /// The server does not know the name that was asked for.
    static let unrecognizedName = Self(rawValue: 112)
    /// Client and server have no application protocol in common.
    static let noApplicationProtocol = Self(rawValue: 120)
    /// The client presented no certificate (TLS 1.3).
    static let certificateRequired = Self(rawValue: 116)

    private static let names: [UInt8: String] = [
        0: "close_notify", 10: "unexpected_message", 20: "bad_record_mac", 22: "record_overflow",
        40: "handshake_failure", 42: "bad_certificate", 43: "unsupported_certificate", 44: "certificate_revoked",
        45: "certificate_expired", 46: "certificate_unknown", 47: "illegal_parameter", 48: "unknown_ca",
        49: "access_denied", 50: "decode_error", 51: "decrypt_error", 70: "protocol_version",
        71: "insufficient_security", 80: "internal_error", 86: "inappropriate_fallback", 90: "user_canceled",
        109: "missing_extension", 110: "unsupported_extension", 112: "unrecognized_name",
        113: "bad_certificate_status_response", 115: "unknown_psk_identity", 116: "certificate_required",
        120: "no_application_protocol",
    ]

    /// Whether a server refuses the client certificate with this alert.
    public var refusesCertificate: Bool {
        switch self {
        case .badCertificate, .unsupportedCertificate, .certificateRevoked, .certificateExpired, .certificateUnknown,
            .unknownCA, .accessDenied, .decryptError, .certificateRequired:
            true
        // The alert of TLS 1.2 servers for a missing certificate (RFC 5246, section 7.4.6).
        case .handshakeFailure: true
        default: false
        }
    }
}

extension TLSAlert: CustomStringConvertible {
    /// The alert's name in the registry, or its number.
    public var description: String { Self.names[rawValue] ?? "alert \(rawValue)" }
}

extension TLSAlert {
    /// The next step after the peer has refused `certificate` with this alert: the end of a sentence.
    func advice(for certificate: X509Certificate?) -> String {
        let issuer = certificate.map { "the issuer '\($0.issuer)'" } ?? "its issuer"
        return switch self {
        case .certificateExpired:
            "renew the certificate; if it and its chain are valid by this host's clock, check the peer's clock"
        case .certificateRevoked: "its issuer has revoked it: obtain a new one"
        case .unsupportedCertificate:
            "check that its key usage and extended key usage permit what it is used for, and its type of key"
        case .unknownCA:
            "ask its administrator whether \(issuer) is trusted there, and send the intermediate certificates as well"
        case .accessDenied: "the certificate is valid, and its subject has no access: ask the peer's administrator"
        case .badCertificate: "the peer finds it, or its chain, damaged or not acceptable: see the peer's log"
        case .decryptError: "a signature does not verify there: see the peer's log"
        case .handshakeFailure: "the peer accepts no certificate or algorithm of those offered: see the peer's log"
        default: "see the peer's log for the reason"
        }
    }

    /// The next step after the peer has ended a handshake with this alert, if it does not concern a certificate: the end
    /// of a sentence.
    var advice: String {
        switch self {
        case .handshakeFailure: "it has no cipher suite or curve in common with this host; see its log"
        case .insufficientSecurity: "it demands stronger algorithms than this host offers; see its log"
        case .internalError: "it has a problem of its own; see its log"
        case .unrecognizedName: "it does not know this name; connect by a name that it serves"
        case .noApplicationProtocol:
            "it speaks none of the application protocols offered (ALPN); offer one that it speaks"
        default: "see its log"
        }
    }

    /// Returns the alert of the peer that caused `error`; `nil` for another cause.
    package init?(receivedIn error: any Error) {
        // SSL_AD_REASON_OFFSET: BoringSSL reports a received alert as an error of its own with this reason.
        guard let reason = BoringSSLReason.reasons(in: error).first(where: { (1000...1255).contains($0.rawValue) })
        else { return nil }
        self.init(rawValue: UInt8(reason.rawValue - 1000))
    }
}

/// The reason of a BoringSSL failure: one of its `SSL_R_` numbers.
struct BoringSSLReason: Hashable {
    let rawValue: Int

    /// SSL_R_CERTIFICATE_VERIFY_FAILED
    static let certificateVerifyFailed = Self(rawValue: 125)
    /// SSL_R_NO_RENEGOTIATION
    static let noRenegotiation = Self(rawValue: 182)
    /// SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE
    static let peerDidNotReturnACertificate = Self(rawValue: 192)
    /// SSL_R_NO_COMMON_SIGNATURE_ALGORITHMS
    static let noCommonSignatureAlgorithms = Self(rawValue: 253)
    /// SSL_R_UNSUPPORTED_PROTOCOL
    static let unsupportedProtocol = Self(rawValue: 240)
    /// SSL_R_NO_SUPPORTED_VERSIONS_ENABLED
    static let noSupportedVersionsEnabled = Self(rawValue: 280)

    static func reasons(in error: any Error) -> [BoringSSLReason] {
        let boringSSLError: BoringSSLError
        switch error {
        case let error as BoringSSLError: boringSSLError = error
        case NIOSSLError.handshakeFailed(let error), NIOSSLError.shutdownFailed(let error): boringSSLError = error
        default: return []
        }
        switch boringSSLError {
        case .sslError(let stack), .unknownError(let stack): return stack.compactMap(reason)
        default: return []
        }
    }

    /// Parses the number from the description, `Error: 268436572 error:1000045c:…`, since NIOSSL does not expose it.
    private static func reason(_ error: BoringSSLInternalError) -> BoringSSLReason? {
        let words = error.description.split(separator: " ", maxSplits: 2)
        guard words.count > 1, let packed = UInt32(words[1]) else { return nil }
        // ERR_GET_LIB and ERR_GET_REASON of CNIOBoringSSL_err.h; 16 is ERR_LIB_SSL.
        guard packed >> 24 == 16 else { return nil }
        return Self(rawValue: Int(packed & 0xfff))
    }
}
