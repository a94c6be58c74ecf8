import CertificateProviding
import Logging
import PKCS11TokenProvider
import Synchronization
import TestSupport

/// Makes providers as a service would configure them.
struct TokenSetup: Sendable {
    var uri: String
    var parameters: [String: String] = [:]
    var storage: any IdentityStorage = InMemoryStorage()
    var log = RecordedLog()

    /// The identity of the module's first kind on a token, with its PIN in a file.
    init(_ module: TestModule, _ token: TestToken = .main, pin: PIN = .right) throws {
        try self.init(module, token, module.kinds[0], pin: pin)
    }

    /// The identity of a kind; of any, where it is nil.
    init(_ module: TestModule, _ token: TestToken, _ kind: TestAuthority.KeyKind?, pin: PIN = .right) throws {
        try self.init(token: module.label(token), kind?.rawValue, in: module, pin: pin)
    }

    init(token: String, _ object: String? = nil, in module: TestModule = .softhsm, pin: PIN = .right) throws {
        uri = "pkcs11:token=\(token)\(object.map { ";object=\($0)" } ?? "")?module-name=\(module.rawValue)"
        let farm = try TokenFarm.shared()
        switch pin {
        case .right: parameters["pin-source"] = "file:" + farm.file("pin")
        case .wrong: parameters["pin-source"] = "file:" + farm.file("wrong-pin")
        case .none: break
        }
    }

    enum PIN { case right, wrong, none }

    func with(_ name: String, _ value: String) -> TokenSetup {
        var copy = self
        copy.parameters[name] = value
        return copy
    }

    func provider() throws -> PKCS11TokenProvider {
        var environment = ProviderEnvironment.testing(storage: storage)
        environment.logger = log.logger
        // A module on a loaded machine does not hang.
        var values = ["timeout": "120"].merging(parameters) { $1 }
        values["uri"] = uri
        let provider = try PKCS11TokenProvider(
            environment: environment, parameters: ProviderParameters(values.mapValues { .init($0) }))
        return provider
    }

    func identity() async throws -> Identity { try await provider().getCertificate(NoUserInteraction()) }
}

/// The log lines.
final class RecordedLog: Sendable {
    private let lines = Mutex<[String]>([])

    var text: String { lines.withLock { $0.joined(separator: "\n") } }

    var logger: Logger {
        var logger = Logger(label: "test") { [self] _ in Handler(log: self) }
        logger.logLevel = .trace
        return logger
    }

    private struct Handler: LogHandler {
        let log: RecordedLog
        var metadata: Logger.Metadata = [:]
        var logLevel: Logger.Level = .trace

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            log.lines.withLock { $0.append("\(event.level): \(event.message) \(event.metadata ?? [:])") }
        }
    }
}

/// Returns the error that `body` throws.
func failure(_ body: () async throws -> Void) async -> CertificateProviderError? {
    do {
        try await body()
        return nil
    } catch {
        return error as? CertificateProviderError
    }
}
