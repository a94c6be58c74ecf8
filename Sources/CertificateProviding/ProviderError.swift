/// The public error of the framework: what failed, in which provider, and what to do next.
///
/// Compare ``code``; show ``message``. Neither ever holds a secret.
public struct ProviderError: Error, Sendable {
    /// The kind of failure. Open: a provider may define codes of its own.
    public struct Code: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
        public let rawValue: String
        public init(rawValue: String) { self.rawValue = rawValue }
        public var description: String { rawValue }
    }

    /// The kind of failure; what tests and callers compare.
    public var code: Code
    /// A full sentence: what failed, on which object, why, and the next step.
    public var message: String
    /// The provider that failed; `nil` if the error does not come from one.
    public var provider: ProviderID?
    /// A provider's own number for the error, such as those of SAP's sample providers (−1…−9) or a `CKR_` value.
    public var nativeCode: Int?
    /// How long to wait before the next attempt, if the server has said so; mostly with `pending` and `unavailable`.
    public var retryAfter: Duration?
    /// The part that a caller may decide by, beside the code; `nil` for most errors.
    public var reason: Reason?
    /// The error that caused this one, for logs.
    public var underlying: (any Error)?
    /// The line of source code that created the error, as `file:line`.
    package var location: String

    /// Creates an error. `message` must not hold a secret.
    public init(
        _ code: Code, _ message: String, provider: ProviderID? = nil, nativeCode: Int? = nil,
        retryAfter: Duration? = nil, reason: Reason? = nil, underlying: (any Error)? = nil, file: String = #fileID,
        line: Int = #line
    ) {
        self.code = code
        self.message = message
        self.provider = provider
        self.nativeCode = nativeCode
        self.retryAfter = retryAfter
        self.reason = reason
        self.underlying = underlying
        self.location = "\(file):\(line)"
    }

    /// Returns the error with `provider` as its provider, unless it already names one.
    public func attributed(to provider: ProviderID) -> Self {
        var copy = self
        copy.provider = copy.provider ?? provider
        return copy
    }
}

extension ProviderError: CustomStringConvertible {
    public var description: String {
        // Messages about plugins begin with their names.
        let origin = provider.map { message.hasPrefix("The plugin '\($0)'") ? "" : "\($0): " } ?? ""
        return "\(origin)\(message) [\(code)]"
    }
}

extension ProviderError.Code {
    // Data
    /// The data is damaged, truncated or of another format.
    public static let malformedData = Self(rawValue: "malformedData")
    /// A cipher, digest or key that this build does not support, or a certificate that must not be used for TLS; the
    /// message names it.
    public static let unsupportedAlgorithm = Self(rawValue: "unsupportedAlgorithm")
    /// The private key does not match the certificate.
    public static let keyMismatch = Self(rawValue: "keyMismatch")
    /// The document is sound, and must not or cannot get a signature; the message says why.
    public static let documentNotSignable = Self(rawValue: "documentNotSignable")
    /// The certificate is not valid now, or its key usage does not permit the use that the message names.
    public static let certificateNotUsable = Self(rawValue: "certificateNotUsable")

    // No input
    /// A file named by the configuration or command line does not exist.
    public static let fileNotFound = Self(rawValue: "fileNotFound")
    /// The alias, object or identity does not exist.
    public static let notFound = Self(rawValue: "notFound")
    /// The certificate has expired, and there is none to replace it.
    public static let expired = Self(rawValue: "expired")

    // Unavailable
    /// A server, device or service does not answer, or not as expected. A later attempt may succeed.
    public static let unavailable = Self(rawValue: "unavailable")
    /// The token is not plugged in, or was pulled out.
    public static let tokenNotPresent = Self(rawValue: "tokenNotPresent")

    /// A plugin reports an error of its own kind; the message has its name for it.
    public static let providerError = Self(rawValue: "providerError")
    /// A bug in this software.
    public static let `internal` = Self(rawValue: "internal")

    // Storage
    /// The name is in use, and its object is unchanged.
    public static let alreadyExists = Self(rawValue: "alreadyExists")
    /// Nothing was written; the previous content is unchanged.
    public static let storeWriteFailed = Self(rawValue: "storeWriteFailed")
    /// The object named by the message was not deleted.
    public static let deleteFailed = Self(rawValue: "deleteFailed")
    /// Stored data cannot be read, or must not be trusted.
    public static let storeReadFailed = Self(rawValue: "storeReadFailed")

    // Try again
    /// The server has accepted the request and not decided yet.
    public static let pending = Self(rawValue: "pending")
    /// An operation did not finish within its timeout.
    public static let timedOut = Self(rawValue: "timedOut")
    /// Another operation is in progress, or the object's state does not permit this one.
    public static let operationNotAllowed = Self(rawValue: "operationNotAllowed")

    /// A peer violated its protocol.
    public static let protocolError = Self(rawValue: "protocolError")
    /// The server is not authenticated: its certificate does not lead to a trust anchor, is not valid for its name or now,
    /// or no pin or CA fingerprint matches.
    public static let serverNotTrusted = Self(rawValue: "serverNotTrusted")

    // Denied
    /// The password is probably wrong: a check that depends on the password failed. Damaged data can fail some of these
    /// checks too, such as the MAC of a PKCS#12 file, which covers the whole content.
    public static let wrongPassword = Self(rawValue: "wrongPassword")
    /// The token rejected the PIN, in this attempt or an earlier one.
    public static let pinIncorrect = Self(rawValue: "pinIncorrect")
    /// One more wrong PIN would lock the token, so no PIN was sent.
    public static let pinFinalTry = Self(rawValue: "pinFinalTry")
    /// The token has locked the PIN.
    public static let pinLocked = Self(rawValue: "pinLocked")
    /// A peer refused the identity, the request or the credentials.
    public static let rejected = Self(rawValue: "rejected")
    /// The operation needs an answer from the user, and no user can be asked.
    public static let interactionRequired = Self(rawValue: "interactionRequired")
    /// The user declined, or the task was cancelled.
    public static let userCancelled = Self(rawValue: "userCancelled")
    /// The store is locked. It cannot be read or written until it is unlocked.
    public static let vaultLocked = Self(rawValue: "vaultLocked")
    /// Too many wrong passcodes have destroyed the vault, or another process has. The application is not registered.
    public static let vaultDestroyed = Self(rawValue: "vaultDestroyed")

    // Configuration
    /// The property file does not exist.
    public static let configurationMissing = Self(rawValue: "configurationMissing")
    /// A property file or parameter has a mistake; the message names it.
    public static let configurationInvalid = Self(rawValue: "configurationInvalid")
    /// The provider does not have this parameter.
    public static let unsupportedParameter = Self(rawValue: "unsupportedParameter")
    /// No certificate provider is configured, or the user creation policy uses none.
    public static let noCertificateProvider = Self(rawValue: "noCertificateProvider")
}
