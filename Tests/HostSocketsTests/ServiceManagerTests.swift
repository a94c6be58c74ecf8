import CertificateProviding
import Glibc
import TestSupport
import Testing

@testable import HostSockets

@Suite struct ServiceManagerTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    /// Sockets at free descriptors that follow each other, as the service manager has them. Returns the first.
    private func pass(_ kinds: [Bool]) throws -> Int32 {
        let sockets = try kinds.enumerated().map { index, listens in
            let socket = UnixSocket.make()
            let bound = UnixSocket.withAddress(directory["\(index)"]) { bind(socket, $0, $1) }
            try #require(bound == 0 && (!listens || listen(socket, 1) == 0))
            return socket
        }
        defer { for socket in sockets { close(socket) } }
        var start: Int32 = 500
        while true {
            var passed: [Int32] = []
            for socket in sockets { passed.append(fcntl(socket, F_DUPFD, passed.last.map { $0 + 1 } ?? start)) }
            try #require(!passed.contains(-1))
            if passed == Array(passed[0]..<passed[0] + Int32(passed.count)) { return passed[0] }
            for descriptor in passed { close(descriptor) }
            // Another test has one in between: behind it.
            start = passed[passed.count - 1]
        }
    }

    private func sockets(
        _ count: String, _ names: String?, process: pid_t = getpid(), first: Int32 = 3
    ) throws -> [ServiceManager.PassedSocket] {
        let variables = ["LISTEN_PID": "\(process)", "LISTEN_FDS": count, "LISTEN_FDNAMES": names]
        return try ServiceManager.sockets({ variables[$0] ?? nil }, first: first)
    }

    @Test("Several sockets come with their names, or as unknown; no program inherits them")
    func names() throws {
        for names in ["pkcs11:credentials:pkcs11", nil] {
            let first = try pass([true, true, true])
            let sockets = try sockets("3", names, first: first)
            #expect(
                sockets.map(\.name) == names?.split(separator: ":").map(String.init) ?? [
                    "unknown", "unknown", "unknown",
                ])
            #expect(sockets.map(\.socket.descriptor) == [first, first + 1, first + 2])
            #expect(sockets.allSatisfy { fcntl($0.socket.descriptor, F_GETFD) == FD_CLOEXEC })
            for index in 0..<3 { #expect(unlink(directory["\(index)"]) == 0) }
        }
        #expect(try sockets("0", nil).isEmpty && sockets("2", nil, process: 1).isEmpty)
    }

    @Test(
        "Another number of names, a number that cannot be, and a socket that does not listen are refused",
        arguments: [("2", "a"), ("2", "a:b:c"), ("-1", nil), ("x", nil), ("2147483647", nil), ("2", "a:b")])
    func refused(count: String, names: String?) throws {
        let first = try pass([true, false])
        let error = try #require(throws: ProviderError.self) { try sockets(count, names, first: first) }
        #expect(error.code == .configurationInvalid, "\(error)")
    }
}
