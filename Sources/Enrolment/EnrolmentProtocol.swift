public import CertificateProviding

/// One kind of enrolment server, such as EST, SCEP or ACME: the facts that the engine needs, and the way to talk to the server.
///
/// ``EnrollingProvider`` does the rest: the lease, the key in any key store, the request, the polling, the checks of the issued
/// certificate, the storing, the discarding of keys, and the resuming after a kill.
public protocol EnrolmentProtocol: Sendable {
    /// The server's name for messages, such as `ca.example.com:8443`.
    var serverName: String { get }
    /// The source that an identity's ``/CertificateProviding/Identity/Provenance`` names, such as the server's URL.
    var source: String { get }
    /// The operations that the key must permit. By default signatures only.
    var keyUse: KeyUse { get }
    /// The type of key that is made when neither the configuration nor the server names one. By default P-256.
    var defaultKeyType: KeyType { get }
    /// Whether the key is made, or found to be impossible, before the server hears anything. By default false: a server that is
    /// away then costs no key.
    var needsKeyFirst: Bool { get }
    /// A sentence that follows the error of a key store that makes no such key; `nil` for none.
    var keyAdvice: String? { get }

    /// Whether the server says when to renew (``renewalInformation(for:)``). By default false.
    var givesRenewalAdvice: Bool { get }
    /// Whether the server takes the attestation of a key for a proof of who asks, so that an identity that has expired is ordered anew
    /// without a person or a secret. By default false.
    var trustsAttestation: Bool { get }
    /// Whether the sessions can revoke certificates and close the account. By default false.
    var revokes: Bool { get }

    /// Asks the server when to renew an identity. The engine asks no more often than the answer permits. Must end within seconds.
    ///
    /// - Returns: `nil` from a server that does not say. By default nothing is asked.
    /// - Throws: `unavailable`, `timedOut`, `protocolError`, and errors of the trust in the server.
    func renewalInformation(for identity: Identity) async throws(ProviderError) -> RenewalInformation?

    /// Begins one run of an enrolment. Sends nothing yet; may ask for secrets.
    ///
    /// - Throws: Errors of secrets, trust anchors and the configuration.
    func session(_ interaction: any UserInteraction) async throws(ProviderError) -> any EnrolmentSession

    /// Adds remarks to a listing that only this protocol can make, such as a first enrolment that needs a person. Sends nothing. By
    /// default nothing is added.
    ///
    /// - Parameter list: Empty identities mean that nothing is enrolled yet.
    func annotate(_ list: IdentityList) async -> IdentityList

    /// Deletes the data that was learnt about the server, such as its certificate authorities, when the identity is deleted. Blocks. By
    /// default does nothing.
    ///
    /// - Throws: Errors of the storage.
    func forget() throws(ProviderError)

    /// Closes connections and sessions. By default does nothing.
    func shutdown() async
}

extension EnrolmentProtocol {
    public var keyUse: KeyUse { .signing }
    public var defaultKeyType: KeyType { .p256 }
    public var needsKeyFirst: Bool { false }
    public var keyAdvice: String? { nil }
    public var givesRenewalAdvice: Bool { false }
    public var trustsAttestation: Bool { false }
    public var revokes: Bool { false }
    /// `nil`, and throws nothing.
    public func renewalInformation(for identity: Identity) async -> RenewalInformation? { nil }
    public func annotate(_ list: IdentityList) async -> IdentityList { list }
    /// Does nothing, and throws nothing.
    public func forget() {}
    public func shutdown() async {}
}

/// The conversation with an enrolment server in one run. The engine makes one call at a time.
public protocol EnrolmentSession: Sendable {
    /// Connects to the server and authenticates it. No request for a certificate is sent. The engine calls it once, and a second
    /// time after ``canEnrolAnew(after:)``.
    ///
    /// - Parameter current: The identity to renew, which also authenticates this host; `nil` for a first enrolment.
    /// - Throws: `serverNotTrusted`, `unavailable`, `timedOut`, `rejected`.
    func connect(renewing current: Identity?) async throws(ProviderError) -> EnrolmentTerms

    /// Returns the certificate request for a key. It is made once, stored, and the same in every attempt. By default it has
    /// the names and the usage, and nothing else.
    ///
    /// - Throws: `unsupportedAlgorithm`, and errors of the key.
    func certificateRequest(
        _ names: CertificateRequest.Names, _ usage: IdentityUsage, _ key: any IdentityKey
    ) async throws(ProviderError) -> CertificateRequest

    /// Requests the certificate, or asks again for a pending one. A process that is killed sends the same request again in
    /// its next run.
    ///
    /// - Throws: `rejected`, `unavailable`, `timedOut`, `protocolError`. ``isFinalRefusal(_:)`` decides whether the request is
    ///   repeated.
    func request(_ request: EnrolmentRequest) async throws(ProviderError) -> EnrolmentAnswer

    /// Whether the server has processed the request and refused it for good: its key is then destroyed, and the next run makes
    /// a new one. By default an HTTP status of 400 to 499 in ``/CertificateProviding/ProviderError/nativeCode`` that
    /// does not mean the client's credentials, the URL or the load.
    func isFinalRefusal(_ error: ProviderError) -> Bool

    /// Whether an enrolment without the current identity may succeed after the renewal has failed, since the server refuses the
    /// identity and other credentials are there. By default false.
    ///
    /// - Throws: The error of the renewal, with the reason why a new enrolment is impossible.
    func canEnrolAnew(after error: ProviderError) async throws(ProviderError) -> Bool

    /// Accepts an issued certificate that has passed all checks, before it replaces anything, as CMP demands (RFC 4210, section
    /// 5.3.18). By default does nothing.
    ///
    /// - Throws: Ends the enrolment; the old identity stays.
    func confirm(_ issued: IssuedCertificate, _ request: EnrolmentRequest) async throws(ProviderError)

    /// Revokes a certificate. Called without ``connect(renewing:)``, as the only call of the session but ``noteOutcome(_:)``. By
    /// default throws.
    ///
    /// - Throws: `operationNotAllowed` from a protocol that cannot; `rejected`, `unavailable`.
    func revoke(_ identity: Identity, _ reason: RevocationReason) async throws(ProviderError)

    /// Closes this host's account with the server, as ``revoke(_:_:)`` is called. By default throws.
    ///
    /// - Throws: As ``revoke(_:_:)``.
    func closeAccount() async throws(ProviderError)

    /// Notes the outcome of an attempt, so that a rejected password is not sent again by itself. Called before a key is
    /// destroyed, which may take a token seconds. By default does nothing.
    ///
    /// - Parameter error: `nil` for a success.
    func noteOutcome(_ error: ProviderError?) async
}

extension EnrolmentSession {
    /// Returns a request with the names and the usage, and nothing else.
    ///
    /// - Throws: `unsupportedAlgorithm`, and errors of the key.
    public func certificateRequest(
        _ names: CertificateRequest.Names, _ usage: IdentityUsage, _ key: any IdentityKey
    ) async throws(ProviderError) -> CertificateRequest {
        try await CertificateRequest(names, usage: usage, key: key)
    }

    public func isFinalRefusal(_ error: ProviderError) -> Bool { error.isRefusalByHTTPStatus }
    /// False, and throws nothing.
    public func canEnrolAnew(after error: ProviderError) -> Bool { false }
    /// Does nothing, and throws nothing.
    public func confirm(_ issued: IssuedCertificate, _ request: EnrolmentRequest) {}
    public func noteOutcome(_ error: ProviderError?) async {}

    /// Throws `operationNotAllowed`.
    public func revoke(_ identity: Identity, _ reason: RevocationReason) async throws(ProviderError) {
        throw ProviderError(
            .operationNotAllowed, "The protocol cannot revoke certificates; ask the administrator of the CA.")
    }

    /// Throws `operationNotAllowed`.
    public func closeAccount() async throws(ProviderError) {
        throw ProviderError(.operationNotAllowed, "The protocol has no accounts to close.")
    }
}

extension ProviderError {
    /// Whether a server has processed a request and refused it, by an HTTP status that does not mean the client's credentials, the
    /// URL or the load.
    public var isRefusalByHTTPStatus: Bool {
        // Other numbers are those of TLS and of tokens.
        guard code == .rejected, let status = nativeCode else { return false }
        return (400...499).contains(status) && ![401, 403, 404, 405, 407, 408, 410, 429].contains(status)
    }
}

/// When a server wants a certificate to be renewed.
public struct RenewalInformation: Sendable {
    /// The window to renew within.
    public var advice: RenewalAdvice
    /// How long the answer holds; `nil` for the usual time.
    public var retryAfter: Duration?

    /// Creates the information.
    public init(advice: RenewalAdvice, retryAfter: Duration? = nil) {
        (self.advice, self.retryAfter) = (advice, retryAfter)
    }
}

/// The answer to a connection: the server's certificate authorities, and its wishes.
public struct EnrolmentTerms: Sendable {
    /// The CA certificates that the server has sent over an authenticated connection. The issued certificate must lead to one
    /// of them.
    public var authorities: [X509Certificate]
    /// Further certificates for the chain, such as configured trust anchors.
    public var intermediates: [X509Certificate]
    /// The type of key that the server wants; `nil` if it leaves it open.
    public var keyType: KeyType?

    /// Creates the terms.
    public init(
        authorities: [X509Certificate] = [], intermediates: [X509Certificate] = [], keyType: KeyType? = nil
    ) {
        (self.authorities, self.intermediates, self.keyType) = (authorities, intermediates, keyType)
    }
}

/// A request for a certificate.
public struct EnrolmentRequest: Sendable {
    /// The names to request: for a renewal those of the current certificate, if it was issued for the configured ones
    /// (RFC 7030, section 4.2.2).
    public let names: CertificateRequest.Names
    /// The side of TLS to request.
    public let usage: IdentityUsage
    /// The certificate request: the same in every attempt.
    public let csr: CertificateRequest
    /// The key to be certified.
    public let key: any IdentityKey
    /// The identity to be renewed; `nil` for a first enrolment.
    public let current: Identity?
    /// Whether the server has this request and has not decided yet.
    public let isPending: Bool
    /// The protocol's own state of this enrolment, such as the URL of an ACME order; empty before ``remember(_:)``. It outlasts a
    /// kill, and ends with the enrolment.
    public let state: [UInt8]
    private let store: @Sendable ([UInt8]) async throws(ProviderError) -> Void

    /// Creates a request, for the tests of a protocol.
    ///
    /// - Parameter remember: Stores the protocol's own state.
    public init(
        names: CertificateRequest.Names, usage: IdentityUsage = .client, csr: CertificateRequest,
        key: any IdentityKey, current: Identity? = nil, isPending: Bool = false, state: [UInt8] = [],
        remember: @escaping @Sendable ([UInt8]) async throws(ProviderError) -> Void = { _ in }
    ) {
        (self.names, self.usage, self.csr, self.key, self.current) = (names, usage, csr, key, current)
        (self.isPending, self.state, store) = (isPending, state, remember)
    }

    /// Stores the protocol's own state, durably. Not for secrets. Call it before the request that the state describes leaves.
    ///
    /// - Throws: `storeWriteFailed`, and other errors of the storage.
    public func remember(_ state: [UInt8]) async throws(ProviderError) { try await store(state) }
}

/// The server's answer to a request for a certificate.
public enum EnrolmentAnswer: Sendable {
    /// The certificates as the server sends them, in any order, and the CA certificates that come with them.
    case issued([X509Certificate], authorities: [X509Certificate] = [])
    /// Certificates for a key that the server has made itself, and that key, PKCS#8.
    case generated(privateKey: SecretBytes, [X509Certificate])
    /// The server has not decided. It may name the delay before the next request.
    case pending(retryAfter: Duration? = nil)
}

/// An identity to enrol, and the place of its key and certificate.
public struct EnrolmentPlan: Sendable {
    /// The names to request. The certificate must have the alternative names.
    public var names: CertificateRequest.Names
    /// The side of TLS that the certificate must permit: the value of the provider's parameter
    /// ``/CertificateProviding/IdentityUsage/parameter``.
    public var usage: IdentityUsage
    /// Makes the keys: the value of the provider's parameter `key`.
    public var keyStore: any KeyStore
    /// The configured type of key (`key-type`); `nil` if the server may choose.
    public var keyType: KeyType?
    /// The longest time that a pending request is waited for in one run.
    public var timeout: Duration
    /// How a certificate with another subject than the requested one is treated.
    public var subjectRule = SubjectRule.preferred
    /// The name of the identity in the provider's storage (``/CertificateProviding/StoredIdentity/name(distinguishedBy:)``). It depends on the
    /// server, the names and the usage: other ones are another identity.
    public var storageName: String

    /// Creates a plan.
    public init(
        names: CertificateRequest.Names, usage: IdentityUsage = .client, keyStore: any KeyStore,
        keyType: KeyType? = nil,
        timeout: Duration = .seconds(30),
        storageName: String
    ) {
        (self.names, self.usage, self.keyStore, self.keyType) = (names, usage, keyStore, keyType)
        (self.timeout, self.storageName) = (timeout, storageName)
    }
}

/// How an issued certificate with another subject than the requested one is treated, for a key that this host has made. Its alternative
/// names must be right in any case.
public enum SubjectRule: Sendable {
    /// It is refused.
    case required
    /// It is taken, with a warning.
    case preferred
    /// It is taken: the server decides on the subject.
    case server
}
