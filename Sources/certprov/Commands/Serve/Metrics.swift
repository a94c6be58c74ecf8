import ArgumentParser
import CertificateProviding
import CoreMetrics
import HostService
import IdentityFiles
import IdentityStore
import Logon
import Terminal

struct Metrics: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "metrics",
        abstract: "Show metrics of all identities of this host, as text for Prometheus and its kin.",
        discussion: """
            Those of the running certprov serve; without it, the expiry of the identities that are stored for the \
            property files that the service would read. No server is asked.
            """)

    @OptionGroup var options: GlobalOptions

    @Option(
        help: ArgumentHelp(
            "The file to write, in place of the one before in one step, such as for the textfile collector of node_exporter.",
            valueName: "file"), completion: .file(extensions: ["prom"]))
    var out: String?

    @OptionGroup var places: HostPlaces
    @OptionGroup var status: StatusSocketOption

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            try places.requireNoProvider(options)
            guard !options.json else {
                throw ProviderError(.usage, "Metrics are text, and no JSON; for JSON run: certprov serve status --json")
            }
            do throws(ProviderError) {
                try put(String(decoding: try StatusSocket.ask(.metrics, at: status.socket), as: UTF8.self))
            } catch {
                guard error.code == .unavailable, status.socket == nil else { throw error }
                try put(try await stored(context))
            }
            return .done
        }
    }

    private func put(_ text: String) throws(ProviderError) {
        guard let out else { return try Console.print(text) }
        let path = RegularFile.absolute(out)
        guard let slash = path.lastIndex(of: "/"), let file = PublishedFile(path: path) else { return }
        try file.write(Array(text.utf8), below: String(path[..<slash]))
    }

    /// The metrics of the stored identities.
    private func stored(_ context: CommandContext) async throws(ProviderError) -> String {
        let metrics = HostMetrics()
        for file in try HostConfiguration.read(file: options.config, directory: places.directory).files {
            let factory = metrics.of(identity: file.name)
            var errors = 0
            do throws(ProviderError) {
                if let problem = file.problem { throw problem }
                let configuration = try LogonConfiguration.load(path: file.path, registry: context.registry)
                let manager = try await context.manager(configuration)
                if let identity = try await manager.storedIdentity() {
                    HostMetrics.record(identity, renewedAt: manager.renewalSchedule(for: identity).due, to: factory)
                    if let export = try context.filesExport(configuration) {
                        let isCurrent = try export.isCurrent(identity) && export.isNotified
                        Gauge(label: "certprov_files_stale", factory: factory).record(isCurrent ? 0 : 1)
                    }
                }
                await manager.shutdown()
            } catch {
                errors = 1
                context.remark("\(file.name.withVisibleControls): \(error)")
            }
            Gauge(label: "certprov_identity_errors", factory: factory).record(errors)
        }
        return metrics.text
    }
}
