import Foundation
import Glibc
import TestSupport
import Testing

/// A module for smart card readers, which shows no reader where the service for them does not run.
@Suite(.enabled(if: PCSC.isInstalled, "the PC/SC library is not installed")) struct ReaderServiceTests {
    private let sandbox: Sandbox
    private let library: String

    init() throws {
        library = try FaultyModuleLibrary.path()
        sandbox = try Sandbox()
    }

    private var socket: String { sandbox.path + "/pcscd.comm" }

    private func certprov(_ command: String, usesPCSC: Bool = true) throws -> Output {
        var variables = ["PCSCLITE_CSOCK_NAME": socket]
        if usesPCSC { variables["FAULTY_MODULE_PCSC"] = "1" }
        return try sandbox.certprov(
            [command, "--provider", "pkcs11", "--set", "module-path=\(library)"], with: variables)
    }

    @Test(arguments: ["list", "fetch"], [false, true]) func theServiceIsDown(command: String, isLeft: Bool) throws {
        // A service that was killed leaves its socket.
        if isLeft { close(try Self.listen(at: socket)) }
        let output = try certprov(command).expect(69, stderr: "pcscd")
        #expect(output.stderr.contains("[tokenNotPresent]") && output.stderr.contains(socket), "\(output)")
    }

    @Test func theServiceRunsAndHasNoReader() throws {
        let service = try Self.listen(at: socket)
        defer { close(service) }
        let output = try certprov("list")
        #expect(output.status == 0 && !output.stderr.contains("pcscd"), "\(output)")
        #expect(try certprov("fetch").status == 69)
    }

    /// A module with slots of its own, and without a card in them.
    @Test func anotherModuleNeedsNoService() throws {
        let output = try certprov("list", usesPCSC: false)
        #expect(output.status == 0 && !output.stderr.contains("pcscd"), "\(output)")
        let fetched = try certprov("fetch", usesPCSC: false)
        #expect(fetched.status == 69 && !fetched.stderr.contains("pcscd"), "\(fetched)")
    }

    private static func listen(at path: String) throws -> Int32 {
        let service = Glibc.socket(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: Array(path.utf8).prefix($0.count - 1)) }
        let isBound = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(service, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard isBound == 0, Glibc.listen(service, 8) == 0 else {
            throw Subprocess.Failure(description: "listen: \(errno)")
        }
        return service
    }
}

private enum PCSC {
    static let isInstalled = dlopen("libpcsclite.so.1", RTLD_LAZY) != nil
}
