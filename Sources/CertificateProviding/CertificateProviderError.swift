/// The one public error of the framework: what went wrong, in which provider, and what to do next.
///
/// Match on ``code``; show ``message``. Neither ever holds a secret.
public struct CertificateProviderError: Error, Sendable {
    /// What kind of thing went wrong. Open: a provider may bring codes of its own.
    public struct Code: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
        public let rawValue: String
        public init(rawValue: String) { self.rawValue = rawValue }
        public var description: String { rawValue }
    }

    public var code: Code
    /// A full sentence with the next step.
    public var message: String
    public var provider: ProviderID?
    /// A provider's own number for the error, such as those of SAP's sample providers (−1…−9) or a `CKR_` value.
    public var nativeCode: Int?
    public var underlying: (any Error)?
    /// Where in our source the error was made, as `file:line`.
    public var location: String

    public init(
        _ code: Code, _ message: String, provider: ProviderID? = nil, nativeCode: Int? = nil,
        underlying: (any Error)? = nil, file: String = #fileID, line: Int = #line
    ) {
        self.code = code
        self.message = message
        self.provider = provider
        self.nativeCode = nativeCode
        self.underlying = underlying
        self.location = "\(file):\(line)"
    }

    /// Returns the same error as coming from `provider`, unless it names one already.
    public func attributed(to provider: ProviderID) -> Self {
        var copy = self
        copy.provider = copy.provider ?? provider
        return copy
    }
}

extension CertificateProviderError: CustomStringConvertible {
    public var description: String {
        let origin = provider.map { "\($0): " } ?? ""
        return "\(origin)\(message) [\(code)]"
    }
}

extension CertificateProviderError.Code {
    // Data
    /// The bytes are not what they should be: damaged, truncated or not of the format at all.
    public static let malformedData = Self(rawValue: "malformedData")
    /// A cipher, digest or kind of key that this build cannot use; the message names it.
    public static let unsupportedAlgorithm = Self(rawValue: "unsupportedAlgorithm")
    /// The private key is not the one in the certificate.
    public static let keyMismatch = Self(rawValue: "keyMismatch")

    // No input
    /// A file named by the configuration or command line does not exist.
    public static let fileNotFound = Self(rawValue: "fileNotFound")
    /// No such alias, object or identity.
    public static let notFound = Self(rawValue: "notFound")

    // Unavailable
    public static let unavailable = Self(rawValue: "unavailable")
    public static let tokenNotPresent = Self(rawValue: "tokenNotPresent")

    /// A fault in this software.
    public static let `internal` = Self(rawValue: "internal")

    // Storage
    public static let storeWriteFailed = Self(rawValue: "storeWriteFailed")
    public static let deleteFailed = Self(rawValue: "deleteFailed")
    public static let storeReadFailed = Self(rawValue: "storeReadFailed")

    // Try again
    public static let pending = Self(rawValue: "pending")
    public static let timedOut = Self(rawValue: "timedOut")
    public static let operationNotAllowed = Self(rawValue: "operationNotAllowed")

    /// A peer did not keep to its protocol.
    public static let protocolError = Self(rawValue: "protocolError")

    // Denied
    /// The password is wrong, as far as can be told: a check that takes the password has failed. Damage makes some of
    /// these checks fail as well, such as the MAC of a PKCS#12 file, which covers the whole content.
    public static let wrongPassword = Self(rawValue: "wrongPassword")
    public static let pinIncorrect = Self(rawValue: "pinIncorrect")
    public static let pinFinalTry = Self(rawValue: "pinFinalTry")
    public static let pinLocked = Self(rawValue: "pinLocked")
    public static let rejected = Self(rawValue: "rejected")
    public static let interactionRequired = Self(rawValue: "interactionRequired")
    public static let userCancelled = Self(rawValue: "userCancelled")
    public static let vaultLocked = Self(rawValue: "vaultLocked")

    // Configuration
    public static let configurationMissing = Self(rawValue: "configurationMissing")
    public static let configurationInvalid = Self(rawValue: "configurationInvalid")
    public static let unsupportedParameter = Self(rawValue: "unsupportedParameter")
    public static let noCertificateProvider = Self(rawValue: "noCertificateProvider")
}
