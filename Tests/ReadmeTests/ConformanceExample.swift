import CertificateProviderTesting
import CertificateProviding
import PluginHost

/// Runs the suite on an installed plugin. The report names each demand of the contract that does not hold.
func conformance(
    of id: ProviderID, _ parameters: ProviderParameters, on host: PluginHost, in environment: ProviderEnvironment
) async throws -> ConformanceReport? {
    guard let descriptor = try host.provider(id, parameters) else { return nil }
    return await ProviderConformance(descriptor, parameters) { environment }.run()
}
