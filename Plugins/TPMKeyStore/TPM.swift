import CertificateProviding
import Crypto
import Dispatch
import Glibc
import Synchronization

/// The TPM of a key store: one call at a time.
final class TPM: Sendable {
    let settings: TPMSettings
    let environment: ProviderEnvironment
    private let worker: BlockingExecutor

    /// - Parameter worker: One thread for all stores of the program: a TPM does one thing at a time, and has room for the objects of
    ///   one call.
    init(_ settings: TPMSettings, _ environment: ProviderEnvironment, worker: BlockingExecutor) {
        (self.settings, self.environment, self.worker) = (settings, environment, worker)
    }

    /// The CA for attestation keys; `nil` if none is configured.
    var authority: AttestationAuthority? {
        settings.attestation.map {
            AttestationAuthority(url: $0.url, trustAnchors: $0.trustAnchors, environment: environment)
        }
    }

    /// Calls `body` with a connection and the parent of keys, once more with a new connection if the first one breaks.
    ///
    /// - Parameter key: The key that `body` uses.
    /// - Throws: What the TPM reports; `timedOut` after the time that the settings give it. The call then ends by itself, and
    ///   its result is lost.
    func run<T: Sendable>(
        beneath parent: TPMParent, using key: TPMKeyBlob? = nil,
        _ body: @escaping Body<T>
    ) async throws(ProviderError) -> T {
        let owner = try await ownerAuthorisation(parent)
        let account = lockingAccount(parent, key)
        if let account, try await environment.isRejected(Self.empty, for: account) {
            throw TPMFailure.password(settings.displayName, "It was rejected before")
        }
        do throws(ProviderError) {
            let result = await withCheckedContinuation { continuation in
                submit(Caller { continuation.resume(returning: $0) }) { [self] () throws(ProviderError) in
                    try call(parent, owner, body)
                }
            }
            return try result.get()
        } catch {
            if let owner, error.code == .wrongPassword {
                await environment.noteOutcome(of: owner, for: settings.tcti, isRejected: true)
            } else if let account, error.nativeCode.map(TPMFailure.countsTowardsLockout) == true {
                await environment.noteOutcome(of: Self.empty, for: account, isRejected: true)
            }
            throw error
        }
    }

    typealias Body<T> = @Sendable (TPMConnection, borrowing TPMObject) throws(TPMFailure) -> T

    /// Whether the TPM takes a key: not one of another TPM, nor of this one before it was cleared. Blocks. Says yes without a look where
    /// an authorisation would be sent: ``run(beneath:using:_:)`` asks whether it was rejected before, which suspends.
    ///
    /// - Throws: As ``run(beneath:using:_:)``.
    func takes(_ key: TPMKeyBlob) throws(ProviderError) -> Bool {
        let parent = key.parent
        guard parent == .owner, settings.ownerSource == nil, lockingAccount(parent, key) == nil else { return true }
        let result = Mutex<Result<Bool, ProviderError>>(.success(true))
        let isGiven = DispatchSemaphore(value: 0)
        let caller = Caller<Bool> { given in
            result.withLock { $0 = given }
            isGiven.signal()
        }
        submit(caller) { [self] () throws(ProviderError) in
            try call(parent, nil) { _, storageKey throws(TPMFailure) in try storageKey.find(key) != nil }
        }
        isGiven.wait()
        return try result.withLock(\.self).get()
    }

    private func call<T>(_ parent: TPMParent, _ owner: SecretBytes?, _ body: Body<T>) throws(ProviderError) -> T {
        try settings.checkDevice()
        func attempt() throws(TPMFailure) -> T {
            let connection = try TPMConnection(settings.tcti)
            let storageKey = try connection.parent(parent, owner: owner)
            do throws(TPMFailure) { return try body(connection, storageKey) } catch {
                var error = error
                // The owner's has been accepted.
                if error.authorisation == .owner { error.authorisation = .key }
                throw error
            }
        }
        do throws(TPMFailure) {
            do throws(TPMFailure) { return try attempt() } catch {
                guard error.isOfConnection else { throw error }
                return try attempt()
            }
        } catch { throw error.error(settings.displayName) }
    }

    private static let empty = SecretBytes(copying: [UInt8]())

    /// Names an empty authorisation that locks the TPM if it is wrong too often; `nil` for the keys of this store, and for others with
    /// `noDA` beneath the owner's storage key.
    private func lockingAccount(_ parent: TPMParent, _ key: TPMKeyBlob?) -> String? {
        guard parent != .owner || key?.publicArea.locksNothing == false else { return nil }
        let hash = key.map { TPMKeyStore.hexadecimal(SHA256.hash(data: $0.derRepresentation)) }
        return "\(settings.tcti) \(parent.handle) \(hash ?? "")"
    }

    /// - Throws: `wrongPassword` for one that the TPM has rejected: it is not sent again. Errors of its source.
    private func ownerAuthorisation(_ parent: TPMParent) async throws(ProviderError) -> SecretBytes? {
        guard case .owner = parent, let source = settings.ownerSource else { return nil }
        let secret = try await environment.secret(
            from: source, prompt: "Owner authorisation of \(settings.displayName)", interaction: NoUserInteraction())
        guard try await !environment.isRejected(secret, for: settings.tcti) else {
            throw ProviderError(
                .wrongPassword,
                "\(settings.displayName) has rejected the owner authorisation of KeyStore.tpm.owner-source before; set the "
                    + "right one.")
        }
        return secret
    }

    private func submit<T: Sendable>(
        _ caller: Caller<T>, _ work: @escaping @Sendable () throws(ProviderError) -> T
    ) {
        worker.submit {
            // A call that waited too long for its turn is not begun.
            guard caller.isWaiting else { return }
            caller.resume(Result { () throws(ProviderError) in try work() })
        }
        let (name, timeout) = (settings.displayName, settings.timeout)
        DispatchQueue.global().asyncAfter(deadline: .now() + timeout / .seconds(1)) {
            caller.resume(
                .failure(
                    ProviderError(
                        .timedOut,
                        "\(name) does not answer within \(timeout); look whether another program keeps it busy, or set "
                            + "KeyStore.tpm.timeout.")))
        }
    }
}

/// Gets one answer: the result, or the end of its time.
private final class Caller<T: Sendable>: Sendable {
    private let answer: Mutex<(@Sendable (Result<T, ProviderError>) -> Void)?>

    init(_ answer: @escaping @Sendable (Result<T, ProviderError>) -> Void) { self.answer = Mutex(answer) }

    var isWaiting: Bool { answer.withLock { $0 != nil } }

    func resume(_ result: Result<T, ProviderError>) { answer.withLock { $0.take() }?(result) }
}
