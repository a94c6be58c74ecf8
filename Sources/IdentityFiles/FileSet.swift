package import CertificateProviding
import OpenSSLSupport
import SwiftASN1

/// The files of an identity for other programs, in the forms that they read.
package struct FileSet: Sendable {
    /// A form of the files.
    package enum Format: String, Sendable, CaseIterable {
        /// `certificate.pem`, `chain.pem`, `ca.pem` for the trust bundle; with the key `key.pem` and `identity.pem` (RFC 7468).
        case pem
        /// `certificate.der`; with the key `key.der` (PKCS#8).
        case der
        /// `identity.p12`, which always has the key.
        case pkcs12

        /// Reads formats that are separated by commas; `nil` for an unknown one, or one that is there twice.
        package static func list(_ text: String) -> [Self]? {
            let words = text.split(separator: ",", omittingEmptySubsequences: false)
            let formats = words.compactMap { Self(rawValue: $0.filter { !$0.isWhitespace }) }
            return formats.count == words.count && Set(formats).count == formats.count ? formats : nil
        }

        package static let expectation = "must be pem, der and pkcs12, or some of them, separated by commas"
    }

    /// The form of the key in PEM.
    package enum KeyForm: String, Sendable, CaseIterable {
        /// Unencrypted PKCS#8.
        case pkcs8
        /// A key that only its TPM can use, for programs with OpenSSL's provider tpm2.
        case tss2

        fileprivate var label: String { self == .pkcs8 ? "PRIVATE KEY" : "TSS2 PRIVATE KEY" }
    }

    /// How `identity.p12` is encrypted.
    package struct PKCS12: Sendable {
        let password: SecretBytes
        /// For programs before OpenSSL 1.1: Triple DES and SHA-1.
        let isLegacy: Bool

        package init(password: SecretBytes, isLegacy: Bool) {
            self.password = password
            self.isLegacy = isLegacy
        }
    }

    struct File: Sendable {
        let name: String
        let content: [UInt8]
        let hasKey: Bool
        /// Whether a file with other bytes says the same: an encrypted one differs each time.
        var isEquivalent: @Sendable ([UInt8]) -> Bool = { _ in false }
    }

    private(set) var files: [File]
    private let identity: Identity
    private let formats: [Format]
    private var chain: String { identity.certificateChain.map(\.pemRepresentation).joined() }

    /// The names of files that are read again.
    static let (chainName, certificateDERName, trustName) = ("chain.pem", "certificate.der", "ca.pem")
    static let pkcs12Name = "identity.p12"
    /// The names of files with a key, first those that a set without a key takes it from.
    static let namesWithKey = ["key.pem", "key.der", "identity.pem", pkcs12Name]
    /// An RSA key of 16,384 bits has a fifth of that.
    static let maximumKeySize = 65_536
    var hasKey: Bool { files.contains(where: \.hasKey) }

    /// Creates the files of an identity.
    ///
    /// - Parameters:
    ///   - exportingKey: Whether to include the private key, unencrypted but in `identity.p12`.
    ///   - keyForm: The form of the key in PEM; no other format has another form than PKCS#8.
    ///   - pkcs12: Needed for that format.
    /// - Throws: `unsupportedAlgorithm` if the key is requested and cannot be exported, or its type cannot be in a PKCS#12 file;
    ///   `configurationInvalid` for a password with a NUL.
    package init(
        _ identity: Identity, exportingKey: Bool, keyForm: KeyForm = .pkcs8, formats: [Format] = [.pem],
        pkcs12: PKCS12? = nil
    ) throws(ProviderError) {
        self.identity = identity
        self.formats = formats
        files = []
        if formats.contains(.pem) {
            add("certificate.pem", Array(identity.certificate.pemRepresentation.utf8))
            add(Self.chainName, Array(chain.utf8))
            if let trust = identity.trust {
                add(Self.trustName, Array(trust.certificates.map(\.pemRepresentation).joined().utf8))
            }
        }
        if formats.contains(.der) { add(Self.certificateDERName, identity.certificate.derRepresentation) }
        guard exportingKey else { return }
        if keyForm != .pkcs8 {
            guard let wrapped = identity.key.wrapped, wrapped.label == keyForm.label else {
                throw ProviderError(
                    .unsupportedAlgorithm,
                    "The private key of '\(identity.certificate.subject)' has no form '\(keyForm.rawValue)': it is in no TPM. "
                        + "Remove Files.key-form, or use the key store tpm:.",
                    provider: identity.provenance.provider)
            }
            add(pem: wrapped.der, label: wrapped.label)
            return
        }
        guard let exporter = identity.key.exporter else {
            let form =
                identity.key.wrapped == nil ? "" : ", or in the form that only its TPM uses (Files.key-form = tss2)"
            throw ProviderError(
                .unsupportedAlgorithm,
                "The private key of '\(identity.certificate.subject)' cannot leave its "
                    + "\(identity.key.location.rawValue); write the files without the key (fetch without --export-key, or "
                    + "Files.key = false)\(form).",
                provider: identity.provenance.provider)
        }
        let key = try exporter.pkcs8Representation()
        add(key: key)
        if formats.contains(.pkcs12), let pkcs12 { try add(pkcs12, key) }
    }

    /// The content of a file; `nil` if the set has none of this name.
    package func content(of name: String) -> [UInt8]? { files.first { $0.name == name }?.content }

    private mutating func add(_ name: String, _ content: [UInt8]) {
        files.append(File(name: name, content: content, hasKey: false))
    }

    private mutating func add(key: SecretBytes) {
        if formats.contains(.pem) { add(pem: key, label: KeyForm.pkcs8.label) }
        if formats.contains(.der) {
            files.append(File(name: "key.der", content: key.withUnsafeBytes { Array($0) }, hasKey: true))
        }
    }

    private mutating func add(pem key: SecretBytes, label: String) {
        let der = key.withUnsafeBytes { Array($0) }
        let pem = Array((PEMDocument(type: label, derBytes: der).pemString + "\n").utf8)
        files.append(File(name: "key.pem", content: pem, hasKey: true))
        files.append(File(name: "identity.pem", content: pem + Array(chain.utf8), hasKey: true))
    }

    private mutating func add(_ form: PKCS12, _ key: SecretBytes) throws(ProviderError) {
        guard !form.password.withUnsafeBytes({ $0.contains(0) }) else {
            throw ProviderError(
                .configurationInvalid,
                "The password of identity.p12 contains a NUL character, which such a password cannot have; replace it.")
        }
        let chain = identity.certificateChain.map(\.derRepresentation)
        let library = OpenSSLLibrary()
        do throws(OpenSSLError) {
            let content = try library.pkcs12(
                key, chain, name: identity.provenance.alias ?? identity.certificate.subject, password: form.password,
                isLegacy: form.isLegacy)
            files.append(
                File(name: Self.pkcs12Name, content: content, hasKey: true) { existing in
                    library.isPKCS12(existing, of: key, chain, password: form.password, isLegacy: form.isLegacy)
                })
        } catch {
            throw ProviderError(
                .unsupportedAlgorithm,
                "The identity '\(identity.certificate.subject)' cannot be written as PKCS#12 (\(error)); remove pkcs12 from the "
                    + "formats.", provider: identity.provenance.provider, underlying: error)
        }
    }

    /// Returns the set with the trust bundle in the file of an earlier one, unless it has one of its own.
    func withTrust(from file: [UInt8]) -> FileSet {
        var copy = self
        if let place = files.firstIndex(where: { $0.name == Self.chainName }),
            !files.contains(where: { $0.name == Self.trustName })
        {
            copy.files.insert(File(name: Self.trustName, content: file, hasKey: false), at: place + 1)
        }
        return copy
    }

    /// Returns the set with the key in a file of an earlier one; `nil` if that is not the key of the certificate.
    func withKey(from file: [UInt8]) -> FileSet? {
        let pkcs8: SecretBytes
        if file.first == 0x30 {
            pkcs8 = SecretBytes(copying: file)
        } else {
            guard let blocks = try? PEMFile(file, named: Self.namesWithKey[0]).blocks, blocks.count == 1,
                blocks[0].label == KeyForm.pkcs8.label, let secret = blocks[0].secret
            else { return nil }
            pkcs8 = secret
        }
        guard let key = try? SoftwareKey(pkcs8: pkcs8, location: .file),
            key.publicKey == identity.certificate.publicKey
        else { return nil }
        var copy = self
        copy.add(key: pkcs8)
        return copy
    }
}
