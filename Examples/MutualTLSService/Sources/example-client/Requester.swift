import ArgumentParser
import AsyncHTTPClient
import CertificateTLS
import Glibc
import Logging
import NIOCore
import NIOHTTP1
import ServiceLifecycle

/// Sends requests one after the other, each once, and prints what came back.
struct Requester: Service {
    let url: String
    /// nil: until stopped.
    let count: Int?
    let interval: Duration
    let configuration: HTTPClient.Configuration
    let tls: RotatingTLS
    let logger: Logger

    /// - Throws: `ExitCode` when a request failed.
    func run() async throws {
        let (answers, failures) = try await HTTPClient.withHTTPClient(configuration: configuration) { client in
            var (answers, failures) = (0, 0)
            while !Task.isShuttingDownGracefully, !Task.isCancelled {
                do {
                    print(try await answer(from: client), terminator: "")
                    fflush(nil)
                    answers += 1
                } catch {
                    logger.error("request failed", metadata: ["reason": "\(error)"])
                    failures += 1
                }
                if answers + failures == count { break }
                // Ends early, with an error that means no more than that, when the service is to stop.
                try? await cancelWhenGracefulShutdown { try await Task.sleep(for: interval) }
            }
            return (answers, failures)
        }
        logger.notice("finished", metadata: ["answers": "\(answers)", "failures": "\(failures)"])
        if failures > 0 { throw ExitCode.failure }
    }

    private func answer(from client: HTTPClient) async throws -> String {
        var request = HTTPClientRequest(url: url)
        // Of this moment: the CAs of the servers may have changed. Connections stay in the pool as long as they have not.
        request.tlsConfiguration = try tls.clientConfiguration()
        let response = try await client.execute(request, timeout: .seconds(10), logger: logger)
        let body = String(buffer: try await response.body.collect(upTo: 64 * 1024))
        guard response.status == .ok else { throw UnexpectedStatus(status: "\(response.status)", body: body) }
        return body
    }
}

private struct UnexpectedStatus: Error {
    var status: String
    var body: String
}
