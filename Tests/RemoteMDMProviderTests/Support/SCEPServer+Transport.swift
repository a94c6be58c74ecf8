import CertificateProviding
import CertificateTLS
import Foundation
import NIOCore
import TestSupport

@testable import ProviderTransport
@testable import RemoteMDMProvider

extension SCEPServer {
    /// One connection a request, over plain HTTP.
    var transport: SCEPClient.Transport {
        { [port] request async throws(ProviderError) in
            guard let url = ServerURL("http://127.0.0.1:\(port)") else {
                throw ProviderError(.internal, "no URL")
            }
            let security = ServerSecurity(
                trust: ServerTrust(trustAnchors: .system), credentials: nil, now: { Date() })
            let session = AuthenticatingSession(url, security, .none)
            let response = try await session.response(to: request, before: .now() + .seconds(600))
            await session.close()
            return response
        }
    }
}
