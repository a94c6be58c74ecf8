import Foundation
import Glibc
import Synchronization

/// An HTTP server on loopback, on a thread of its own. One request a connection.
final class LoopbackServer: Sendable {
    let port: UInt16
    private let listener: Int32
    private let bodies = Mutex<[String]>([])

    /// - Parameter answer: Gets the number of the request, from 0; `nil` closes the connection without an answer.
    convenience init(_ answer: @escaping @Sendable (Int) -> String?) throws {
        try self.init(answering: { number, connection in
            guard let text = answer(number) else { return }
            let response = "HTTP/1.1 200 OK\r\nContent-Length: \(text.utf8.count)\r\nConnection: close\r\n\r\n\(text)"
            _ = send(connection, response, response.utf8.count, Int32(MSG_NOSIGNAL))
        })
    }

    /// A server that sends the beginning of an answer, then a header field without an end, or nothing, until the client has gone.
    convenience init(isSilent: Bool) throws {
        try self.init(answering: { _, connection in
            if !isSilent { _ = send(connection, "HTTP/1.1 200 OK\r\nX-Drip: ", 25, Int32(MSG_NOSIGNAL)) }
            var client = pollfd(fd: connection, events: Int16(POLLIN), revents: 0)
            while poll(&client, 1, 20) == 0 {
                if !isSilent { _ = send(connection, "x", 1, Int32(MSG_NOSIGNAL)) }
            }
        })
    }

    /// - Parameter answer: Gets the number of the request, and the connection, which is closed after it.
    init(answering answer: @escaping @Sendable (Int, Int32) -> Void) throws {
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isListening = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(listener, $0, size) == 0 && listen(listener, 8) == 0 && getsockname(listener, $0, &size) == 0
            }
        }
        guard isListening else { throw POSIXError(.EADDRINUSE) }
        self.listener = listener
        port = UInt16(bigEndian: address.sin_port)
        Thread.detachNewThread { [weak self] in
            var count = 0
            while case let connection = accept(listener, nil, nil), connection >= 0 {
                let body = Self.body(connection)
                self?.bodies.withLock { $0.append(body) }
                answer(count, connection)
                count += 1
                close(connection)
            }
            close(listener)
        }
    }

    deinit { shutdown(listener, Int32(SHUT_RDWR)) }

    /// What was sent, in turn.
    var requests: [String] { bodies.withLock(\.self) }

    private static func body(_ connection: Int32) -> String {
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        while true {
            let text = String(decoding: bytes, as: UTF8.self)
            if let head = text.range(of: "\r\n\r\n") {
                let lines = text[..<head.lowerBound].lowercased().split(separator: "\r\n")
                let length = lines.first { $0.hasPrefix("content-length:") }?.dropFirst(15)
                let expected = Int(length?.trimmingCharacters(in: .whitespaces) ?? "") ?? 0
                if text[head.upperBound...].utf8.count >= expected { return String(text[head.upperBound...]) }
            }
            let count = recv(connection, &buffer, buffer.count, 0)
            guard count > 0 else { return text }
            bytes += buffer[..<count]
        }
    }
}
