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

    @Test(
        "Who locks the directory, as any reader of it can, keeps no socket from being made; a process that makes one does"
    )
    func locks() throws {
        func lock(_ path: String, _ flags: Int32) -> Int32 {
            let descriptor = open(path, flags | O_CLOEXEC, 0o600)
            #expect(flock(descriptor, LOCK_EX | LOCK_NB) == 0)
            return descriptor
        }
        let reader = lock(directory.path, O_RDONLY | O_DIRECTORY)
        defer { close(reader) }
        let socket = try ListeningSocket(at: path, setting: "--socket")
        socket.removeFile()
        #expect(FileStatus(path + ".lock") == nil)
        let maker = lock(path + ".lock", O_RDWR | O_CREAT)
        let error = try #require(throws: ProviderError.self) { try ListeningSocket(at: path, setting: "--socket") }
        #expect(error.reason == .busy && FileStatus(path) == nil, "\(error)")
        close(maker)
        // A killed process leaves the file, and no lock.
        let second = try ListeningSocket(at: path, setting: "--socket")
        #expect(FileStatus(path + ".lock") == nil)
        withExtendedLifetime(second) {}
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
