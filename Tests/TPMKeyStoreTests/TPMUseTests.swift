import CertificateProviding
import Foundation
import TPMKeyStore
import TestSupport
import Testing

/// The use of a software TPM, and what its users see when it fails.
@Suite(.serialized, .enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(20))) struct TPMUseTests {
    @Test("Signatures and keys leave no object and no session in the TPM")
    func nothingIsLeft() async throws {
        let store = try TPMStore()
        #expect(try store.tpm.leftovers().isEmpty)
        let key = try await store.make()
        for _ in 0..<TestLength.rounds(50, full: 1000, soak: 1000) { #expect(try await key.signsValidly()) }
        for _ in 0..<TestLength.rounds(10, full: 100, soak: 100) { _ = try await store.make() }
        // Failures leave nothing either.
        let wrong = try await store.make(.rsa2048, use: [.signing, .oaepDecryption])
        await #expect { _ = try await wrong.decrypter?.decrypt([1, 2, 3], using: .rsaOAEPSHA256) } throws: {
            ($0 as? ProviderError)?.code == .malformedData
        }
        #expect(try store.tpm.leftovers().isEmpty)
    }

    @Test("A service goes on after the TPM was killed, between calls and during one")
    func aKilledTPM() async throws {
        let store = try TPMStore()
        let key = try await store.make()
        store.tpm.kill()
        await expect(.unavailable, "does not answer") { _ = try await key.signsValidly() }
        try store.tpm.start()
        #expect(try await key.signsValidly())
        for round in 0..<TestLength.rounds(5, soak: 50) {
            let signatures = Task {
                var failures: [ProviderError] = []
                for _ in 0..<40 {
                    do { _ = try await key.signsValidly() } catch let error as ProviderError { failures.append(error) }
                }
                return failures
            }
            // At another moment of a call each time.
            try await Task.sleep(for: .milliseconds(20 + 7 * round))
            store.tpm.kill()
            #expect(try await signatures.value.allSatisfy { $0.code == .unavailable })
            try store.tpm.start()
            #expect(try await key.signsValidly())
        }
        #expect(try store.tpm.leftovers().isEmpty)
    }

    @Test("The stores of a program take turns at a TPM without a resource manager")
    func severalStores() async throws {
        let store = try TPMStore()
        let (key, stores) = (try await store.make(), try store.keyStores())
        try await withThrowingTaskGroup(of: Bool.self) { tasks in
            for number in 0..<20 {
                tasks.addTask {
                    let own = try stores.store("tpm:place-\(number)")
                    let found = try own.storedKey(for: KeyReference(publicKey: key.publicKey, uri: ""))
                    return try await found?.signsValidly() == true
                }
            }
            for try await isValid in tasks { #expect(isValid) }
        }
    }

    @Test func theNameOfAPlaceBeginsTheNamesOfItsKeys() async throws {
        let store = try TPMStore()
        #expect(try await store.make().uri?.wholeMatch(of: /tpm:[0-9a-f]{16}/) != nil)
        let key = try await store.make(.p256, "tpm:web.1")
        #expect(key.uri?.wholeMatch(of: /tpm:web\.1-[0-9a-f]{16}/) != nil, "\(String(describing: key.uri))")
        #expect(try store.store().holds(keyURI: try #require(key.uri)))
        for uri in ["tpm:A", "tpm:a_b", "tpm:" + String(repeating: "a", count: 65), "tpm:a/b"] {
            await expect(.configurationInvalid, "tpm:NAME") { _ = try store.store(uri) }
        }
        #expect(try store.store("tpm:" + String(repeating: "a", count: 64)).scheme == "tpm")
    }

    @Test("An EC key for SCEP is refused before a key is made, and a type that no TPM has")
    func usesThatAreNotMade() async throws {
        let store = try TPMStore()
        store.tpm.kill()
        for (type, use) in [(KeyType.p256, KeyUse.pkcs1Decryption), (.ed25519, .signing), (.rsa4096, .signing)] {
            await expect(.unsupportedAlgorithm, "makes no keys") {
                _ = try await store.make(type, use: [.signing, use])
            }
        }
    }

    @Test("RSA-PSS is offered if the TPM's salt is as long as the digest", arguments: [KeyType.rsa2048, .rsa3072])
    func schemesOfAnRSAKey(type: KeyType) async throws {
        let store = try TPMStore()
        let key = try await store.make(type)
        #expect(key.signatureSchemes.contains(.rsaPKCS1SHA256))
        for scheme in key.signatureSchemes {
            let signature = try await key.signature(for: [1], using: scheme)
            #expect(key.publicKey.isValidSignature(signature, for: [1], using: scheme), "\(scheme)")
        }
        #expect(try store.tpm.leftovers().isEmpty)
    }

    // MARK: - What the TPM refuses

    /// TPM_RC_CURVE and TPM_RC_VALUE of the second parameter of TPM2_Create.
    @Test(
        "A type that this TPM lacks is refused before anything is stored",
        arguments: [(KeyType.p384, UInt32(0x2e6)), (.rsa3072, 0x2c4)])
    func aTypeThatTheTPMLacks(type: KeyType, code: UInt32) async throws {
        let store = try TPMStore()
        let proxy = try TPMProxy(store.tpm.tcti)
        try proxy.answer(0x153, with: code)
        await expect(.unsupportedAlgorithm, "use p256 or rsa2048") {
            _ = try await store.store("tpm:", ["tcti": proxy.tcti]).make(
                NewKey(type, label: "test"), NoUserInteraction()
            ) { _ in Issue.record("a key is remembered") }
        }
        #expect(try store.storage.recordNames().isEmpty)
        #expect(try store.tpm.leftovers().isEmpty)
    }

    @Test("A TPM that is locked by wrong passwords signs with the keys of this store, and derives its storage key")
    func aLockedTPM() async throws {
        let (store, directory) = (try TPMStore(), try TemporaryDirectory())
        let key = try await store.make()
        try directory.write("sealed".utf8, to: "data")
        // The parent at a handle counts wrong passwords too, as tpm2_createprimary makes it.
        try store.tpm.run(
            "sh", "-ec",
            """
            tpm2_createprimary -G ecc -c parent; tpm2_flushcontext -t
            tpm2_evictcontrol -c parent 0x81000001
            tpm2_create -C parent -p right -i data -u public -r private; tpm2_flushcontext -t
            tpm2_load -C parent -u public -r private -c sealed; tpm2_flushcontext -t
            until tpm2_getcap properties-variable | grep -q 'inLockout: *1'; do
                ! tpm2_unseal -c sealed -p wrong; tpm2_flushcontext -t
            done
            """, in: directory.path)
        try await store.store().check(NoUserInteraction())
        #expect(try await key.signsValidly())
        // The owner authorisation counts nothing, and is right or wrong as ever.
        try store.tpm.run("tpm2_changeauth", "-c", "owner", "right")
        let owner = ["owner-source": "env:OWNER"]
        await expect(.wrongPassword, "rejects the owner authorisation") {
            try await store.store("tpm:", owner, variables: ["OWNER": "wrong"]).check(NoUserInteraction())
        }
        try await store.store("tpm:", owner, variables: ["OWNER": "right"]).check(NoUserInteraction())
        let beneath = ["parent": "0x81000001"]
        await expect(.unavailable, "is locked after wrong authorisations") {
            _ = try await store.make(.p256, "tpm:", beneath)
        }
        try store.tpm.run("tpm2_dictionarylockout", "--clear-lockout")
        #expect(try await store.make(.p256, "tpm:", beneath).signsValidly())
        #expect(try store.tpm.leftovers().isEmpty)
    }

    @Test("A TPM that other programs fill is unavailable, and check says how to make room")
    func aFullTPM() async throws {
        let store = try TPMStore()
        let (key, directory) = (try await store.make(), try TemporaryDirectory())
        for _ in 0..<3 { try store.tpm.run("tpm2_createprimary", "-c", directory["context"]) }
        await expect(.unavailable, "tpm2_flushcontext -t") { try await store.store().check(NoUserInteraction()) }
        await expect(.unavailable, "has no room") { _ = try await key.signsValidly() }
        try store.tpm.run("tpm2_flushcontext", "-t")
        try await store.store().check(NoUserInteraction())
        #expect(try await key.signsValidly())
    }

    @Test(arguments: ["another TPM", "the same one, cleared"]) func aKeyOfAnotherTPM(place: String) async throws {
        let store = try TPMStore()
        let key = try await store.make()
        let other: TPMStore
        if place == "another TPM" {
            other = try TPMStore()
            for name in try store.storage.recordNames() {
                let record = try store.storage.record(named: name)
                try other.storage.updateRecord(named: name) { _ in record }
            }
        } else {
            try store.tpm.run("tpm2_clear", "-c", "p")
            other = store
        }
        let reference = KeyReference(publicKey: key.publicKey, uri: key.uri ?? "")
        #expect(try await other.store().list().map(\.reference.uri) == [reference.uri])
        #expect(try other.store().storedKey(for: reference) == nil)
        #expect(try await other.store().key(for: reference, NoUserInteraction()) == nil)
        if other.tpm === store.tpm {
            await expect(.notFound, "made in another TPM, or the TPM was cleared") { _ = try await key.signsValidly() }
        }
        #expect(try await other.store().destroy(reference, NoUserInteraction()))
        #expect(try other.tpm.leftovers().isEmpty)
    }

    @Test("A rejected owner authorisation is not sent again; the right one works")
    func ownerAuthorisation() async throws {
        let store = try TPMStore()
        try store.tpm.run("tpm2_changeauth", "-c", "owner", "right")
        await expect(.wrongPassword, "rejects the owner authorisation") {
            try await store.store().check(NoUserInteraction())
        }
        let variables = ["WRONG": "wrong", "RIGHT": "right"]
        for sentence in ["rejects the owner authorisation", "before"] {
            await expect(.wrongPassword, sentence) {
                try await store.store("tpm:", ["owner-source": "env:WRONG"], variables: variables)
                    .check(NoUserInteraction())
            }
        }
        let own = try store.store("tpm:", ["owner-source": "env:RIGHT"], variables: variables)
        let key = try await own.make(NewKey(.p256, label: "test"), NoUserInteraction()) { _ in }
        #expect(try await key.signsValidly())
    }

    @Test(
        "A TPM that answers garbage, half an answer or wrong signatures is an error, and no key is stored",
        arguments: [
            ("garbage", [.unavailable]),
            // A second attempt may not reach it.
            ("half", [.timedOut, .unavailable]),
            ("signature", [.protocolError]),
        ] as [(String, [ProviderError.Code])])
    func aFaultyTPM(fault: String, codes: [ProviderError.Code]) async throws {
        let (store, directory) = (try TPMStore(), try TemporaryDirectory())
        let script = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "faulty-tpm.py").path
        let socket = directory["socket"]
        let process = try Subprocess(["python3", "-B", script, store.tpm.tcti, socket, fault])
        defer { process.kill() }
        try #require(process.readLine() == "ready")
        let error = await failure {
            _ = try await store.make(.p256, "tpm:", ["tcti": "swtpm:path=" + socket, "timeout": "2"])
        }
        #expect(error.map { codes.contains($0.code) } == true, "\(String(describing: error))")
        #expect(try store.storage.recordNames().isEmpty)
    }

    @Test func aDisabledHierarchy() async throws {
        let store = try TPMStore()
        try store.tpm.run("tpm2_hierarchycontrol", "-C", "p", "shEnable", "clear")
        await expect(.configurationInvalid, "tpm2_hierarchycontrol") { _ = try await store.make() }
    }

    @Test func aPersistentParent() async throws {
        let store = try TPMStore()
        let directory = try TemporaryDirectory()
        try store.tpm.run("tpm2_createprimary", "-G", "ecc", "-c", directory["parent"])
        try store.tpm.run("tpm2_evictcontrol", "-c", directory["parent"], "0x81000001")
        try store.tpm.run("tpm2_flushcontext", "-t")
        let key = try await store.make(.p256, "tpm:", ["parent": "0x81000001"])
        #expect(try await key.signsValidly())
        // The key knows its parent, also under another configuration.
        let found = try store.store().storedKey(for: KeyReference(publicKey: key.publicKey, uri: ""))
        #expect(try await found?.signsValidly() == true)
        try store.tpm.run("tpm2_evictcontrol", "-c", "0x81000001")
        await expect(.notFound, "handle of the parent") { _ = try await key.signsValidly() }

        try store.tpm.run("tpm2_createprimary", "-G", "ecc", "-p", "secret", "-c", directory["other"])
        try store.tpm.run("tpm2_evictcontrol", "-c", directory["other"], "0x81000001")
        try store.tpm.run("tpm2_flushcontext", "-t")
        for reason in ["TPM2_Create", "rejected before", "rejected before"] {
            await expect(.unsupportedAlgorithm, reason) {
                _ = try await store.make(.p256, "tpm:", ["parent": "0x81000001"])
            }
        }
        let counter = try store.tpm.run("sh", "-c", "tpm2_getcap properties-variable | grep LOCKOUT_COUNTER")
        #expect(counter.contains("0x1"))
    }

    @Test func noTPM() async throws {
        let store = try TPMStore()
        await expect(.tokenNotPresent, "This host has no TPM at /dev/no-such-tpm") {
            try await store.store("tpm:", ["tcti": "device:/dev/no-such-tpm"]).check(NoUserInteraction())
        }
        await expect(.configurationInvalid, "without a resource manager") {
            _ = try store.store("tpm:", ["tcti": "device:/dev/tpm0"])
        }
        // A library, a program, a path without its kind, and whatever TPM the library finds.
        for wrong in ["/tmp/library.so", "cmd:program", "pcap:swtpm:", "/dev/tpmrm0", "device:tpmrm0", ":"] {
            await expect(.configurationInvalid, "must be device:PATH") { _ = try store.store("tpm:", ["tcti": wrong]) }
        }
        let directory = try TemporaryDirectory()
        let file = try directory.write("a text".utf8, to: "file")
        await expect(.tokenNotPresent, "is not the device of a TPM") {
            try await store.store("tpm:", ["tcti": "device:" + file]).check(NoUserInteraction())
        }
        #expect(try directory.read("file") == Array("a text".utf8))
        for wrong in ["0x4000000b", "81000001", "0x01c00002"] {
            await expect(.configurationInvalid, "from 0x81000000") { _ = try store.store("tpm:", ["parent": wrong]) }
        }
    }

    @Test func thePageHasEachParameter() throws {
        let page = try String(
            contentsOf: URL(filePath: #filePath).deletingLastPathComponent().appending(
                path: "../../Documentation/TPM.md"), encoding: .utf8)
        for parameter in KeyStoreDescriptor.tpm.parameters {
            #expect(page.contains("| `KeyStore.tpm.\(parameter.name)` | \(parameter.summary) |"), "\(parameter.name)")
        }
    }

    @Test("A TPM that hangs is an error after the time that it has, and works again later")
    func aTPMThatHangs() async throws {
        let store = try TPMStore()
        _ = try await store.make()
        let hanging = try store.store("tpm:", ["timeout": "1"])
        store.tpm.stop()
        await expect(.timedOut, "KeyStore.tpm.timeout") { try await hanging.check(NoUserInteraction()) }
        store.tpm.proceed()
        try await store.store().check(NoUserInteraction())
    }
}

/// Expects an error with a code, and words in its message.
func expect(
    _ code: ProviderError.Code, _ words: String, sourceLocation: SourceLocation = #_sourceLocation,
    _ body: () async throws -> Void
) async {
    do {
        try await body()
        Issue.record("nothing is thrown", sourceLocation: sourceLocation)
    } catch {
        let error = error as? ProviderError
        #expect(
            error?.code == code && error?.message.contains(words) == true,
            "\(error.map { "\($0)" } ?? "another error")", sourceLocation: sourceLocation)
    }
}
