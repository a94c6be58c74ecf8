public import CertificateProviding
import Glibc

/// The conformance suite for key stores. It makes keys and destroys them again; other keys of the store stay.
public struct KeyStoreConformance: Sendable {
    private let types: [KeyType]
    private let place: String?
    private let make: @Sendable () throws -> any KeyStore
    private let interaction: any UserInteraction
    private var files: WrittenFiles?
    /// The keys that were written down.
    private let made = BlockingMutex<[KeyReference]>([])

    /// Creates the suite.
    ///
    /// - Parameters:
    ///   - types: The types of key to make; nil for all that the store makes, but for large RSA keys.
    ///   - place: The URI by which a configuration names the store, such as `pkcs11:token=hsm`, to look there as its users do; nil for
    ///     the scheme alone.
    ///   - interaction: The user of the calls that may ask one.
    ///   - make: Returns the store of the same place each time, as after a restart.
    public init(
        _ types: [KeyType]? = nil, place: String? = nil, interaction: any UserInteraction = NoUserInteraction(),
        make: @escaping @Sendable () throws -> any KeyStore
    ) {
        self.types = types ?? KeyType.allCases.filter { $0 != .rsa3072 && $0 != .rsa4096 }
        (self.place, self.interaction, self.make) = (place, interaction, make)
    }

    /// Returns a suite for a key store in a process of its own.
    package func noting(files: WrittenFiles) -> KeyStoreConformance {
        var suite = self
        suite.files = files
        return suite
    }

    /// Runs all checks.
    ///
    /// - Parameter progress: Gets each result as soon as it is known.
    public func run(
        _ progress: @escaping @Sendable (ConformanceReport.Result) -> Void = { _ in }
    ) async -> ConformanceReport {
        var report = ConformanceReport(progress)
        var offered: [KeyType] = []
        var decrypting: KeyType?
        await report.check("offersKeys", "A key store says which types of key it makes, and for which uses.") {
            let store = try make()
            let makes = store.makes
            offered = types.filter { makes[$0] != nil }
            try require(!offered.isEmpty, "The store makes none of the types \(types).")
            decrypting = offered.first { makes[$0]?.decryptionSchemes.isEmpty == false }
            try require(!store.holds(keyURI: "no-such-scheme:x"), "The store holds a URI of another scheme.")
            // An answer, for which a process that is asked must not end.
            _ = store.holds(keyURI: place ?? store.scheme + ":")
            try await store.check(interaction)
            await store.shutdown()
        }
        for type in offered { await check(type, &report) }
        guard let type = offered.first else { return report }
        if let decrypting { await checkDecryption(decrypting, &report) }
        await checkAttestation(type, &report)
        await checkImport(type, &report)
        await report.check(
            "aKeyThatIsNotWrittenDownIsGone",
            "A key that remember did not write down is destroyed, and the error is its own."
        ) {
            let store = try make()
            let before = try await store.list().count
            let refused = BlockingMutex<KeyReference?>(nil)
            do {
                _ = try await store.make(NewKey(type, label: Self.label), interaction) {
                    key throws(ProviderError) in
                    note(key, in: store)
                    refused.withLock { $0 = store.reference(to: key) }
                    throw ProviderError(
                        .storeWriteFailed, "The conformance suite refuses to write the key down.")
                }
                throw Failure(reason: "The key is made although remember throws.")
            } catch let error as ProviderError {
                try require(error.code == .storeWriteFailed, "The error is \(error.code), and not that of remember.")
            }
            let reference = try require(refused.withLock(\.self), "remember is not called.")
            let later = try self.make()
            try require(try later.storedKey(for: reference) == nil, "The key is found all the same.")
            try require(try await later.list().count == before, "The list shows the key all the same.")
            await later.shutdown()
        }
        await report.check(
            "guarantees",
            "A guarantee that the store cannot give is refused with unsupportedAlgorithm, and no key is made."
        ) {
            let store = try make()
            let before = try await store.list().count
            let new = NewKey(type, label: Self.label, guarantees: [KeyGuarantee(rawValue: "certprov-conformance")])
            do {
                _ = try await store.make(new, interaction) { note($0, in: store) }
                throw Failure(reason: "A key is made although the store cannot give the guarantee.")
            } catch let error as ProviderError {
                try require(
                    error.code == .unsupportedAlgorithm, "The error is \(error.code), and not unsupportedAlgorithm.")
            }
            try require(try await store.list().count == before, "The list shows a key that was not made.")
            await store.shutdown()
        }
        if let files { await check(files, type, &report) }
        await report.check("concurrentUse", "A key store is shared between tasks.") {
            let store = try make()
            let keys = try await withThrowingTaskGroup(of: (any IdentityKey).self) { tasks in
                for _ in 0..<4 { tasks.addTask { try await self.key(type, in: store) } }
                return try await tasks.reduce(into: []) { $0.append($1) }
            }
            try await withThrowingTaskGroup(of: Void.self) { tasks in
                for number in 0..<64 {
                    let key = keys[number % keys.count]
                    tasks.addTask { try await key.signsOnce() }
                }
                try await tasks.waitForAll()
            }
            for key in keys { try await store.destroy(store.reference(to: key), interaction) }
            await store.shutdown()
        }
        if !report.isPassed { await destroyRest() }
        return report
    }

    /// Destroys the keys of checks that have failed in between, as far as the store permits it.
    private func destroyRest() async {
        guard let store = try? make() else { return }
        for key in made.withLock(\.self) { _ = try? await store.destroy(key, interaction) }
        await store.shutdown()
    }

    private static let label = "certprov conformance"

    private func key(_ type: KeyType, in store: any KeyStore) async throws -> any IdentityKey {
        try await store.make(NewKey(type, label: Self.label), interaction) { note($0, in: store) }
    }

    private func note(_ key: any IdentityKey, in store: any KeyStore) {
        let reference = store.reference(to: key)
        made.withLock { $0.append(reference) }
    }

    private func check(_ type: KeyType, _ report: inout ConformanceReport) async {
        await report.check(
            "\(type)",
            "A key is written down before it is used, found again after a restart, by its public key alone too, listed, and "
                + "destroyed twice."
        ) {
            let store = try make()
            let written = BlockingMutex<KeyReference?>(nil)
            let key = try await store.make(NewKey(type, label: Self.label), interaction) { key in
                note(key, in: store)
                written.withLock { $0 = store.reference(to: key) }
            }
            let reference = try require(written.withLock(\.self), "remember is not called.")
            try require(
                key.publicKey == reference.publicKey, "Another key is returned than was written down.")
            try require(type.fits(key.publicKey), "The key is of another type: \(key.publicKey.displayName).")
            try require(
                store.holds(keyURI: reference.uri), "The store does not hold the URI \(reference.uri) of its key.")
            try await key.signsValidlyInEveryScheme()
            try require(key.decrypter == nil, "A key that is made for signatures only decrypts.")
            try require(key.use == .signing, "A key that is made for signatures has another use as well.")

            let later = try make()
            let found = try require(try later.storedKey(for: reference), "The key is not found after a restart.")
            try require(found.publicKey == key.publicKey, "Another key is found.")
            try await found.signsValidlyInEveryScheme()
            try require(found.decrypter == nil, "A key that was made for signatures only decrypts after a restart.")
            let asked = try require(try await later.key(for: reference, interaction), "The key is not found.")
            try await asked.signsOnce()
            // The key of a certificate that has no URI, and that of one whose configuration names the place of the key.
            for alone in ["", place ?? ""].map({ KeyReference(publicKey: key.publicKey, uri: $0) }) {
                for found in [try later.storedKey(for: alone), try await later.key(for: alone, interaction)] {
                    let found = try require(
                        found,
                        alone.uri.isEmpty
                            ? "The key is not found by its public key alone, in a reference with an empty URI."
                            : "The key is not found by its public key in a reference with the URI of the store, \(alone.uri)."
                    )
                    try require(found.publicKey == key.publicKey, "Another key is found by its public key.")
                    try await found.signsOnce()
                }
            }
            let unknown = try SoftwareKey.generate(.p256, location: .store).publicKey
            try require(
                try later.storedKey(for: KeyReference(publicKey: unknown, uri: "")) == nil,
                "A key is found for an unknown public key.")
            try require(
                try await later.list().contains { $0.reference.publicKey == key.publicKey },
                "The list does not show the key.")

            let chain = try ThrowAway.chain(for: key.publicKey)
            try await later.storeChain(chain, for: found, interaction)
            let other = try ThrowAway.chain(for: SoftwareKey.generate(.p256, location: .store).publicKey)
            do {
                try await later.storeChain(other, for: found, interaction)
                throw Failure(reason: "A chain for another key is stored.")
            } catch let error as ProviderError {
                try require(
                    error.code == .keyMismatch,
                    "A chain for another key is refused with \(error.code), and not with keyMismatch.")
            }
            if let certificates = later.certificates {
                // A plugin need not say that it keeps none.
                do {
                    let identity = try await certificates.identity(reference.uri, interaction)
                    try require(
                        identity.certificate == chain[0], "The identity has another certificate than was stored.")
                } catch let error as ProviderError where error.code == .notFound {}
                // As a configuration names the only identity of the store.
                if let place {
                    do { _ = try await certificates.identity(place, interaction) } catch let error
                        as ProviderError
                    {
                        try require(
                            [.notFound, .configurationInvalid].contains(error.code),
                            "The identity of the store itself, by its URI \(place), is refused with \(error.code), and not with "
                                + "notFound or configurationInvalid.")
                    }
                }
                try await certificates.removeOtherCertificates(than: chain[0], of: reference, interaction)
            }
            _ = try await later.announceDestruction(of: reference)
            try require(
                try await later.destroy(reference, interaction), "The store says of a key that it was not there.")
            for _ in 0..<2 {
                try await later.destroy(reference, interaction)
                try later.destroyStored(reference)
            }
            try require(try later.storedKey(for: reference) == nil, "The key is found after it was destroyed.")
            try require(
                try await !later.list().contains { $0.reference.publicKey == key.publicKey },
                "The list shows the key after it was destroyed.")
            await store.shutdown()
            await later.shutdown()
        }
    }
}

extension KeyStoreConformance {
    private func check(_ files: WrittenFiles, _ type: KeyType, _ report: inout ConformanceReport) async {
        await report.check("files", WrittenFiles.demand) {
            let store = try make()
            for label in files.labels {
                // A label may be refused.
                let key = try? await store.make(NewKey(type, label: label), interaction) { note($0, in: store) }
                let fault = files.fault()
                if let key { _ = try? await store.destroy(store.reference(to: key), interaction) }
                if let fault { throw Failure(reason: fault) }
            }
            let reference = store.reference(to: try await key(type, in: store))
            let copies = files.copiesOutside(of: reference.uri)
            defer { for copy in copies { unlink(copy.path) } }
            try await store.destroy(reference, interaction)
            for copy in copies {
                let other = KeyReference(publicKey: reference.publicKey, uri: copy.uri)
                let isFound = (try? store.storedKey(for: other)) != nil
                _ = try? await store.destroy(other, interaction)
                try require(
                    !isFound && access(copy.path, F_OK) == 0,
                    "The URI \(copy.uri) leads to a file outside of the plugin's directories. Check a URI before you use it in a path."
                )
            }
            await store.shutdown()
        }
    }

    /// Left out for a store that imports no keys.
    private func checkImport(_ type: KeyType, _ report: inout ConformanceReport) async {
        guard let store = try? make(), store.properties.importsKeys else { return }
        await report.check(
            "import", "A key that is imported is written down, found again after a restart, and destroyed."
        ) {
            let original = try SoftwareKey.generate(type, location: .store)
            let exporter = try require(original.exporter, "The key for the check cannot be exported.")
            let pkcs8 = try exporter.pkcs8Representation()
            let written = BlockingMutex<KeyReference?>(nil)
            let key = try await store.make(NewKey(pkcs8: pkcs8, label: Self.label), interaction) { key in
                note(key, in: store)
                written.withLock { $0 = store.reference(to: key) }
            }
            let reference = try require(written.withLock(\.self), "remember is not called.")
            try require(key.publicKey == original.publicKey, "Another key is returned than was imported.")
            let later = try make()
            let found = try require(try later.storedKey(for: reference), "The key is not found after a restart.")
            try await found.signsOnce()
            try await later.destroy(reference, interaction)
            try require(try later.storedKey(for: reference) == nil, "The key is found after it was destroyed.")
            await later.shutdown()
        }
        await store.shutdown()
    }

    /// Left out for a store whose keys do not attest.
    private func checkAttestation(_ type: KeyType, _ report: inout ConformanceReport) async {
        guard let store = try? make(), store.properties.attestsKeys else { return }
        await report.check(
            "attestation", "A key that attests does so over each 32 bytes, and over nothing else, also after a restart."
        ) {
            let made = try await key(type, in: store)
            let reference = store.reference(to: made)
            let later = try make()
            let found = try require(try later.storedKey(for: reference), "The key is not found after a restart.")
            for key in [made, found] { try await key.attestsValidly() }
            try await later.destroy(reference, interaction)
            await later.shutdown()
        }
        await store.shutdown()
    }

    private func checkDecryption(_ type: KeyType, _ report: inout ConformanceReport) async {
        await report.check(
            "decryption",
            "A key that is made for decryption decrypts by each scheme that it offers and by no other, also after a restart."
        ) {
            let store = try make()
            let makes = try require(store.makes[type], "The store no longer makes keys of type \(type).")
            // Each by itself: a key for one of them must not be usable for the other.
            for use in [KeyUse.pkcs1Decryption, .oaepDecryption] where makes.contains(use) {
                let use = makes.intersection(.signing).union(use)
                let key = try await store.make(NewKey(type, label: Self.label, use: use), interaction) {
                    note($0, in: store)
                }
                let reference = store.reference(to: key)
                let later = try make()
                let found = try require(try later.storedKey(for: reference), "The key is not found after a restart.")
                for key in [key, found] {
                    try await key.decryptsOnly(use.decryptionSchemes)
                    try key.saysItsUse()
                }
                try await later.destroy(reference, interaction)
                await later.shutdown()
            }
            await store.shutdown()
        }
    }
}

extension IdentityKey {
    fileprivate func signsOnce() async throws {
        let scheme = try require(signatureSchemes.first, "The key offers no signature scheme.")
        let signature = try await signature(for: [1, 2, 3], using: scheme)
        try require(
            publicKey.isValidSignature(signature, for: [1, 2, 3], using: scheme),
            "A signature with \(scheme) does not verify.")
    }
}
