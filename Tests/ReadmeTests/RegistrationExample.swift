import CertprovKit
import ProviderTransport

/// Registers if that has not happened yet, and reads something from the server.
func greet(configuredBy file: String) async throws -> HTTPResponse {
    let manager = try CertprovLogon(configuredBy: file).manager
    try await manager.register(NoUserInteraction())
    return try await manager.request(HTTPRequest(target: "/odata/com.example.app/Hello", isRepeatable: true))
}
