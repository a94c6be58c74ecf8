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
    /// How long to wait before asking again, where a server has said so; chiefly with `pending` and `unavailable`.
    public var retryAfter: Duration?
    public var underlying: (any Error)?
    /// Where in our source the error was made, as `file:line`.
    public var location: String

    public init(
        _ code: Code, _ message: String, provider: ProviderID? = nil, nativeCode: Int? = nil,
        retryAfter: Duration? = nil, underlying: (any Error)? = nil, file: String = #fileID, line: Int = #line
    ) {
        self.code = code
        self.message = message
        self.provider = provider
        self.nativeCode = nativeCode
        self.retryAfter = retryAfter
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
    /// A server, device or service does not answer, or not as it should; it may later.
    public static let unavailable = Self(rawValue: "unavailable")
    /// The token is not plugged in, or was pulled out.
    public static let tokenNotPresent = Self(rawValue: "tokenNotPresent")

    /// A fault in this software.
    public static let `internal` = Self(rawValue: "internal")

    // Storage
    /// Nothing was written; what was there before still is.
    public static let storeWriteFailed = Self(rawValue: "storeWriteFailed")
    /// Something is still there, which the message names.
    public static let deleteFailed = Self(rawValue: "deleteFailed")
    /// What is stored cannot be read, or must not be trusted.
    public static let storeReadFailed = Self(rawValue: "storeReadFailed")

    // Try again
    /// The request was accepted, and the answer is still to come.
    public static let pending = Self(rawValue: "pending")
    public static let timedOut = Self(rawValue: "timedOut")
    /// Something else is going on that this one would disturb.
    public static let operationNotAllowed = Self(rawValue: "operationNotAllowed")

    /// A peer did not keep to its protocol.
    public static let protocolError = Self(rawValue: "protocolError")

    // Denied
    /// The password is wrong, as far as can be told: a check that takes the password has failed. Damage makes some of
    /// these checks fail as well, such as the MAC of a PKCS#12 file, which covers the whole content.
    public static let wrongPassword = Self(rawValue: "wrongPassword")
    /// The token has rejected the PIN, now or before.
    public static let pinIncorrect = Self(rawValue: "pinIncorrect")
    /// One more wrong PIN would lock the token, so that none was sent.
    public static let pinFinalTry = Self(rawValue: "pinFinalTry")
    public static let pinLocked = Self(rawValue: "pinLocked")
    /// A peer does not want the identity, the request or the credentials.
    public static let rejected = Self(rawValue: "rejected")
    /// A person would have to be asked, and there is nobody.
    public static let interactionRequired = Self(rawValue: "interactionRequired")
    /// A person, or whoever cancelled the task, did not want it.
    public static let userCancelled = Self(rawValue: "userCancelled")
    /// The store is locked, and nothing can be read or written until it is unlocked.
    public static let vaultLocked = Self(rawValue: "vaultLocked")

    // Configuration
    /// There is no property file.
    public static let configurationMissing = Self(rawValue: "configurationMissing")
    /// A property file or parameter has a mistake, which the message names.
    public static let configurationInvalid = Self(rawValue: "configurationInvalid")
    /// A parameter that the provider does not know.
    public static let unsupportedParameter = Self(rawValue: "unsupportedParameter")
    /// None is configured, or the policy uses none.
    public static let noCertificateProvider = Self(rawValue: "noCertificateProvider")
}
