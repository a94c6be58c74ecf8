import Foundation

/// The proxy of `Tests/EnrolmentServer/http-proxy`, for as long as this object lives.
public final class ProxyServer: Sendable {
    public static let user = "proxyuser"
    public static let password = "pröxy:pwd"

    public let port: Int
    private let directory: TemporaryDirectory
    private let process: Subprocess

    public struct Request: Decodable, Equatable {
        public let method: String
        public let target: String
        public let headers: [String]
        public let granted: Bool
    }

    public init(_ options: [String] = []) throws {
        directory = try TemporaryDirectory()
        let script = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .appending(path: "EnrolmentServer/http-proxy").path
        process = try Subprocess(["/usr/bin/python3", script, "--log", directory["log"]] + options)
        guard let line = process.readLine(),
            let port = try JSONDecoder().decode([String: Int].self, from: Data(line.utf8))["port"]
        else { throw Subprocess.Failure(description: "the proxy did not start") }
        self.port = port
    }

    public var url: String { "http://127.0.0.1:\(port)" }

    public func requests() throws -> [Request] {
        try directory.read("log").split(separator: 0x0a).map {
            try JSONDecoder().decode(Request.self, from: Data($0))
        }
    }
}
