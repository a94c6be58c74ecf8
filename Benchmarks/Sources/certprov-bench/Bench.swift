import CertificateProviding
import Glibc
import IdentityStore
import Logging
import PKCS11TokenProvider
import PKCS12FileProvider

/// The measurements that need the library in process. Prints lines of `name value`, which `Benchmarks/run` reads.
///
///     certprov-bench store P12 STATE     time of getStoredCertificate, warm and cold
///     certprov-bench tls P12 KEY CHAIN CA STATE
///                                       handshakes per second, with an Identity and with PEM files
///
///     certprov-bench sign MODULE URI STATE CALLERS SECONDS
///                                       signatures per second with a token's key
///     certprov-bench plugin-sign PLUGINS token MODULE URI STATE CALLERS SECONDS
///     certprov-bench plugin-sign PLUGINS memory P12 - STATE CALLERS SECONDS
///                                       signatures per second with a key in a plugin
///     certprov-bench plugin-tls PLUGINS P12 KEY CHAIN CA STATE COUNT
///                                       handshakes per second with a key in a plugin, with the same key as a PEM file, and
///                                       the time of COUNT at once
///
///     certprov-bench token-tls MODULE URI KEY CHAIN CA STATE
///                                       handshakes per second with a token's key, and with the same key as a PEM file
///
///     certprov-bench enrol URL ANCHORS STATE COUNT CONCURRENCY
///                                       enrolments per second with an EST server, and what they need
///
///     certprov-bench requests FILE STATE TARGET COUNT
///                                       time of a request over the registered identity of a property file
///
/// STATE is a directory for an identity store.
/// The password of the file is in the environment variable PASSWORD.
@main
struct Bench {
    static func main() async throws {
        let arguments = Array(CommandLine.arguments.dropFirst())
        switch (arguments.first, arguments.count) {
        case ("store", 3):
            try await StoreBenchmark(provider(arguments[1], arguments[2]), rounds: 200_000).run {
                try Self.provider(arguments[1], arguments[2])
            }
        case ("tls", 6):
            let identity = try await provider(arguments[1], arguments[5]).getCertificate(NoUserInteraction())
            try await HandshakeBenchmark(
                identity: identity, key: arguments[2], chain: arguments[3], anchors: arguments[4]
            ).run()
        case ("token-tls", 7):
            try await HandshakeBenchmark(
                identity: token(arguments[1], arguments[2], arguments[6]), key: arguments[3], chain: arguments[4],
                anchors: arguments[5]
            ).run(keyIn: "token")
        case ("sign", 6):
            guard let callers = Int(arguments[4]), let length = Int(arguments[5]) else { exit(64) }
            let identity = try await token(arguments[1], arguments[2], arguments[3])
            try await SignBenchmark(identity: identity, callers: callers, length: .seconds(length)).run()
        case ("plugin-sign", 8):
            guard let callers = Int(arguments[6]), let length = Int(arguments[7]) else { exit(64) }
            let plugin = try BenchPlugins(arguments[1], arguments[2], arguments[3], arguments[4], state: arguments[5])
            let identity = try await plugin.provider.getCertificate(NoUserInteraction())
            try await SignBenchmark(identity: identity, callers: callers, length: .seconds(length)).run()
            await plugin.end()
        case ("plugin-tls", 8):
            guard let count = Int(arguments[7]) else { exit(64) }
            let plugin = try BenchPlugins(arguments[1], "memory", arguments[2], "", state: arguments[6])
            let benchmark = HandshakeBenchmark(
                identity: try await plugin.provider.getCertificate(NoUserInteraction()), key: arguments[3],
                chain: arguments[4], anchors: arguments[5])
            try await benchmark.run(keyIn: "plugin")
            try await benchmark.run(atOnce: count)
            print("plugin-processes", plugin.processes)
            await plugin.end()
        case ("enrol", 6):
            guard let count = Int(arguments[4]), let concurrency = Int(arguments[5]) else { exit(64) }
            try await EnrolBenchmark(
                url: arguments[1], anchors: arguments[2], state: arguments[3], count: count, concurrency: concurrency
            ).run()
        case ("requests", 5):
            guard let count = Int(arguments[4]) else { exit(64) }
            try await RequestBenchmark(
                configuration: arguments[1], state: arguments[2], target: arguments[3], count: count
            ).run()
        default:
            print(
                """
                usage: certprov-bench store P12 STATE | tls P12 KEY CHAIN CA STATE | sign MODULE URI STATE CALLERS SECONDS
                       | plugin-sign PLUGINS token|memory SOURCE URI STATE CALLERS SECONDS
                       | plugin-tls PLUGINS P12 KEY CHAIN CA STATE COUNT | token-tls MODULE URI KEY CHAIN CA STATE | enrol URL ANCHORS STATE COUNT CONCURRENCY
                       | requests FILE STATE TARGET COUNT
                """
            )
            exit(64)
        }
    }

    /// The identity on a token whose PIN is in the environment variable PIN.
    static func token(_ module: String, _ uri: String, _ state: String) async throws -> Identity {
        let provider = try ProviderDescriptor.pkcs11.makeProvider(
            ProviderEnvironment(
                storage: IdentityStore(path: state).storage(for: ProviderDescriptor.pkcs11.id),
                logger: Logger(label: "bench"), executor: .threads()),
            ProviderParameters([
                "module-path": .init(module), "uri": .init(uri), "pin-source": .init("env:PIN"),
            ]))
        return try await provider.getCertificate(NoUserInteraction())
    }

    static func provider(_ file: String, _ state: String) throws -> any CertificateProvider {
        try ProviderDescriptor.pkcs12.makeProvider(
            ProviderEnvironment(
                storage: IdentityStore(path: state).storage(for: ProviderDescriptor.pkcs12.id),
                logger: Logger(label: "bench"),
                executor: .threads()),
            ProviderParameters(["path": .init(file), "password-source": .init("env:PASSWORD")]))
    }
}

/// The middle value.
func median(_ values: [Double]) -> Double {
    let sorted = values.sorted()
    return sorted.isEmpty ? 0 : sorted[sorted.count / 2]
}

func seconds(_ duration: Duration) -> Double {
    Double(duration.components.seconds) + Double(duration.components.attoseconds) * 1e-18
}
