import CertificateProviding
import Foundation
import Glibc
import IdentityStore
import TestSupport
import Testing
import X509

@testable import IdentityFiles

/// The files for other programs never become worse than they are.
@Suite struct IdentityExportTests {
    private let directory: TemporaryDirectory
    private let authority: TestAuthority

    init() throws { (directory, authority) = (try TemporaryDirectory(), try TestAuthority()) }

    private func export(_ formats: [FileSet.Format] = [.pem]) -> IdentityExport {
        var form = IdentityExport.Form()
        form.formats = formats
        form.hasKey = true
        return IdentityExport(directory["out"], form)
    }

    private func isCurrent(_ identity: Identity, _ formats: [FileSet.Format]) throws -> Bool {
        try export(formats).isCurrent(identity)
    }

    @Test(
        "An identity that peers refuse is not written in place of one that they accept, until it can be used",
        arguments: [[FileSet.Format.pem], [.der], [.der, .pem]])
    func aGoodSetStays(formats: [FileSet.Format]) throws {
        let good = try authority.issue("good")
        let start = Date(timeIntervalSinceNow: 864_000)
        let early = try authority.issue("early", notBefore: start, notAfter: start + 86_400)
        let forServers = try authority.issue("server", for: [.serverAuth])
        let export = export(formats)
        _ = try export.write(good)
        for (identity, code, words) in [
            (early, ProviderError.Code.pending, "is not valid before"),
            (forServers, .unsupportedAlgorithm, "which usage=client needs (it is for servers: set usage = server)"),
        ] {
            let error = try error { _ = try export.write(identity) }
            #expect(error.code == code && error.message.contains(words), "\(error)")
            #expect(error.message.contains("\(directory["out"])/current are unchanged"))
            #expect(try isCurrent(good, formats))
        }
        _ = try export.write(early, at: start + 60)
        #expect(try isCurrent(early, formats))
    }

    @Test("A chain with an expired CA is not written in place of a good one")
    func anExpiredIntermediate() throws {
        let other = try TestAuthority("Other", intermediateUntil: Date(timeIntervalSinceNow: -60))
        let (good, bad) = (try authority.issue("good"), try other.issue("bad"))
        _ = try export().write(good)
        #expect(try error { _ = try export().write(bad) }.message.contains("'CN=Other Intermediate"))
        #expect(try isCurrent(good, [.pem]))
        // On purpose.
        unlink(directory["out/current"])
        _ = try export().write(bad)
        _ = try export().write(bad)
        #expect(try isCurrent(bad, [.pem]))
        // One that peers refuse takes the place of another that they refuse.
        _ = try export().write(try other.issue("next"))
    }

    @Test("A leaf without its issuer is not written in place of a valid chain, and else with a warning")
    func aLeafWithoutItsIssuer() throws {
        let end = Date(timeIntervalSinceNow: 3600)
        let good = try authority.issue("good", notAfter: end)
        let next = try authority.issue("next")
        let leaf = try Identity(certificateChain: [next.certificate], key: next.key, provenance: next.provenance)
        _ = try export().write(good)
        let issuer = "'\(authority.intermediate.subject)'"
        let error = try error { _ = try export().write(leaf) }
        #expect(error.code == .malformedData && error.message.contains("without its issuer \(issuer)"), "\(error)")
        #expect(try isCurrent(good, [.pem]))
        var warnings: [String] = []
        _ = try export().write(leaf, at: end + 60) { warnings.append($0) }
        #expect(try isCurrent(leaf, [.pem]))
        #expect(warnings.count == 1 && warnings[0].contains("without its issuer \(issuer)"), "\(warnings)")
        // A move to the root, and back.
        _ = try export().write(good)
        let byRoot = try authority.issue("by the root", isByRoot: true)
        _ = try export().write(byRoot) { warnings.append($0) }
        #expect(try isCurrent(byRoot, [.pem]) && warnings.count == 1)
    }

    @Test("A group that is demanded is that of the files, whatever the directory hands on (setgid)")
    func aDirectoryThatHandsItsGroupOn() throws {
        guard geteuid() == 0 else { return }
        mkdir(directory["out"], 0o755)
        #expect(chown(directory["out"], 0, 4711) == 0 && chmod(directory["out"], 0o2755) == 0)
        var form = IdentityExport.Form()
        form.hasKey = true
        form.permissions = FilePermissions(group: getegid(), keyMode: 0o640)
        let export = IdentityExport(directory["out"], form)
        let one = try authority.issue("one")
        func group(_ name: String) throws -> UInt32 {
            let attributes = try FileManager.default.attributesOfItem(atPath: directory["out/current/\(name)"])
            return try #require((attributes[.groupOwnerAccountID] as? NSNumber)?.uint32Value)
        }
        _ = try export.write(one)
        #expect(try group("key.pem") == getegid() && group("chain.pem") == getegid() && export.isCurrent(one))
        let set = try FileManager.default.destinationOfSymbolicLink(atPath: directory["out/current"])
        _ = try export.write(one)
        #expect(try FileManager.default.destinationOfSymbolicLink(atPath: directory["out/current"]) == set)
        // Without a demand, the directory decides.
        form.permissions = FilePermissions()
        unlink(directory["out/current"])
        _ = try IdentityExport(directory["out"], form).write(one)
        #expect(try group("key.pem") == 4711)
    }

    @Test("An identity of another usage is written, since the configuration wants it")
    func anotherUsage() throws {
        let forClients = try authority.issue("client", for: [.clientAuth], usage: .client)
        let forServers = try authority.issue("server", for: [.serverAuth], usage: .server)
        for identity in [forClients, forServers, forClients] {
            _ = try export().write(identity)
            #expect(try isCurrent(identity, [.pem]))
        }
        // Neither fits the usage: the last one is written.
        _ = try export().write(try authority.issue("mail", for: [.emailProtection], usage: .server))
    }

    @Test("The trust bundle stays while the identity comes with none, with a warning")
    func theTrustBundleStays() throws {
        let (one, two) = (try authority.issue("one"), try authority.issue("two"))
        let whole = try Identity(
            certificateChain: one.certificateChain, key: one.key, trust: TrustBundle([authority.root]),
            provenance: one.provenance)
        var warnings: [String] = []
        _ = try export().write(whole) { warnings.append($0) }
        let bundle = try directory.read("out/current/ca.pem")
        #expect(!bundle.isEmpty && warnings.isEmpty)
        for identity in [one, two] {
            let paths = try export().write(identity) { warnings.append($0) }
            #expect(paths.contains(directory["out/current/ca.pem"]))
            #expect(try directory.read("out/current/ca.pem") == bundle && isCurrent(identity, [.pem]))
        }
        #expect(warnings.count == 2 && warnings.allSatisfy { $0.contains("keeps the CA certificates of before") })
        unlink(directory["out/current/ca.pem"])
        _ = try export().write(two) { warnings.append($0) }
        #expect(warnings.count == 2)
    }

    @Test("The directory can be entered by others, whatever the umask is")
    func theUmask() throws {
        let set = try FileSet(try authority.issue("one"), exportingKey: true)
        var files = FaultyDisk().fileSystem
        let make = files.makeDirectory
        files.makeDirectory = { make($0, $1, $2 & ~0o077) }
        _ = try FileSetDirectory(path: directory["out"], files: files).write(set)
        let attributes = try FileManager.default.attributesOfItem(atPath: directory["out"])
        #expect((attributes[.posixPermissions] as? NSNumber)?.uint32Value == 0o755)
    }
}
