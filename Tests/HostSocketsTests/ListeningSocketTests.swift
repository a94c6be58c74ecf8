import CertificateProviding
import Foundation
import Glibc
import TestSupport
import Testing

@testable import HostSockets

@Suite struct ListeningSocketTests {
    private let directory: TemporaryDirectory
    private var path: String { directory["a.sock"] }

    init() throws { directory = try TemporaryDirectory() }

    @Test("The socket of a process that has ended is replaced; the end of its successor removes it")
    func aStaleSocket() throws {
        let descriptor = UnixSocket.make()
        #expect(UnixSocket.withAddress(path) { bind(descriptor, $0, $1) } == 0)
        close(descriptor)
        #expect(FileStatus(path) != nil)
        do {
            let socket = try ListeningSocket(at: path, setting: "--socket")
            #expect(FileStatus(path)?.permissions == 0o600)
            withExtendedLifetime(socket) {}
        }
        #expect(FileStatus(path) == nil)
    }

    @Test("The socket of a process that lives stays, and so does a file that is none")
    func aNameInUse() throws {
        let socket = try ListeningSocket(at: path, setting: "--socket")
        for _ in 0..<2 {
            let error = try #require(throws: ProviderError.self) { try ListeningSocket(at: path, setting: "--socket") }
            #expect(error.code == .alreadyExists && error.message.contains("--socket"), "\(error)")
        }
        let file = try directory.write("text".utf8, to: "file")
        let error = try #require(throws: ProviderError.self) { try ListeningSocket(at: file, setting: "--socket") }
        #expect(error.code == .alreadyExists && error.message.contains("not a socket"), "\(error)")
        #expect(try directory.read("file") == Array("text".utf8))
        withExtendedLifetime(socket) {}
    }

    @Test("The end of a process leaves the socket of its successor")
    func aSuccessorsSocket() throws {
        let first = try ListeningSocket(at: path, setting: "--socket")
        #expect(unlink(path) == 0)
        let second = try ListeningSocket(at: path, setting: "--socket")
        first.removeFile()
        #expect(FileStatus(path) != nil)
        second.removeFile()
        #expect(FileStatus(path) == nil)
    }

    @Test("A path that cannot be a socket's is refused")
    func refusedPaths() throws {
        for (path, code) in [
            (directory[String(repeating: "x", count: 120)], ProviderError.Code.configurationInvalid),
            ("", .configurationInvalid), (directory["none/requests.sock"], .storeWriteFailed),
        ] {
            let error = try #require(throws: ProviderError.self) { try ListeningSocket(at: path, setting: "--socket") }
            #expect(error.code == code && error.message.contains("--socket"), "\(error)")
        }
    }
}
