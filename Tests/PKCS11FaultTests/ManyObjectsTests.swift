import CertificateProviding
import FaultyModuleControl
import Foundation
import PKCS11TokenProvider
import TestSupport
import Testing

/// Tokens with ten thousand objects: how long they take, and how much memory. One after the other: reading ten thousand
/// certificates takes a debug build seconds.
@Suite(.serialized, .timeLimit(.minutes(20))) struct ManyObjectsTests {
    enum Shape: String, CaseIterable {
        /// Certificates of others beside one identity.
        case keyless
        /// The same without a login: any of them may have a key.
        case leaves
        /// Identities, with a public key each.
        case identities
        /// The same with RSA, under one id: careless tools give every key the same.
        case oneID
    }

    private static let shape = ProcessInfo.processInfo.environment["CERTPROV_TEST_OBJECTS"].flatMap(Shape.init)
    private static let count: UInt32 = 10_000

    /// In a process of its own, whose memory is nothing but the token's.
    @Test(.enabled(if: shape == nil), arguments: Shape.allCases) func aTokenIsListed(shape: Shape) async throws {
        try await Subprocess.runTests(
            ["isListedInTime"], of: "isListedInTime", with: ["CERTPROV_TEST_OBJECTS=\(shape.rawValue)"])
    }

    @Test(.enabled(if: shape != nil)) func isListedInTime() async throws {
        let shape = try #require(Self.shape)
        let module = try module(shape)
        let provider = try module.provider(pin: shape == .leaves ? nil : FaultyModule.pin, ["timeout": "600"])
        let before = try Self.memory("VmRSS")
        let start = ContinuousClock.now
        let list = await provider.listIdentities()
        let peak = try Self.memory("VmHWM") - before
        print("\(shape): \(ContinuousClock.now - start), \(peak) kB more, \(list.identities.count) identities")
        #expect(list.failures.isEmpty, "\(list.failures)")
        let expected =
            switch shape {
            case .keyless: 1
            case .leaves: 10_000
            case .identities: 3333
            case .oneID: 5000
            }
        #expect(list.identities.count == expected)
        #expect(list.identities.allSatisfy { $0.certificateChain.count == 2 })
        #expect(list.remarks.count <= 21)
        #expect(peak < 150_000)
        if shape == .identities {
            // Too many to name.
            let error = await failure { try await provider.getCertificate(NoUserInteraction()) }
            #expect(error?.code == .configurationInvalid && error?.message.count ?? 0 < 10_000)
        }
    }

    private func module(_ shape: Shape) throws -> FaultyModule {
        let module = try FaultyModule()
        module.control.set_token(0, "alpha", "0001", FaultyModule.pin)
        let authority = try FaultyModule.authority.get()
        try module.add(authority.intermediate, to: 0, id: 0)
        let identity = shape == .oneID ? try FaultyModule.rsaIdentity.get() : try authority.issue("client")
        switch shape {
        case .keyless:
            try module.addKey(of: identity, to: 0)
            try module.add(identity.certificate, to: 0, id: 1)
            for id in 2...Self.count { module.control.add_again(0, id) }
        case .leaves:
            try module.add(identity.certificate, to: 0, id: 1)
            for id in 2...Self.count { module.control.add_again(0, id) }
        case .identities:
            let point = identity.key.publicKey.keyBits
            try module.addKey(of: identity, to: 0)
            for id in 2...Self.count / 3 { module.control.add_again(0, id) }
            for id in 1...Self.count / 3 {
                module.control.add_public_key(0, id, point, UInt(point.count))
                try Self.add(identity.certificate, numbered: id, to: module, id: id)
            }
        case .oneID:
            try module.addKey(of: identity, to: 0)
            for _ in 2...Self.count / 2 { module.control.add_again(0, 1) }
            for id in 1...Self.count / 2 { try Self.add(identity.certificate, numbered: id, to: module, id: 1) }
        }
        module.control.insert(0, 0)
        return module
    }

    /// Adds a certificate that differs in its signature alone, which is not verified.
    private static func add(
        _ certificate: X509Certificate, numbered number: UInt32, to module: FaultyModule, id: UInt32
    ) throws {
        var der = certificate.derRepresentation
        withUnsafeBytes(of: number) { der.replaceSubrange((der.count - 4)..., with: $0) }
        try #require(module.control.add_certificate(0, id, der, UInt(der.count)) == 1)
    }

    /// In kB.
    private static func memory(_ name: String) throws -> Int {
        let status = try String(contentsOfFile: "/proc/self/status", encoding: .utf8)
        let line = try #require(status.split(separator: "\n").first { $0.hasPrefix(name + ":") })
        return try #require(Int(line.filter(\.isNumber)))
    }

    /// Of an object without a key only the fields of its URI are read, and the remarks have a limit.
    @Test(.enabled(if: shape == nil)) func onlyWhatIsNamedIsRead() async throws {
        let module = try FaultyModule.withIdentity()
        let other = try FaultyModule.authority.get().issue("other").certificate
        try module.add(other, to: 0, id: 2)
        for _ in 1..<Self.count { module.control.add_again(0, 2) }
        let list = try await module.provider().listIdentities()
        #expect(list.identities.count == 1 && list.failures.isEmpty)
        // Twenty were looked at, of which one is an issuer.
        #expect(list.remarks.count == 20 && list.remarks.last?.contains("9981 more") == true, "\(list.remarks)")
        #expect(list.otherObjects.count == 10_001)
        // The id takes two calls, and for the URI six more.
        #expect(module.calls("C_GetAttributeValue") < 80_400)
        #expect(module.calls("C_FindObjects") < 150)
    }

    /// One issuer is looked for once, and public keys in one search.
    @Test(.enabled(if: shape == nil)) func searchesDoNotGrowWithTheToken() async throws {
        let identity = try FaultyModule.authority.get().issue("client")
        let module = try FaultyModule.withToken { module in
            for id in 1...100 as ClosedRange<UInt32> { try module.add(identity, to: 0, id: id) }
        }
        let list = try await module.provider().listIdentities()
        #expect(list.identities.count == 100 && list.identities.allSatisfy { $0.certificateChain.count == 2 })
        #expect(module.calls("C_FindObjectsInit") < 16)
    }

    /// Of ten thousand broken objects, the first ones are named.
    @Test(.enabled(if: shape == nil)) func failuresAreCounted() async throws {
        let module = try FaultyModule.withIdentity()
        let other = try FaultyModule.authority.get().issue("other")
        for id in 2...101 as ClosedRange<UInt32> {
            try module.addKey(of: other, to: 0, id: id)
            try module.add(FaultyModule.rsaIdentity.get().certificate, to: 0, id: id)
        }
        let list = try await module.provider().listIdentities()
        #expect(list.identities.count == 1 && list.failures.count == 17, "\(list.failures)")
        #expect(list.failures.last?.message.contains("84 more") == true)
        #expect(list.failures.allSatisfy { $0.code == .keyMismatch })
    }

    @Test(.enabled(if: shape == nil), .timeLimit(.minutes(20))) func aSearchThatBeginsAnewEnds() async throws {
        let module = try FaultyModule.withIdentity()
        module.control.repeat_objects(0)
        let provider = try module.provider()
        let list = await provider.listIdentities()
        #expect(list.identities.count == 1 && list.failures.isEmpty, "\(list)")
        #expect(module.calls("C_FindObjects") < 50)
        #expect(try await provider.getCertificate(NoUserInteraction()).key.signsValidly())
    }
}
