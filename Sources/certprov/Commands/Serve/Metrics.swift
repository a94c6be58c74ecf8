import ArgumentParser
import CertificateProviding
import CoreMetrics
import HostService
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

    @OptionGroup var places: HostPlaces
    @OptionGroup var status: StatusSocketOption

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            try places.requireNoProvider(options)
            guard !options.json else {
                throw ProviderError(.usage, "Metrics are text, and no JSON; for JSON run: certprov serve status --json")
            }
            do throws(ProviderError) {
                let answer = try StatusSocket.ask(.metrics, at: status.socket)
                try Console.print(String(decoding: answer, as: UTF8.self))
            } catch {
                guard error.code == .unavailable, status.socket == nil else { throw error }
                try Console.print(try await stored(context))
            }
            return .done
        }
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
                    HostMetrics.record(identity, to: factory)
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
