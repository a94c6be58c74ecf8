import CertificateProviding
import PKCS11TokenProvider
import TestSupport

/// Makes providers as a service would configure them.
struct TokenSetup: Sendable {
    var uri: String
    var parameters: [String: String] = [:]
    var storage: any IdentityStorage = InMemoryStorage()
    var log = TestLog()

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
