import Foundation
import TestSupport

/// The proxy of `Tests/EnrolmentServer/http-proxy`, for as long as this object lives.
final class ProxyServer: Sendable {
    static let user = "proxyuser"
    static let password = "pröxy:pwd"

    let port: Int
    private let directory: TemporaryDirectory
    private let process: SpawnedProcess

    struct Failure: Error {}

    struct Request: Decodable, Equatable {
        let method: String
        let target: String
        let headers: [String]
        let granted: Bool
    }

    init(_ options: [String] = []) throws {
        directory = try TemporaryDirectory()
        let script = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appending(path: "EnrolmentServer/http-proxy").path
        process = try SpawnedProcess(["/usr/bin/python3", script, "--log", directory["log"]] + options)
        guard let line = process.readLine(),
            let port = try JSONDecoder().decode([String: Int].self, from: Data(line.utf8))["port"]
        else { throw Failure() }
        self.port = port
    }

    var url: String { "http://127.0.0.1:\(port)" }

    func requests() throws -> [Request] {
        try directory.read("log").split(separator: 0x0a).map {
            try JSONDecoder().decode(Request.self, from: Data($0))
        }
    }
}
