import CertificateProviding
import Synchronization
import TestSupport
import Testing

@Suite struct ProviderIDTests {
    @Test(arguments: ["a", "pkcs12", "remote-mdm", "a_b", "a0-", String(repeating: "a", count: 64)])
    func isPermitted(text: String) throws {
        let id = try #require(ProviderID(rawValue: text))
        #expect(id.description == text && id == ProviderID(rawValue: text))
    }

    @Test(arguments: [
        "", "A", "0a", "-a", "_a", "a.b", "a/b", "a b", "ä", "a\0", "..", "a\n", String(repeating: "a", count: 65),
    ]) func isNotPermitted(text: String) {
        #expect(ProviderID(rawValue: text) == nil)
    }

    @Test func isOrdered() { #expect([ProviderID("b"), ProviderID("a")].sorted().map(\.rawValue) == ["a", "b"]) }
}

@Suite struct ProviderParametersTests {
    private let provider = ProviderID("test")

    @Test func aBlankValueIsNone() throws {
        let parameters = ProviderParameters(["a": .init(""), "b": .init(" "), "c": .init("x")])
        #expect(parameters.string("a") == nil && parameters.string("b") == " " && parameters.string("d") == nil)
        #expect(try parameters.requiredString("c", provider: provider) == "x")
        #expect(throws: CertificateProviderError.self) { try parameters.requiredString("a", provider: provider) }
        #expect(parameters.names == ["a", "b", "c"])
    }

    @Test func valuesAppearNowhere() {
        let parameters = ProviderParameters(["pin": .init("s3cret", origin: "file:3")])
        var text = "\(parameters) \(String(reflecting: parameters))"
        dump(parameters, to: &text)
        let value = parameters["pin"]
        text += "\(value as Any) \(String(reflecting: value)) \([value])"
        dump(value, to: &text)
        #expect(!text.contains("s3cret") && text.contains("pin=<redacted>"))
        let errors = [
            parameters.invalid("pin", "is odd", provider: provider),
            error { () throws(CertificateProviderError) in
                _ = try parameters.secretSource("pin", provider: provider)
            },
            error { () throws(CertificateProviderError) in
                try parameters.refuseUnknown(knowing: [], provider: provider)
            },
        ]
        for error in errors {
            #expect(error?.message.hasPrefix("file:3: ") == true && error?.message.contains("s3cret") == false)
        }
    }

    private func error(_ body: () throws(CertificateProviderError) -> Void) -> CertificateProviderError? {
        do throws(CertificateProviderError) { try body() } catch { return error }
        return nil
    }

    @Test func unknownOnesAreRefused() throws {
        let known = [ParameterDescriptor("path", .path, summary: "")]
        try ProviderParameters(["path": .init("x")]).refuseUnknown(knowing: known, provider: provider)
        let error = error { () throws(CertificateProviderError) in
            try ProviderParameters(["pa\u{1b}th": .init("x")]).refuseUnknown(knowing: known, provider: provider)
        }
        #expect(error?.code == .unsupportedParameter && error?.provider == provider)
        #expect(error?.message.contains("'pa\\1bth'; it takes path.") == true)
    }
}

@Suite struct ProviderRegistryTests {
    private func descriptor(_ id: ProviderID) -> ProviderDescriptor {
        ProviderDescriptor(id: id, displayName: "", summary: "", parameters: []) { _ in preconditionFailure("unused") }
    }

    @Test func isSortedAndUnique() throws {
        var registry = try ProviderRegistry([descriptor(ProviderID("b")), descriptor(ProviderID("a"))])
        #expect(registry.descriptors.map(\.id.rawValue) == ["a", "b"])
        #expect(registry[ProviderID("a")] != nil && registry[ProviderID("c")] == nil)
        #expect {
            try registry.register(descriptor(ProviderID("a")))
        } throws: { ($0 as? CertificateProviderError)?.code == .configurationInvalid }
        #expect(registry.descriptors.count == 2)
    }
}

@Suite struct CertificateProviderErrorTests {
    @Test func isAttributedOnce() {
        let error = CertificateProviderError(.notFound, "Nothing.")
        let attributed = error.attributed(to: ProviderID("a"))
        #expect(attributed.provider == ProviderID("a") && error.provider == nil)
        #expect(attributed.attributed(to: ProviderID("b")).provider == ProviderID("a"))
        #expect("\(attributed)" == "a: Nothing. [notFound]" && "\(error)" == "Nothing. [notFound]")
        #expect(error.location.hasPrefix("CertificateProvidingTests/ProviderTests.swift:"))
    }

    @Test func itsCodesAreOpen() {
        #expect(CertificateProviderError.Code(rawValue: "notFound") == .notFound)
        #expect(CertificateProviderError.Code(rawValue: "of-a-plugin") != .notFound)
    }
}

@Suite struct IdentityTests {
    /// Claims to be one key and signs with another, or not at all.
    private struct LyingKey: IdentityKey {
        let publicKey: PublicKeyInfo
        let signer: any IdentityKey
        var signatureSchemes: [SignatureScheme]
        let location = KeyLocation.plugin
        func signature(
            for message: [UInt8], using scheme: SignatureScheme
        ) async throws(CertificateProviderError) -> [UInt8] {
            try await signer.signature(for: message, using: scheme)
        }
    }

    @Test(arguments: TestAuthority.KeyKind.allCases) func aLyingKeyIsFoundOut(kind: TestAuthority.KeyKind) async throws
    {
        let authority = try TestAuthority()
        let (mine, other) = (try authority.issue("mine", kind: kind), try authority.issue("other", kind: kind))
        for (signer, schemes, code) in [
            (other.key, mine.key.signatureSchemes, .keyMismatch), (mine.key, [], .unsupportedAlgorithm),
        ] as [(any IdentityKey, [SignatureScheme], CertificateProviderError.Code)] {
            let key = LyingKey(publicKey: mine.key.publicKey, signer: signer, signatureSchemes: schemes)
            let liar = try Identity(
                certificateChain: mine.certificateChain, key: key, provenance: mine.provenance)
            do throws(CertificateProviderError) {
                try await liar.verifyPossession()
                Issue.record("the lie was not found out")
            } catch {
                #expect(error.code == code)
            }
        }
        try await mine.verifyPossession()
    }

    @Test func needsACertificate() throws {
        let identity = try TestAuthority().issue("x")
        #expect {
            try Identity(certificateChain: [], key: identity.key, provenance: identity.provenance)
        } throws: { ($0 as? CertificateProviderError)?.code == .notFound }
    }
}

@Suite struct BlockingExecutorTests {
    @Test func returnsAndThrows() async throws {
        let executor = BlockingExecutor.threads()
        #expect(try await executor.run { 7 } == 7)
        do throws(CertificateProviderError) {
            try await executor.run { () throws(CertificateProviderError) in
                throw CertificateProviderError(.timedOut, "Late.")
            }
            Issue.record("nothing was thrown")
        } catch {
            #expect(error.code == .timedOut)
        }
    }

    @Test func usesWhatItIsGiven() async throws {
        let count = Mutex(0)
        let jobs = BlockingExecutor { job in job() }
        for _ in 1...3 { try await jobs.run { count.withLock { $0 += 1 } } }
        #expect(count.withLock { $0 } == 3)
    }
}
