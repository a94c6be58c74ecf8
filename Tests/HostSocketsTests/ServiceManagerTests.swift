import CertificateProviding
import Glibc
import TestSupport
import Testing

@testable import HostSockets

/// Each test has descriptors of the process.
@Suite(.serialized) struct ServiceManagerTests {
    private static let first: Int32 = 700
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    /// Sockets at descriptors that follow each other, as the service manager has them; one that does not listen is none.
    private func pass(_ kinds: [Bool]) throws {
        for (index, listens) in kinds.enumerated() {
            let socket = UnixSocket.make()
            defer { close(socket) }
            let bound = UnixSocket.withAddress(directory["\(index)"]) { bind(socket, $0, $1) }
            try #require(bound == 0 && (!listens || listen(socket, 1) == 0))
            try #require(dup2(socket, Self.first + Int32(index)) == Self.first + Int32(index))
        }
    }

    private func sockets(
        _ count: String, _ names: String?, process: pid_t = getpid()
    ) throws -> [ServiceManager.PassedSocket] {
        let variables = ["LISTEN_PID": "\(process)", "LISTEN_FDS": count, "LISTEN_FDNAMES": names]
        return try ServiceManager.sockets({ variables[$0] ?? nil }, first: Self.first)
    }

    @Test("Several sockets come with their names, or as unknown; no program inherits them")
    func names() throws {
        for names in ["pkcs11:credentials:pkcs11", nil] {
            try pass([true, true, true])
            let sockets = try sockets("3", names)
            #expect(
                sockets.map(\.name) == names?.split(separator: ":").map(String.init) ?? [
                    "unknown", "unknown", "unknown",
                ])
            #expect(sockets.map(\.socket.descriptor) == [Self.first, Self.first + 1, Self.first + 2])
            #expect(sockets.allSatisfy { fcntl($0.socket.descriptor, F_GETFD) == FD_CLOEXEC })
            for index in 0..<3 { #expect(unlink(directory["\(index)"]) == 0) }
        }
        #expect(try sockets("0", nil).isEmpty && sockets("2", nil, process: 1).isEmpty)
    }

    @Test(
        "Another number of names, a number that cannot be, and a socket that does not listen are refused",
        arguments: [("2", "a"), ("2", "a:b:c"), ("-1", nil), ("x", nil), ("2147483647", nil), ("2", "a:b")])
    func refused(count: String, names: String?) throws {
        try pass([true, false])
        let error = try #require(throws: ProviderError.self) { try sockets(count, names) }
        #expect(error.code == .configurationInvalid, "\(error)")
    }
}
