import CP11Kit
import CertificateProviding
import FaultyModuleControl
import Foundation
import Glibc
import Logging
import PKCS11TokenProvider
import Synchronization
import TestSupport
import Testing

/// A PKCS#11 module of this test's own, which p11-kit loads as it loads a vendor's.
///
/// Each has its own copy of the library and so its own tokens, sessions and faults: tests run beside each other.
final class FaultyModule: Sendable {
    static let pin = "1234"
    static let authority = Result { try TestAuthority() }
    /// RSA keys take long to make in a debug build, so there is one.
    static let rsaIdentity = Result { try authority.get().issue("rsa", kind: .rsa2048) }

    let directory: TemporaryDirectory
    let path: String
    /// Functions of the library, which is loaded to the end of the process.
    let control: faulty_control
    private let threads = BlockingExecutor.threads(maximum: 4)

    struct Failure: Error { var description: String }

    /// - Parameter name: The library's: some get a treatment of their own.
    init(named name: String = "module.so") throws {
        directory = try TemporaryDirectory()
        path = directory[name]
        try FileManager.default.copyItem(atPath: FaultyModuleLibrary.path(), toPath: path)
        guard let library = dlopen(path, RTLD_NOW | RTLD_LOCAL), let symbol = dlsym(library, "faulty_module_control"),
            let control = unsafeBitCast(symbol, to: faulty_control_function.self)()
        else { throw Failure(description: dlerror().map { String(cString: $0) } ?? "no such function") }
        self.control = control.pointee
    }

    /// A module with the token 0, which is in the slot 0, and what `fill` puts on it.
    static func withToken(
        named name: String = "module.so", _ fill: (FaultyModule) throws -> Void
    ) throws -> FaultyModule {
        let module = try FaultyModule(named: name)
        module.control.set_token(0, "alpha", "0001", pin)
        try fill(module)
        module.control.insert(0, 0)
        return module
    }

    /// A module with an identity on the token 0, which is in the slot 0.
    /// - Parameter identity: One of P-256 if `nil`.
    static func withIdentity(
        _ identity: Identity? = nil, named name: String = "module.so", asksEachTime: Bool = false
    ) throws -> FaultyModule {
        try withToken(named: name) {
            try $0.add(identity ?? authority.get().issue("client"), to: 0, asksEachTime: asksEachTime)
        }
    }

    /// With the certificate of an identity, and under its id the private key of another one.
    static func withAnothersKey() throws -> (module: FaultyModule, identity: Identity) {
        let authority = try authority.get()
        let identity = try authority.issue("client")
        let module = try withToken {
            try $0.add(identity.certificate, to: 0, id: 1)
            try $0.addKey(of: authority.issue("other"), to: 0)
        }
        return (module, identity)
    }

    /// Adds the token 1, with a P-256 identity, in the slot 1.
    func addBeta(pin: String = pin, isInserted: Bool = true) throws {
        control.set_token(1, "beta", "0002", pin)
        try add(Self.authority.get().issue("other"), to: 1)
        if isInserted { control.insert(1, 1) }
    }

    /// Puts a key and its chain on a token.
    func add(_ identity: Identity, to token: UInt32, id: UInt32 = 1, asksEachTime: Bool = false) throws {
        try addKey(of: identity, to: token, id: id, asksEachTime: asksEachTime)
        for certificate in identity.certificateChain { try add(certificate, to: token, id: id) }
    }

    func addKey(of identity: Identity, to token: UInt32, id: UInt32 = 1, asksEachTime: Bool = false) throws {
        guard let key = identity.key.exporter else { throw Failure(description: "no key") }
        let isAdded = try key.pkcs8Representation().withUnsafeBytes { der in
            control.add_key(token, id, der.baseAddress, UInt(der.count), asksEachTime ? 1 : 0)
        }
        guard isAdded == 1 else { throw Failure(description: "key refused") }
    }

    func add(_ certificate: X509Certificate, to token: UInt32, id: UInt32) throws {
        let der = certificate.derRepresentation
        guard control.add_certificate(token, certificate.isAuthority ? 0 : id, der, UInt(der.count)) == 1
        else { throw Failure(description: "certificate refused") }
    }

    func fail(_ function: String, _ result: CK_RV, after skip: UInt32 = 0, times: UInt32 = 1) {
        control.fail(function, skip, times, result)
    }

    func calls(_ function: String) -> UInt32 { control.calls(function) }

    /// Waits until the module has no user: `C_Finalize` comes later than a shutdown returns if the machine has no time for it,
    /// and after an abandoned call that was released.
    func waitUntilFinalized() async {
        let end = ContinuousClock.now + .seconds(600)
        while control.is_in_use() != 0 {
            guard ContinuousClock.now < end else {
                Issue.record("the module is not finalised")
                return
            }
            try? await Task.sleep(for: .milliseconds(1))
        }
    }

    /// Waits until so many sessions are open: one is closed a moment after it was given up.
    func waitUntilOpen(_ count: UInt32) async {
        let end = ContinuousClock.now + .seconds(600)
        while control.open_sessions() != count {
            guard ContinuousClock.now < end else {
                Issue.record("\(control.open_sessions()) sessions are open, not \(count)")
                return
            }
            try? await Task.sleep(for: .milliseconds(1))
        }
    }

    /// Waits until a test's calls are held, without taking a thread of Swift's tasks.
    func waitUntilHeld(_ count: UInt32) async throws {
        let isHeld = try await threads.run { [self] in control.wait_held(count) == 1 }
        guard isHeld else { throw Failure(description: "nobody came to be held") }
    }

    /// Takes the token out and puts it in again and again while forty tasks sign, which may find that it is away and
    /// nothing else.
    func pullOut(whileSigningWith keys: [any IdentityKey]) async throws {
        let errors = try await withThrowingTaskGroup(of: [ProviderError].self) { tasks in
            for number in 0..<40 {
                tasks.addTask {
                    var errors: [ProviderError] = []
                    for _ in 0..<10 {
                        do { #expect(try await keys[number % keys.count].signsValidly()) } catch {
                            errors.append(try #require(error as? ProviderError))
                        }
                    }
                    return errors
                }
            }
            for round in 0..<20 {
                control.insert(0, round % 2 == 0 ? -1 : 0)
                await Task.yield()
            }
            return try await tasks.reduce(into: []) { $0 += $1 }
        }
        let others = errors.filter { $0.code != .tokenNotPresent }
        #expect(others.isEmpty, "\(others.count) of \(errors.count): \(others.map(\.message))")
    }

    /// A provider that uses this module, as after a restart.
    func provider(
        pin: String? = pin, storage: any IdentityStorage = InMemoryStorage(),
        now: @escaping @Sendable () -> Date = { Date() }, logger: Logger? = nil, _ settings: [String: String] = [:]
    ) throws -> PKCS11TokenProvider {
        var environment = ProviderEnvironment.testing(storage: storage, variables: pin.map { ["PIN": $0] } ?? [:])
        environment.now = now
        if let logger { environment.logger = logger }
        var parameters = ["module-path": path, "timeout": "600"]
        if pin != nil { parameters["pin-source"] = "env:PIN" }
        parameters.merge(settings) { $1 }
        let provider = try PKCS11TokenProvider(
            environment: environment, parameters: ProviderParameters(parameters.mapValues { .init($0) }))
        return provider
    }
}

extension IdentityKey {
    /// Signs the digest of a message, and says whether it is a signature of the message with this key.
    func signsDigestValidly(_ scheme: SignatureScheme? = nil) async throws -> Bool {
        guard let signer = digestSigner, let scheme = scheme ?? signer.digestSchemes.first,
            let algorithm = scheme.digestAlgorithm
        else { return false }
        let message = Array("message".utf8)
        let signature = try await signer.signature(forDigest: algorithm.digest(of: message), using: scheme)
        return publicKey.isValidSignature(signature, for: message, using: scheme)
    }
}

/// Does it again where a busy host has not let it come to its end in time: ten times at most.
func inTime<T>(_ body: () async throws -> T) async throws -> T {
    for _ in 1..<10 {
        do { return try await body() } catch let error as ProviderError where error.code == .timedOut {}
    }
    return try await body()
}

extension Result where Failure == any Error {
    init(_ body: () async throws -> Success) async {
        do { self = .success(try await body()) } catch { self = .failure(error) }
    }

    var failure: Failure? { if case .failure(let error) = self { error } else { nil } }
}
