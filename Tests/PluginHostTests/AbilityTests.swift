import CertificateProviding
import Foundation
import TestSupport
import Testing

@testable import PluginHost
@testable import PluginProtocol

/// Each ability of the contracts has its place in the plugin protocol, and comes through a plugin.
struct AbilityTests {
    /// The optional properties of a public protocol, without those that are plain values.
    private static func abilities(of contract: String) throws -> Set<String> {
        let interface = try Transcript.text("Documentation/Interfaces/CertificateProviding.txt")
        let pattern = try Regex(
            "(?m)^var \(contract)\\.(\\w+): (?:\\(any \\w+\\)|KeyReference|WrappedKey)\\? ",
            as: (Substring, Substring).self)
        return Set(interface.matches(of: pattern).map { String($0.1) })
    }

    /// The abilities of a proxy whose plugin names everything in its description.
    private static let ofProvider: [String: @Sendable (any CertificateProvider) -> Bool] = [
        "listing": { $0.listing != nil }, "deletions": { $0.deletions != nil },
        "replacement": { $0.replacement != nil }, "updates": { $0.updates != nil },
        "advice": { $0.advice != nil }, "revocation": { $0.revocation != nil }, "keyStore": { $0.keyStore != nil },
    ]

    private static let ofKey: [String: @Sendable (any IdentityKey) -> Bool] = [
        "decrypter": { $0.decrypter != nil }, "digestSigner": { $0.digestSigner != nil },
        "callbackSigner": { $0.callbackSigner != nil }, "attester": { $0.attester != nil },
        "wrapped": { $0.wrapped?.label == "TSS2 PRIVATE KEY" },
        // A key that can be exported leaves the plugin as it is, and one of the host is the host's.
        "exporter": { $0.exporter == nil }, "hostKey": { $0.hostKey == nil },
    ]

    @Test func noAbilityOfAProviderIsLost() async throws {
        #expect(try Self.abilities(of: "CertificateProvider") == Set(Self.ofProvider.keys))
        let zoo = try Zoo("has a key store")
        let provider = try zoo.provider()
        for (name, isThere) in Self.ofProvider { #expect(isThere(provider), "\(name)") }
        await provider.shutdown()
    }

    @Test func noAbilityOfAKeyIsLost() throws {
        #expect(try Self.abilities(of: "IdentityKey") == Set(Self.ofKey.keys))
        let wire = WireKey(
            id: "a", publicKey: Data(try SoftwareKey.generate(.rsa2048, location: .file).publicKey.derRepresentation),
            schemes: ["rsa_pss_rsae_sha256"], digestSchemes: ["rsa_pss_rsae_sha256"], decryptionSchemes: ["RSA-OAEP"],
            attests: true, wrapped: WrappedKey(label: "TSS2 PRIVATE KEY", der: SecretBytes(copying: [1])))
        let key = try RemoteKey(wire, NoPeer(), knownTo: nil) { _, _ in nil }
        for (name, isThere) in Self.ofKey { #expect(isThere(key), "\(name)") }
    }

    /// A requirement with a default would not be missed by the compiler.
    @Test(arguments: [
        ("CertificateProvider", ["PluginHost/PluginProvider.swift"]),
        ("KeyStore", ["PluginProtocol/RemoteKeyStore.swift"]),
        ("IdentityKey", ["PluginProtocol/RemoteKeyStore.swift"]),
    ]) func noDefaultIsTaken(contract: String, proxy: [String]) throws {
        let lines = try Transcript.text("Documentation/Interfaces/CertificateProviding.txt").split(separator: "\n")
        let requirements = Set(lines.map(String.init))
        let defaults = lines.filter { line in
            line.hasSuffix(" // default") && requirements.contains(String(line.dropLast(" // default".count)))
        }.compactMap { $0.firstMatch(of: /(?:var|func) (\w+)\.(\w+)/) }.filter { $0.1 == contract }.map { String($0.2) }
        #expect(defaults.count >= 3)
        let source = try proxy.map { try Transcript.text("Sources/\($0)") }.joined()
        // CallbackSigning signs the message, and a key that can be exported leaves the plugin as it is.
        for name in Set(defaults).subtracting(contract == "IdentityKey" ? ["signature", "exporter"] : []) {
            #expect(source.contains(try Regex("(?:var|let|func) \(name)\\b")), "\(contract).\(name)")
        }
    }
}

/// The source of a plugin that is not running.
private struct NoPeer: PeerSource {
    var livePeer: Peer? { nil }
    func peer() throws(ProviderError) -> Peer { throw ProviderError(.unavailable, "No plugin is running.") }
    var timeout: Duration { .seconds(1) }
    let executor = BlockingExecutor.threads()
    func describing(_ error: ProviderError) -> ProviderError { error }
}
