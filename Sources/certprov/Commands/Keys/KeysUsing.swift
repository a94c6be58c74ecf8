import ArgumentParser
import CertificateProviding
import FoundationEssentials
import NamedKeys
import Signing
import Terminal

struct KeysList: AsyncParsableCommand {
    static let configuration = CommandConfiguration(commandName: "list", abstract: "Show all key pairs.")

    @OptionGroup var options: GlobalOptions

    func validate() throws { try options.refuseProvider() }

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let pairs = try await context.namedKeys().list()
            try context.show(NamedKeyListDocument(items: pairs.map { NamedKeyItem($0) })) {
                guard !pairs.isEmpty else { return "" }
                var table = TextTable(header: ["NAME", "KEY", "CONFIRM", "URI"])
                for pair in pairs {
                    table.append([
                        pair.name.description.withVisibleControls, pair.publicKey.displayName,
                        pair.isConfirmed ? "yes" : "no", pair.uri.withVisibleControls,
                    ])
                }
                return table.text
            }
            return .done
        }
    }
}

/// The result of `keys list`.
private struct NamedKeyListDocument: CommandDocument {
    static let kind = "NamedKeyList"

    let items: [NamedKeyItem]
}

struct KeysExists: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "exists",
        abstract: "Say whether there is a key pair of that name: true (status 0) or false (status 1).",
        discussion: "Every error has another status, so that a script never takes one for an answer.")

    @OptionGroup var options: GlobalOptions
    @OptionGroup var pair: KeyNameArgument

    func validate() throws { try options.refuseProvider() }

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let name = pair.name
            let exists = try await context.namedKeys().exists(name)
            try context.show(PresenceDocument(name: name.description, exists: exists)) { "\(exists)\n" }
            return exists ? .done : .no
        }
    }
}

/// The result of `keys exists`.
private struct PresenceDocument: CommandDocument {
    static let kind = "NamedKeyPresence"

    let name: String
    let exists: Bool
}

struct KeysExport: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "export",
        abstract: "Show the public key of a pair: base64 of the SubjectPublicKeyInfo on one line, or PEM.",
        discussion: "The private key is never shown.")

    @OptionGroup var options: GlobalOptions
    @OptionGroup var pair: KeyNameArgument

    @Flag(help: "Show the public key in PEM, as openssl reads it.")
    var pem = false

    func validate() throws { try options.refuseProvider() }

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let name = pair.name
            let found = try await context.namedKeys().pair(named: name)
            try context.show(NamedKeyDocument(key: NamedKeyItem(found))) {
                pem ? found.publicKeyPEM : found.publicKeyBase64 + "\n"
            }
            return .done
        }
    }
}

struct KeysSign: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sign",
        abstract: "Sign a file, or stdin, with a key pair, and show the signature in base64.",
        discussion: """
            RSA signs by PKCS#1 v1.5 with SHA-512, or with SHA-256 by --hash sha256; an EC key by ECDSA with the hash of its curve \
            (DER); Ed25519 as it is. The signature is verified with the public key before it is shown. A pair that was made with \
            --confirm asks at the terminal, with the SHA-256 of the data.
            """)

    @OptionGroup var options: GlobalOptions
    @OptionGroup var pair: KeyNameArgument

    @Argument(help: ArgumentHelp("The file to sign. Default: stdin.", valueName: "file"), completion: .file())
    var file: String?

    @Option(help: ArgumentHelp("The hash of an RSA signature: sha512 or sha256. Default: sha512.", valueName: "hash"))
    var hash: String?

    @OptionGroup var pin: KeysPINOption

    private static let hashes = ["sha256": DigestAlgorithm.sha256, "sha512": .sha512]

    func validate() throws {
        try options.refuseProvider()
        if let hash, Self.hashes[hash] == nil { throw ValidationError("--hash must be sha512 or sha256.") }
    }

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let name = pair.name
            let keys = try await context.namedKeys(pin.source)
            let found = try await keys.pair(named: name)
            let algorithm = hash.flatMap { Self.hashes[$0] }
            let scheme = try found.scheme(algorithm)
            let input = try SignedInput(file)
            defer { withExtendedLifetime(input) {} }
            let signature = try await keys.sign(input.content, with: name, hash: algorithm, context.interaction)
            let base64 = Data(signature).base64EncodedString()
            let document = SignatureDocument(
                name: name.description, scheme: scheme.description, signature: base64)
            try context.show(document) { base64 + "\n" }
            return .done
        }
    }
}

/// The result of `keys sign`.
private struct SignatureDocument: CommandDocument {
    static let kind = "NamedKeySignature"

    let name: String
    /// The name in the TLS SignatureScheme registry.
    let scheme: String
    /// Base64.
    let signature: String
}
