import AsyncHTTPClient
import CertprovKit
import NIOCore

func get(_ url: String, by client: HTTPClient, _ tls: RotatingTLS) async throws -> ByteBuffer {
    var request = HTTPClientRequest(url: url)
    request.tlsConfiguration = try tls.clientConfiguration()
    let response = try await client.execute(request, timeout: .seconds(30))
    return try await response.body.collect(upTo: 1 << 20)
}
