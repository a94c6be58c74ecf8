import CertificateProviding
import Foundation
import PKCS12FileProvider
import TestSupport
import Testing
import X509

/// Which keys and certificates of a file make an identity, and which of several identities is taken.
@Suite struct SelectionTests {
    private let builder = PFXBuilder()
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    /// A provider of a file, which takes the place of the file before.
    private func provider(
        _ bags: [[UInt8]], alias: String? = nil, usage: IdentityUsage = .client
    ) throws -> PKCS12FileProvider {
        let path = try directory.write(builder.file(bags), to: "identity.p12")
        return try PKCS12FileProvider.testing(path, alias: alias, usage: usage)
    }

    private func two(_ firstName: String, _ secondName: String) throws -> ([Identity], [[UInt8]]) {
        let identities = [try Samples.identity("first"), try Samples.identity("second")]
        let bags =
            try builder.bags(of: identities[0], name: firstName, id: [1])
            + builder.bags(of: identities[1], name: secondName, id: [2])
        return (identities, bags)
    }

    @Test(arguments: [false, true]) func readsEveryEncoding(isIndefinite: Bool) async throws {
        let builder = PFXBuilder(isIndefinite: isIndefinite)
        let identity = try Samples.identity("encoded", kind: .rsa2048)
        let bags = try builder.bags(of: identity, name: "Zoë \u{1F600}", id: [1, 2])
        for file in [
            builder.file(bags), builder.file([builder.nested(bags)]), builder.file([builder.nested(bags, depth: 8)]),
            builder.file(parts: bags.map { builder.data([$0]) }), builder.file(bags.reversed()),
        ] {
            let fixture = try FileFixture(file)
            let found = try await PKCS12FileProvider.testing(fixture.path, alias: "Zoë \u{1F600}").fetch()
            #expect(found.certificateChain == identity.certificateChain)
        }
    }

    @Test func choosesByAlias() async throws {
        let (identities, bags) = try two("alpha", "beta")
        for (alias, identity) in zip(["alpha", "beta"], identities) {
            let provider = try provider(bags, alias: alias)
            #expect(try await provider.fetch().certificateChain == identity.certificateChain)
        }
    }

    /// Some tools count the end of a C string as part of the name.
    @Test(arguments: [1, 2]) func anAliasHasNoTrailingNULs(count: Int) async throws {
        let (identities, bags) = try two("alpha" + String(repeating: "\0", count: count), "beta")
        let provider = try provider(bags, alias: "alpha")
        #expect(try await provider.fetch().certificateChain == identities[0].certificateChain)
        #expect(await provider.listIdentities().identities.map(\.alias) == ["alpha", "beta"])
    }

    @Test func aNameOfNULsAloneIsNone() async throws {
        let provider = try provider(builder.bags(of: Samples.identity("first"), name: "\0"))
        #expect(await provider.listIdentities().identities.map(\.alias) == ["identity"])
    }

    @Test func choosesByFingerprint() async throws {
        let (identities, bags) = try two("same", "same")
        let hex = identities[1].certificate.sha256Fingerprint.hexEncoded
        let colons = stride(from: 0, to: 64, by: 2).map { hex.uppercased().dropFirst($0).prefix(2) }
            .joined(separator: ":")
        for alias in [hex, hex.uppercased(), colons] {
            let provider = try provider(bags, alias: alias)
            #expect(try await provider.fetch().certificateChain == identities[1].certificateChain)
        }
    }

    @Test func ambiguityListsTheAliases() async throws {
        let (_, bags) = try two("alpha", "beta")
        let provider = try provider(bags)
        let error = try await provider.failure()
        #expect(error.code == .configurationInvalid && error.message.contains("'alpha', 'beta'"), "\(error)")
        #expect(await provider.listIdentities().identities.map(\.alias) == ["alpha", "beta"])
    }

    @Test func equalAliasesAreToldApartByFingerprint() async throws {
        let (identities, bags) = try two("same", "same")
        for alias in [nil, "same"] {
            let provider = try provider(bags, alias: alias)
            let error = try await provider.failure()
            #expect(error.code == .configurationInvalid)
            for identity in identities {
                #expect(error.message.contains(identity.certificate.sha256Fingerprint.hexEncoded), "\(error)")
            }
            #expect(error.message.contains(alias == nil ? "There are 2" : "The alias 'same' stands for 2"), "\(error)")
        }
    }

    @Test("One pair under several aliases is one identity, by each of them", arguments: [nil, "alpha", "beta"])
    func onePairWithTwoNames(alias: String?) async throws {
        let identity = try Samples.identity("one")
        let bags =
            try builder.bags(of: identity, name: "alpha", id: [1]) + builder.bags(of: identity, name: "beta", id: [2])
        let provider = try provider(bags, alias: alias)
        #expect(await provider.listIdentities().identities.map(\.alias) == ["alpha", "beta"])
        let found = try await provider.fetch()
        #expect(found.certificate == identity.certificate && found.provenance.alias == alias ?? "alpha")
    }

    @Test func anUnknownAliasListsWhatThereIs() async throws {
        let (_, bags) = try two("alpha", "be\u{1b}ta")
        let provider = try provider(bags, alias: "gamma")
        let error = try await provider.failure()
        #expect(error.code == .notFound && error.message.contains("'alpha', 'be\\1bta'"), "\(error)")
    }

    @Test func theOneForClientAuthenticationIsTaken() async throws {
        let authority = try Samples.authority.get()
        let (mail, client) = (try authority.issue("mail", isForClients: false), try authority.issue("client"))
        let bags = try builder.bags(of: mail, name: "mail") + builder.bags(of: client, name: "client")
        let chosen = try provider(bags)
        #expect(try await chosen.fetch().certificate == client.certificate)
        let named = try provider(bags, alias: "mail")
        #expect(try await named.fetch().certificate == mail.certificate)
    }

    @Test("The identity whose extended key usage permits the usage is taken", arguments: IdentityUsage.sidesOfTLS)
    func theOneForTheUsageIsTaken(usage: IdentityUsage) async throws {
        let authority = try Samples.authority.get()
        let purposes: [(String, [ExtendedKeyUsage.Usage])] = [
            ("mail", [.emailProtection]), ("client", [.clientAuth]), ("server", [.serverAuth]),
        ]
        var bags: [[UInt8]] = []
        for (name, purposes) in purposes {
            bags += try builder.bags(of: authority.issue(name, for: purposes), name: name)
        }
        let chosen = try provider(bags, usage: usage)
        // None is for both sides, and certprov does not guess.
        if usage == .both {
            #expect(try await chosen.failure().message.contains("There are 3 identities"))
        } else {
            let identity = try await chosen.fetch()
            #expect(identity.provenance.alias == usage.rawValue && identity.usage == usage)
            #expect(try chosen.getStoredCertificate()?.usage == usage)
            #expect(await chosen.listIdentities().identities.allSatisfy { $0.usage == usage })
        }
        let all = try bags + builder.bags(of: authority.issue("all", for: [.clientAuth, .serverAuth]), name: "all")
        let both = try provider(all, usage: .both)
        #expect(try await both.fetch().provenance.alias == "all")
    }

    @Test func withoutANameTheFileGivesIt() async throws {
        let provider = try provider(try builder.bags(of: try Samples.identity("x")))
        #expect(try await provider.fetch().provenance.alias == "identity")
    }

    // MARK: Pairing

    @Test func aKeyWithTheCertificateOfAnother() async throws {
        let (one, other) = (try Samples.identity("one"), try Samples.identity("other"))
        let provider = try provider([
            builder.key(try one.pkcs8, name: "one", id: [1]), builder.certificate(other.certificate, id: [1]),
        ])
        let error = try await provider.failure()
        #expect(error.code == .keyMismatch && error.message.contains("'one'"), "\(error)")
        #expect(error.message.contains("identity.p12"))
    }

    @Test func halves() async throws {
        let identity = try Samples.identity("half")
        let cases: [([[UInt8]], String)] = [
            ([builder.key(try identity.pkcs8)], "a private key but no certificate for it"),
            ([builder.certificate(identity.certificate)], "1 certificate but no private key"),
            (identity.certificateChain.map { builder.certificate($0) }, "2 certificates but no private key"),
            ([], "neither a private key nor a certificate"),
            (
                [builder.key(try identity.pkcs8), builder.certificate(identity.certificateChain[1])],
                "none of the 1 certificates in the file"
            ),
        ]
        for (bags, text) in cases {
            let provider = try provider(bags)
            let error = try await provider.failure()
            #expect(error.code == .notFound && error.message.contains(text), "\(error)")
        }
    }

    @Test func theSameKeyTwiceIsOneIdentity() async throws {
        let bags = try builder.bags(of: try Samples.identity("twice"), name: "twice")
        let provider = try provider(bags + bags)
        #expect(await provider.listIdentities().identities.count == 1)
        _ = try await provider.fetch()
    }

    @Test("The same identity in two files of a directory can be chosen")
    func theSameInTwoFilesIsOneIdentity() async throws {
        let identity = try Samples.identity("twice")
        let fixture = try FileFixture(builder.file(try builder.bags(of: identity, name: "twice")))
        try fixture.directory.write(builder.file(try builder.bags(of: identity, name: "copy")), to: "copy.p12")
        for alias in [nil, "twice", "copy", identity.certificate.sha256Fingerprint.hexEncoded] {
            let provider = try PKCS12FileProvider.testing(fixture.directory.path, alias: alias)
            #expect(try await provider.fetch().certificate == identity.certificate)
        }
    }

    @Test("Of two certificates for a key, the one with its id counts, else the latest")
    func ofTwoCertificatesForAKeyTheLinkedOneElseTheLatest() async throws {
        let identity = try Samples.identity("original")
        let later = try Samples.authority.get().renew(identity, as: "renewed", notBefore: Date(timeIntervalSinceNow: 0))
        for (id, expected) in [(nil, later), ([7], identity.certificate)] as [([UInt8]?, X509Certificate)] {
            let provider = try provider([
                builder.certificate(identity.certificate, id: [7]), builder.certificate(later),
                builder.key(try identity.pkcs8, id: id),
            ])
            #expect(try await provider.fetch().certificate == expected)
        }
    }

    @Test func theChainIsPutInOrder() async throws {
        let authority = try Samples.authority.get()
        let identity = try Samples.identity("leaf")
        let decoys = try ["Test Root", "Test Intermediate", "Decoy"].map {
            try TestAuthority.certificate(subject: "\($0) 2", issuer: $0)
        }
        let loop = [
            try TestAuthority.certificate(subject: "A", issuer: "B"),
            try TestAuthority.certificate(subject: "B", issuer: "A"),
        ]
        let certificates = [authority.root] + decoys + loop + [authority.intermediate, identity.certificate]
        let provider = try provider(certificates.map { builder.certificate($0) } + [builder.key(try identity.pkcs8)])
        // Without the root, which peers have.
        let expected = [identity.certificate, authority.intermediate]
        #expect(try await provider.fetch().certificateChain == expected)
    }

    @Test func anUnreadableCertificateIsTheReason() async throws {
        let identity = try Samples.identity("x")
        let provider = try provider([
            builder.key(try identity.pkcs8), builder.certificateBag([0x30, 3, 2, 1, 1]),
        ])
        #expect(try await provider.failure().code == .malformedData)
    }
}
