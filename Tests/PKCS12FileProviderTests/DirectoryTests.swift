import CertificateProviding
import Glibc
import PKCS12FileProvider
import TestSupport
import Testing

/// A directory as `path`.
@Suite struct DirectoryTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    private let builder = PFXBuilder()

    private func file(_ identity: Identity, name: String?) throws -> [UInt8] {
        builder.file(try builder.bags(of: identity, name: name))
    }

    @Test func readsItsFilesInOrder() async throws {
        let identities = try (0..<5).map { try Samples.identity("\($0)") }
        try directory.write(try file(identities[1], name: "beta"), to: "b.PFX")
        try directory.write(try file(identities[0], name: "alpha"), to: "a.p12")
        for hidden in [".hidden.p12", "a.p12.bak", "p12", "a.pem", "a.p12~"] {
            try directory.write(try file(identities[2], name: "ignored"), to: hidden)
        }
        mkdir(directory["folder"], 0o700)
        try directory.write(try file(identities[3], name: "below"), to: "folder/c.p12")
        for path in [directory.path, directory.path + "/"] {
            let list = try await PKCS12FileProvider.testing(path).listIdentities()
            #expect(list.identities.map(\.alias) == ["alpha", "beta"])
            #expect(list.failures.isEmpty)
            let chosen = try await PKCS12FileProvider.testing(path, alias: "beta").fetch()
            #expect(chosen.certificate == identities[1].certificate)
            #expect(chosen.provenance.source == directory["b.PFX"])
        }
    }

    @Test func aBrokenFileHidesNoOther() async throws {
        let good = try Samples.identity("good")
        try directory.write(try file(good, name: "good"), to: "b.p12")
        try directory.write([1, 2, 3], to: "a.p12")
        mkdir(directory["c.p12"], 0o700)
        let provider = try PKCS12FileProvider.testing(directory.path)
        let list = await provider.listIdentities()
        #expect(list.identities.map(\.alias) == ["good"])
        #expect(list.failures.map(\.code) == [.malformedData, .configurationInvalid])
        #expect(list.failures[0].message.hasPrefix(directory["a.p12"]))
        // The broken file might hold another identity: only a name removes the doubt.
        #expect(try await provider.failure().code == .malformedData)
        let named = try PKCS12FileProvider.testing(directory.path, alias: "good")
        #expect(try await named.fetch().certificate == good.certificate)
        #expect(try await PKCS12FileProvider.testing(directory.path, alias: "bad").failure().code == .malformedData)
    }

    @Test func aNameThatIsNotTextHidesNoOther() async throws {
        let good = try Samples.identity("good")
        try directory.write(try file(good, name: "good"), to: "good.p12")
        let bytes: [CChar] =
            (directory.path + "/").utf8.map { CChar(bitPattern: $0) } + [-23] + [0x2e, 0x70, 0x31, 0x32, 0]
        #expect(rename(directory["good.p12"], bytes) == 0)
        try directory.write(try file(good, name: "good"), to: "good.p12")
        let list = try await PKCS12FileProvider.testing(directory.path).listIdentities()
        #expect(list.identities.map(\.alias) == ["good"])
        #expect(list.failures.map(\.code) == [.configurationInvalid])
        #expect(list.failures[0].message.contains("\u{fffd}.p12: The file's name is not UTF-8"))
        // It might hold another identity.
        #expect(try await PKCS12FileProvider.testing(directory.path).failure().code == .configurationInvalid)
        unlink(bytes)
    }

    @Test("A directory without a PKCS#12 file is notFound")
    func nothingInIt() async throws {
        let provider = try PKCS12FileProvider.testing(directory.path)
        let error = try await provider.failure()
        #expect(error.code == .notFound && error.message.contains("holds no .p12 or .pfx file"))
        #expect(await provider.listIdentities().failures.count == 1)
    }

    @Test func theNameOfAFileIsItsAlias() async throws {
        let identities = [try Samples.identity("1"), try Samples.identity("2")]
        try directory.write(try file(identities[0], name: nil), to: "one.p12")
        try directory.write(try file(identities[1], name: nil), to: "two.x.p12")
        let chosen = try await PKCS12FileProvider.testing(directory.path, alias: "two.x").fetch()
        #expect(chosen.certificate == identities[1].certificate)
    }
}
