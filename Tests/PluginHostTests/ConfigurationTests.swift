import CertificateProviding
import Foundation
import TestSupport
import Testing

@testable import PluginHost

/// A configuration of a plugin does not see the entries, records and leases of another one.
@Suite struct ConfigurationTests {
    private let plugin = InMemoryStorage()

    private func storage(_ values: [String: String]) -> ConfigurationStorage {
        ConfigurationStorage(plugin, distinguishedBy: values)
    }

    @Test func eachHasEntriesRecordsAndLeasesOfItsOwn() throws {
        let (web, alice) = (storage(["role": "web"]), storage(["role": "alice"]))
        let chain = try TestAuthority().issue("web").certificateChain
        try web.setEntry(StoredIdentity(certificateChain: chain, privateKey: nil), named: "identity")
        try web.updateRecord(named: "state") { _ in SecretBytes(utf8: "web") }
        #expect(try alice.entry(named: "identity") == nil && alice.record(named: "state") == nil)
        #expect(try alice.entryNames().isEmpty && alice.recordNames().isEmpty)
        let lease = try #require(try web.leaseRecord(named: "state"))
        defer { withExtendedLifetime(lease) {} }
        #expect(try storage(["role": "web"]).leaseRecord(named: "state") == nil)
        #expect(try alice.leaseRecord(named: "state") != nil)
        try alice.removeEntry(named: "identity")
        try alice.removeRecord(named: "state")
        let later = storage(["role": "web"])
        #expect(try later.entryNames() == ["identity"] && later.recordNames() == ["state"])
        #expect(try later.entry(named: "identity")?.certificateChain == chain)
        #expect(try later.record(named: "state") == SecretBytes(utf8: "web"))
    }

    @Test func allHaveOnePartInCommon() throws {
        let (web, alice) = (storage(["role": "web"]), storage(["role": "alice"]))
        try web.shared.updateRecord(named: "rejected") { _ in SecretBytes(utf8: "x") }
        #expect(try alice.shared.record(named: "rejected") == SecretBytes(utf8: "x"))
        #expect(try web.recordNames().isEmpty && alice.record(named: "rejected") == nil)
    }

    @Test func valuesAreToldApart() throws {
        let all: [[String: String]] = [
            [:], ["a": ""], ["a": "1"], ["a": "1", "b": "2"], ["a": "1\0b=1:2"], ["b": "2"], ["a": "2"],
        ]
        for (number, values) in all.enumerated() {
            try storage(values).updateRecord(named: "state") { _ in SecretBytes(utf8: "\(number)") }
        }
        #expect(try plugin.recordNames().count == all.count)
        for (number, values) in all.enumerated() {
            #expect(try storage(values).record(named: "state") == SecretBytes(utf8: "\(number)"))
        }
    }
}

/// As ``ConfigurationTests``, with the processes of plugins.
@Suite(.enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(20))) struct ConfiguredPluginTests {
    private let directory: TemporaryDirectory
    private let storage = InMemoryStorage()
    private let host: PluginHost

    init() throws {
        directory = try TemporaryDirectory()
        host = PluginHost(PluginDirectories([directory.path]), logger: ProviderEnvironment.testing().logger)
    }

    private func provider(
        _ id: ProviderID, _ values: [String: String], variables: [String: String] = [:]
    ) throws -> any CertificateProvider {
        let all = values.merging(["timeout": "300"]) { own, _ in own }
        let parameters = ProviderParameters(all.mapValues { .init($0) })
        let descriptor = try #require(try host.provider(id, parameters))
        return try descriptor.makeProvider(.testing(storage: storage, variables: variables), parameters)
    }

    /// Installs a plugin that writes a record when it is asked for an identity.
    ///
    /// - Parameter more: Of its parameters, in JSON.
    private func installWriter(_ more: String = "") throws {
        let kinds = [
            ("role", "string"), ("directory", "path"), ("url", "server-url"), ("uri", "string"), ("flag", "boolean"),
            ("password-source", "secret-source"), ("timeout", "string"), ("connect-timeout", "string"),
            ("usage", "string"), ("trust-anchors", "certificate-file"), ("ca", "trust-anchors"), ("pin", "pins"),
        ]
        let parameters = kinds.map { #"{"name":"\#($0)","type":"\#($1)","summary":"A parameter."}"# } + [more]
        try directory.install(
            "certprov-plugin-writer",
            """
            #!/usr/bin/env python3
            import json, sys
            parameters = json.loads('[\(parameters.filter { !$0.isEmpty }.joined(separator: ","))]')
            provider = {"displayName": "Writer", "summary": "Writes a record.", "parameters": parameters}
            record = {"name": "state", "value": {"secret": "eA=="}}
            for line in sys.stdin:
                message = json.loads(line)
                if "request" not in message:
                    continue
                reply = {"result": {}}
                if message["request"] == "hello":
                    reply = {"result": {"version": 1, "id": "writer", "provider": provider}}
                if message["request"] == "obtain":
                    print(json.dumps({"id": 1, "request": "record.write", "params": record}), flush=True)
                    sys.stdin.readline()
                    reply = {"error": {"code": "pending", "message": "Come back later."}}
                print(json.dumps({"id": message["id"], **reply}), flush=True)

            """.utf8)
    }

    private func write(_ values: [String: String]) async throws -> Set<String> {
        let provider = try provider(ProviderID("writer"), values, variables: ["A": "a", "B": "b"])
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .pending)
        await provider.shutdown()
        return Set(try storage.recordNames())
    }

    private static let usual = [
        "role": "web", "directory": "/a", "url": "https://alice:secret@example.com/x", "flag": "true",
        "uri": "pkcs11:token=a?pin-value=1234&module-path=/m.so", "password-source": "env:A", "usage": "client",
        "size": "2048",
    ]

    @Test("By default, each parameter but secret sources, trust, timeouts and the usage makes another configuration")
    func theDefaultDistinguishes() async throws {
        try installWriter(#"{"name":"size","type":"string","summary":"A size.","distinguishes":false}"#)
        let usual = Self.usual
        let own = try await write(usual)
        #expect(own.count == 1 && own.first?.hasPrefix("state@") == true)
        let same: [(String, String?)] = [
            ("password-source", "env:B"), ("timeout", "200"), ("connect-timeout", "5"), ("usage", "server"),
            ("trust-anchors", "/ca.pem"), ("ca", "system"), ("pin", "sha256/x"), ("size", "4096"), ("size", nil),
            ("environment", "LANG"), ("flag", "TRUE"),
            // A name does not depend on a secret in a value.
            ("url", "https://alice:other@example.com/x"), ("url", "https://alice@example.com/x"),
            ("uri", "pkcs11:token=a?pin-value=9999&module-path=/m.so"), ("uri", "pkcs11:token=a?module-path=/m.so"),
        ]
        for (name, value) in same {
            #expect(try await write(usual.merging([name: value ?? ""]) { $1 }) == own, "\(name)")
        }
        let others = [
            ("role", "mail"), ("directory", "/b"), ("url", "https://bob:secret@example.com/x"), ("flag", "false"),
            ("url", "https://alice:secret@example.com/y"), ("uri", "pkcs11:token=b?module-path=/m.so"),
            ("uri", "pkcs11:token=a?module-path=/n.so"), ("role", ""),
        ]
        for (number, (name, value)) in others.enumerated() {
            #expect(try await write(usual.merging([name: value]) { $1 }).count == number + 2, "\(name)")
        }
        await host.shutdown()
    }

    @Test func aSourceOfASecretCannotDistinguish() async throws {
        try installWriter(#"{"name":"token","type":"secret-source","summary":"A token.","distinguishes":true}"#)
        let failure = failure { _ = try provider(ProviderID("writer"), ["role": "web"]) }
        #expect(
            failure?.code == .protocolError && failure?.message.contains("'token'") == true,
            "\(String(describing: failure))")
        await host.shutdown()
    }

    /// A server may lock the account after a few wrong passwords.
    @Test func aRejectedPasswordIsNotSentByAnotherConfiguration() async throws {
        let built = URL(filePath: try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe"))
            .deletingLastPathComponent().appending(path: "TestPlugin").path
        try directory.install("certprov-plugin-guarded", "#!/bin/sh\nexec '\(built)' guarded\n".utf8)
        var codes: [ProviderError.Code?] = []
        for role in ["web", "mail", "web"] {
            let provider = try provider(
                ProviderID("guarded"),
                ["role": role, "log": directory["log"], "password-source": "env:PASSWORD"],
                variables: ["PASSWORD": "wrong"])
            codes.append(await code { _ = try await provider.getCertificate(NoUserInteraction()) })
            await provider.shutdown()
        }
        #expect(codes == [.rejected, .wrongPassword, .wrongPassword])
        #expect(String(decoding: try directory.read("log"), as: UTF8.self) == "attempt\n")
        await host.shutdown()
    }
}
