import CertificateProviding
import Foundation
import Synchronization
import Testing

@testable import SplitKeySigning

/// What is nowhere to be found after an enrolment, logins, signatures and refused PINs.
struct SecretsTests {
    @Test("PINs, z, the shares and T + pin·A are in no record, no file and no message; T is, sealed")
    func nowhere() async throws {
        let test = try TestHost()
        let shares = Mutex<[String]>([])
        let servers = test.servers
        servers.answer { [unowned servers] recorded throws(ProviderError) in
            guard recorded.path == "/rps/v2/dvsregister" else {
                if recorded.path.hasPrefix("/04") { shares.withLock { $0.append(String(recorded.path.dropFirst())) } }
                return nil
            }
            let text = try servers.registration(recorded)
            let members = try FakeServers.members(Array(text.utf8))
            shares.withLock { $0.append(members["dvsClientSecretShare"] ?? "") }
            return (200, text)
        }
        let (login, signing) = ("73918264", "58063917")
        test.person.types(signing, as: .signing)
        let host = test.host()
        try await host.enrolLoginKey(code: SecretBytes(utf8: "code"))
        try await host.enrolSigningKey(of: TestHost.user)
        _ = try await host.sign([1], as: TestHost.user) { _ in true }
        let wrong = try test.file("pin", "90417253")
        var messages: [String] = []
        for _ in 0..<2 {
            let error = await ProviderError.of { () throws(ProviderError) in
                try await test.host([.signing: wrong], isService: true).sign([1], as: TestHost.user) { _ in true }
            }
            messages.append("\(String(describing: error))")
        }
        var secrets: [(String, [UInt8])] = []
        for pin in [login, signing, "90417253"] {
            secrets.append(("PIN", Array(pin.utf8)))
            let number = try #require(UInt32(pin))
            secrets.append(("PIN's number", withUnsafeBytes(of: number.bigEndian, Array.init)))
        }
        for z in servers.pairing.factors.withLock({ Array($0.values) }) {
            secrets.append(("z", try z.bytes(count: 32).withUnsafeBytes { Array($0) }))
        }
        for share in shares.withLock(\.self) { secrets.append(("share", try hex(share))) }
        #expect(shares.withLock(\.count) == 4 && secrets.count == 12)
        let group = try G1Group(.bls12381)
        var tokens: [[UInt8]] = []
        for (scope, pin) in [(MPinID.Scope.login, login), (.signing, signing)] {
            let key = try host.key(of: TestHost.user, scope)
            tokens.append(key.token.withUnsafeBytes { Array($0) })
            let a = try SplitKey.point(of: key.identity, key.publicKey, in: group)
            let whole = try group.point(tokens[tokens.count - 1], named: "T").plus(
                try a.times(try PIN(SecretBytes(utf8: pin)).scalar()))
            secrets.append(("T + pin·A", try whole.bytes()))
        }
        var places: [(String, [UInt8])] = messages.map { ("message", Array($0.utf8)) }
        for name in try test.storage.recordNames() {
            places.append((name, try #require(try test.storage.record(named: name)).withUnsafeBytes { Array($0) }))
        }
        #expect(places.contains { $0.0.hasPrefix("pin-") } && places.contains { $0.0.hasPrefix("access-") })
        let store = test.directory.appending(path: "store")
        let files = try #require(FileManager.default.enumerator(at: store, includingPropertiesForKeys: nil))
        var sealed: [[UInt8]] = []
        for case let file as URL in files {
            guard let content = try? Data(contentsOf: file) else { continue }
            sealed.append(Array(content))
            places.append((file.path, Array(content)))
        }
        #expect(sealed.count >= 4)
        for (place, content) in places {
            for (name, secret) in secrets {
                // Four bytes are somewhere among random ones by chance: as text only.
                for form in Self.forms(secret) where form.count > 4 {
                    #expect(!content.contains(form), "\(name) in \(place)")
                }
            }
        }
        // The search finds what is there.
        for token in tokens {
            #expect(places.contains { $0.1.contains(Array(DisplayText.hexadecimal(token).utf8)) })
            #expect(sealed.allSatisfy { content in Self.forms(token).allSatisfy { !content.contains($0) } })
        }
    }

    /// Raw, hexadecimal in both cases, base64 at each of three offsets.
    private static func forms(_ secret: [UInt8]) -> [[UInt8]] {
        let digits = DisplayText.hexadecimal(secret)
        var forms = [secret, Array(digits.utf8), Array(digits.uppercased().utf8)]
        for offset in 0..<3 {
            let whole = Data([UInt8](repeating: 0, count: offset) + secret).base64EncodedString()
            // The characters at the ends are of neighbours, too.
            forms.append(Array(whole.dropFirst(offset == 0 ? 0 : offset + 1).dropLast(4).utf8))
        }
        return forms
    }
}
