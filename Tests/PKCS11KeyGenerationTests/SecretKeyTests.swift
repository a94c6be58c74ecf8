import CertificateProviding
import Foundation
import Glibc
import PKCS11TokenProvider
import RemoteMDMProvider
import TestSupport
import Testing

/// The private key of an enrolment into a token is never in the process that enrols. The token is in another one, behind
/// p11-kit's server, and tells the test what it has made.
@Suite(.timeLimit(.minutes(5))) struct SecretKeyTests {
    private static let library = "/usr/lib/softhsm/libsofthsm2.so"

    @Test func theKeyIsNotInThisProcess() async throws {
        let folder = try TemporaryDirectory()
        let tokens = try startTokens(in: folder)
        let server = try await ESTServer.start("--auth", "basic")
        for (type, size) in [("p256", 32), ("rsa2048", 256)] {
            let identity = try await provider(server, type).getCertificate(NoUserInteraction())
            try server.verify(identity)
            for _ in 0..<3 { try await identity.verifyPossession() }

            let inverted = try folder.read("key")
            #expect(inverted.count == size)
            #expect(try Self.places(of: inverted) == 0, "\(type)")
            // One that is there would be found.
            let copy = inverted.map { ~$0 }
            #expect(try Self.places(of: inverted) > 0)
            withExtendedLifetime(copy) {}
        }
        withExtendedLifetime(tokens) {}
    }

    private func startTokens(in folder: TemporaryDirectory) throws -> SpawnedProcess {
        mkdir(folder["tokens"], 0o700)
        let configuration = try folder.write("directories.tokendir = \(folder["tokens"])\n".utf8, to: "c.conf")
        let variable = "SOFTHSM2_CONF=" + configuration
        try Subprocess.run([
            variable, "softhsm2-util", "--init-token", "--free", "--label", "apart", "--pin", EmptyTokens.pin,
            "--so-pin", EmptyTokens.soPIN,
        ])
        let source = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "extracting-module.c").path
        let module = folder["extracting.so"]
        try Subprocess.run(["cc", "-shared", "-fPIC", "-I/usr/include/p11-kit-1", "-o", module, source, "-ldl"])
        let socket = folder["socket"]
        let server = try SpawnedProcess([
            variable, "EXTRACTED_MODULE=" + Self.library, "EXTRACTED_KEY=" + folder["key"], "p11-kit", "server", "-f",
            "-n", socket, "-p", module, "pkcs11:token=apart",
        ])
        _ = try #require(server.readLine())
        setenv("P11_KIT_SERVER_ADDRESS", "unix:path=" + socket, 1)
        return server
    }

    private func provider(_ server: ESTServer, _ type: String) throws -> RemoteMDMProvider {
        let variables = ["PASSWORD": ESTServer.password, "PIN": EmptyTokens.pin]
        var environment = ProviderEnvironment.testing(variables: variables)
        environment.makeProvider = { _, parameters throws(CertificateProviderError) in
            let provider = PKCS11TokenProvider(environment: .testing(variables: variables))
            try provider.setParameters(parameters)
            return provider
        }
        let provider = RemoteMDMProvider(environment: environment)
        let parameters = [
            "protocol": "est", "url": "https://localhost:\(server.port)", "trust-anchors": server.directory["ca.pem"],
            "username": ESTServer.user, "password-source": "env:PASSWORD", "subject": "CN=\(type)", "key-type": type,
            "key": "pkcs11:token=apart?module-path=\(try P11KitClient.path())", "key-pin-source": "env:PIN",
        ]
        try provider.setParameters(ProviderParameters(parameters.mapValues { .init($0) }))
        return provider
    }

    /// How often a value is in this process's memory.
    /// - Parameter inverted: The value's octets, each inverted: the value itself would be found here.
    private static func places(of inverted: [UInt8]) throws -> Int {
        let memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC)
        guard memory >= 0, let first = inverted.first else { throw EmptyTokens.Failure(description: "no memory") }
        defer { close(memory) }
        let size = 1 << 20
        let window = UnsafeMutableRawBufferPointer.allocate(byteCount: size + inverted.count, alignment: 16)
        defer { window.deallocate() }
        guard let base = window.baseAddress else { return 0 }
        var count = 0
        for line in try Self.memoryMap().split(separator: "\n") {
            let fields = line.split(separator: " ")
            let ends = fields[0].split(separator: "-").compactMap { UInt($0, radix: 16) }
            guard ends.count == 2, fields[1].hasPrefix("rw") else { continue }
            var address = ends[0]
            while address < ends[1] {
                let wanted = min(size + inverted.count, Int(ends[1] - address))
                let got = pread(memory, base, wanted, off_t(bitPattern: address))
                guard got > 0 else { break }
                var start = 0
                while start <= got - inverted.count,
                    let found = memchr(base + start, Int32(~first), got - inverted.count - start + 1)
                {
                    let offset = found - base
                    if inverted.indices.allSatisfy({ window[offset + $0] == ~inverted[$0] }) { count += 1 }
                    start = offset + 1
                }
                address += UInt(size)
            }
        }
        return count
    }

    /// Read to its end, which its size does not tell.
    private static func memoryMap() throws -> String {
        let file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { throw EmptyTokens.Failure(description: "no memory map") }
        defer { close(file) }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        while case let count = read(file, &buffer, buffer.count), count > 0 { bytes += buffer.prefix(count) }
        return String(decoding: bytes, as: UTF8.self)
    }
}
