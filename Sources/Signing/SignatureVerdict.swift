public import CertificateProviding
public import FoundationEssentials

/// The result of a verification, in parts. There is no single word for it: half of one misleads.
///
/// It does not replace a qualified validation service (EN 319 102-1): policies of a country, lists of trusted services and archive time stamps are not looked
/// at.
public struct SignatureVerdict: Sendable {
    /// One part of a verdict.
    public struct Part: Sendable, Equatable {
        /// Whether it holds; `nil` if that is not known.
        public let holds: Bool?
        /// Why it does not hold, or is not known, as a clause for a message; `nil` if it holds.
        public let reason: String?

        static let yes = Part(holds: true, reason: nil)
        static func no(_ reason: String) -> Part { Part(holds: false, reason: reason) }
        static func unknown(_ reason: String) -> Part { Part(holds: nil, reason: reason) }
    }

    /// A kind of signature.
    public struct Form: RawRepresentable, Hashable, Sendable {
        public let rawValue: String
        public init(rawValue: String) { self.rawValue = rawValue }
        /// The bare signature.
        public static let raw = Self(rawValue: "raw")
        /// CMS SignedData (RFC 5652).
        public static let cms = Self(rawValue: "cms")
        /// In a field of a PDF (ISO 32000-2, 12.8).
        public static let pdf = Self(rawValue: "pdf")
        /// A time-stamp token (RFC 3161).
        public static let timeStamp = Self(rawValue: "time-stamp")
    }

    /// The source of the time at which the chain must be valid.
    public struct TimeSource: RawRepresentable, Hashable, Sendable {
        public let rawValue: String
        public init(rawValue: String) { self.rawValue = rawValue }
        /// This host's clock.
        public static let now = Self(rawValue: "now")
        /// The caller.
        public static let given = Self(rawValue: "given")
        /// A trusted time stamp of the signature.
        public static let timeStamp = Self(rawValue: "time-stamp")
    }

    /// A time stamp of the signature.
    public struct Stamp: Sendable {
        /// Its time.
        public let time: Date
        /// Whether it is one of this signature, by a server that leads to the anchors.
        public let isTrusted: Part
    }

    /// The part of a PDF that a signature covers.
    public struct Coverage: Sendable {
        /// The worst change by later revisions.
        public struct Change: RawRepresentable, Hashable, Sendable {
            public let rawValue: String
            public init(rawValue: String) { self.rawValue = rawValue }
            /// There is no later byte: the signature covers the whole file.
            public static let nothing = Self(rawValue: "nothing")
            /// Signatures, validation data, metadata and extensions.
            public static let signatures = Self(rawValue: "signatures")
            /// Values of form fields.
            public static let formValues = Self(rawValue: "form-values")
            /// Anything else: shown content may have come later.
            public static let other = Self(rawValue: "other")
        }

        /// The bytes from the start of the file that were signed, with the signature's own place.
        public let signedBytes: Int
        /// The size of the file.
        public let size: Int
        /// The number of revisions that came later.
        public let laterRevisions: Int
        /// The worst of their changes.
        public let change: Change
        /// The first of the worst changes, as a clause for a message; for ``Change/signatures``, that a later one is seen on a page.
        public let reason: String?
    }

    /// The kind of signature.
    public let form: Form
    /// The full name of a PDF's field.
    public let field: String?
    /// The name and the reason in a signature of a PDF, for readers to show. ``isUnaltered`` is about them, too; that they are true is
    /// the signer's claim.
    public let claimedName, claimedReason: String?
    /// The signer's certificate; `nil` for a signature without one, and where it cannot be read.
    public let certificate: X509Certificate?
    /// Other certificates that came with the signature.
    public let otherCertificates: [X509Certificate]
    /// Whether the bytes are those that were signed.
    public let isUnaltered: Part
    /// Whether the key of ``certificate``, or the given one, has made the signature.
    public let isSigned: Part
    /// Whether the certificate leads to a trust anchor at ``time``.
    public let isTrusted: Part
    /// Whether no certificate of the chain is on the given lists; `nil` if no lists were given.
    public let isNotRevoked: Part?
    /// Whether the key usage permits signatures.
    public let maySign: Part
    /// The chain to the anchor, leaf first; `nil` if ``isTrusted`` does not hold.
    public let chain: [X509Certificate]?
    /// The time at which the chain must be valid.
    public let time: Date
    /// The source of ``time``.
    public let timeSource: TimeSource
    /// The time that the signer claims.
    public let claimedTime: Date?
    /// `nil` without a time stamp.
    public let timeStamp: Stamp?
    /// `nil` but for a PDF.
    public let coverage: Coverage?

    /// Whether the signature is one of the bytes, by the certificate's key, and nothing but signatures came later.
    public var isIntact: Bool {
        isUnaltered.holds == true && isSigned.holds == true
            && (coverage.map { [.nothing, .signatures].contains($0.change) } ?? true)
    }

    /// Whether all parts hold that were asked about.
    public var holds: Bool {
        isIntact && [isTrusted, maySign, isNotRevoked, timeStamp?.isTrusted].allSatisfy { $0?.holds ?? ($0 == nil) }
    }
}
