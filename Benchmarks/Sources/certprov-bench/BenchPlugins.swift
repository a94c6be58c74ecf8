import CertificateProviding
import FoundationEssentials
import Glibc
import IdentityStore
import Logging
import PluginHost

/// A provider in a plugin, and the host that runs it.
struct BenchPlugins {
    let provider: any CertificateProvider
    private let host: PluginHost
    private let directory: String

    /// - Parameters:
    ///   - directory: Has the plugins, and beside it the launcher.
    ///   - name: `token` or `memory`.
    ///   - source: The module of the token, or a PKCS#12 file.
    ///   - uri: Of the token's identity.
    init(_ directory: String, _ name: String, _ source: String, _ uri: String, state: String) throws {
        self.directory = directory
        let logger = Logger(label: "bench")
        host = PluginHost(
            PluginDirectories([directory]), launcher: "\(directory)/certprov-plugin-launcher", logger: logger)
        let parameters: ProviderParameters =
            name == "token"
            ? ProviderParameters([
                "module-path": .init(source), "uri": .init(uri), "pin-source": .init("env:PIN"),
                "environment": .init("SOFTHSM2_CONF"),
            ]) : ProviderParameters(["path": .init(source), "password-source": .init("env:PASSWORD")])
        guard let id = ProviderID(rawValue: name), let descriptor = try host.provider(id, parameters) else { exit(66) }
        provider = try descriptor.makeProvider(
            ProviderEnvironment(
                storage: IdentityStore(path: state).storage(for: id), logger: logger, executor: .threads()), parameters)
    }

    /// How many processes there are of plugins.
    var processes: Int {
        let all = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
        return all.count { process in
            let program = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/\(process)/exe")
            return program?.hasPrefix("\(directory)/certprov-plugin-") == true
                && program?.hasSuffix("launcher") == false
        }
    }

    func end() async {
        await provider.shutdown()
        await host.shutdown()
    }
}
