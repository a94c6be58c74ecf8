import CertificateProviding

/// A request that the server does not carry out, and why.
struct Refusal: Error, Equatable, Sendable {
    enum Reason: Equatable, Sendable {
        case notFound
        /// A member has a value that is not accepted.
        case invalid(member: String?)
        /// The document is larger than the server takes.
        case tooLarge
        /// The state of the contract does not allow it.
        case wrongState
        case wrongCode(triesLeft: Int)
        case codeExpired
        /// Three wrong codes were typed.
        case codeSpent
        /// Too many codes were asked for.
        case tooManyCodes
        /// The notifier is missing, or failed.
        case noNotifier
    }

    let reason: Reason
    /// A sentence for the client.
    let message: String

    init(_ reason: Reason, _ message: String) { (self.reason, self.message) = (reason, message) }

    /// A spoiled member: `MEMBER: problem.`
    static func invalid(_ member: String, _ problem: String) -> Refusal {
        Refusal(.invalid(member: member), "\(member): \(problem).")
    }

    /// A `malformedData` of the library, whose message begins with the member; with `The` if it is about the whole text.
    init(_ error: ProviderError) {
        let member = error.message.hasPrefix("The ") ? "" : error.message.prefix { $0 != ":" && $0 != " " }
        self.init(.invalid(member: member.isEmpty ? nil : String(member)), error.message)
    }

    /// As a host sees it.
    var error: ProviderError {
        let code: ProviderError.Code =
            switch reason {
            case .notFound: .notFound
            case .invalid, .tooLarge: .malformedData
            case .wrongState: .operationNotAllowed
            case .wrongCode(let left): left > 0 ? .wrongPassword : .pinLocked
            case .codeExpired: .expired
            case .codeSpent: .pinLocked
            case .tooManyCodes, .noNotifier: .unavailable
            }
        return ProviderError(code, message)
    }
}
