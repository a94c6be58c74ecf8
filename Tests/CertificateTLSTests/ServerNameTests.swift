import CertificateProviding
import Foundation
import NIOSSL
import TestSupport
import Testing
import X509

@testable import CertificateTLS

/// Which certificates are for the name that was asked for.
@Suite(.timeLimit(.minutes(20))) struct ServerNameTests {
    @Test(
        "A certificate is valid for its DNS names, and for one label in place of a wildcard",
        arguments: [
            ("host.example", ["host.example"], true), ("HOST.example.", ["host.EXAMPLE"], true),
            ("host.example", ["other.example", "host.example"], true), ("localhost", ["localhost"], true),
            ("host.example", ["*.example.org"], false), ("a.host.example", ["*.host.example"], true),
            ("b.a.host.example", ["*.host.example"], false), ("host.example", ["*.host.example"], false),
            (".host.example", ["*.host.example"], false), ("host.example", ["*.example"], false),
            ("a.host.example", ["a*.host.example"], false), ("a.host.example", ["a.*.example"], false),
            ("host.example", ["*"], false), ("localhost", ["*"], false), ("", [""], false), ("host.example", [], false),
            // The Kelvin sign, which is a K in lower case.
            ("\u{212a}.host.example", ["k.host.example"], false),
        ])
    func matches(name: String, dnsNames: [String], isValid: Bool) throws {
        let leaf = try authority.get().issue(name, dnsNames: dnsNames).certificate
        #expect(leaf.isValid(forServerName: name) == isValid)
    }

    @Test(
        "A server's certificate has the purpose serverAuth, if it has any: anyExtendedKeyUsage alone permits no side of TLS",
        arguments: [
            ([ExtendedKeyUsage.Usage.serverAuth], true), ([.any], false), ([.any, .serverAuth], true),
            ([.clientAuth], false), ([.clientAuth, .serverAuth], true),
        ])
    func purposes(purposes: [ExtendedKeyUsage.Usage], isValid: Bool) async throws {
        let authority = try authority.get()
        let server = try authority.issue("server", for: purposes, usage: .server)
        let trust = ServerTrust(trustAnchors: authority.anchors)
        do throws(ProviderError) {
            try await trust.verify(server.certificateChain, for: "localhost", at: Date())
            #expect(isValid)
        } catch {
            #expect(!isValid && error.code == .serverNotTrusted, "\(error)")
            #expect(
                error.message.contains("its extended key usage")
                    || error.message.contains("extended key usage serverAuth"))
        }
    }

    private func probe(_ server: Identity, asking name: String?) async throws -> ConnectionReport {
        let configuration = try authority.get().serverConfiguration(server)
        return try await withEventLoops { group in
            try await withServer(configuration, on: group) { port in
                var probe = try makeProbe(port: port, presenting: authority.get().issue("client"))
                probe.serverName = name
                return try await probe.run(on: group)
            }
        }
    }

    private static let loopback: [UInt8] = [127, 0, 0, 1]

    @Test func aCertificateForTheAddressIsNotForTheName() async throws {
        let server = try authority.get().issue("server", dnsNames: [], addresses: [Self.loopback])
        await expect(.serverNotTrusted, "is not valid for 'bank.example'") {
            try await probe(server, asking: "bank.example")
        }
        #expect(try await probe(server, asking: nil).clientAuthentication == .completed)
    }

    @Test("A common name does not make a certificate valid for the server name")
    func aCommonNameIsNoName() async throws {
        let server = try authority.get().issue("bank.example", dnsNames: [])
        await expect(.serverNotTrusted, "is not valid for 'bank.example'") {
            try await probe(server, asking: "bank.example")
        }
    }

    @Test func aWildcardIsForOneLabel() async throws {
        let server = try authority.get().issue("server", dnsNames: ["*.bank.example"])
        #expect(try await probe(server, asking: "www.bank.example").clientAuthentication == .completed)
        await expect(.serverNotTrusted, "is not valid for 'bank.example'") {
            try await probe(server, asking: "bank.example")
        }
    }

    @Test("A host name may have an underscore")
    func anUnderscoreIsPartOfAName() async throws {
        let server = try authority.get().issue("server", dnsNames: ["my_host.example"])
        #expect(try await probe(server, asking: "my_host.example").clientAuthentication == .completed)
    }

    @Test func aCertificateForANameIsNotForTheAddress() async throws {
        let server = try authority.get().issue("server", dnsNames: ["localhost"])
        await expect(.serverNotTrusted, "is not valid for '127.0.0.1', but for dns:localhost; connect by a name") {
            try await probe(server, asking: nil)
        }
    }
}
