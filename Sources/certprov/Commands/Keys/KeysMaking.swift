import ArgumentParser
import CertificateProviding
import Glibc
import NamedKeys
import Terminal

struct KeysCreate: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "create",
        abstract: "Make a key pair, and show its public key: base64 of the SubjectPublicKeyInfo.",
        discussion: """
            A name that exists is an error (alreadyExists), and its pair stays. The private key never leaves a token. A query of \
            the key store's URI, such as ?pin-source=file:/etc/pin, is stored for later uses.
            """)

    @OptionGroup var options: GlobalOptions
    @OptionGroup var pair: KeyNameArgument
    @OptionGroup var new: NewPairOptions
    @OptionGroup var pin: KeysPINOption

    @Option(
        help: ArgumentHelp(
            "The type of the key: \(KeyType.allCases.map(\.rawValue).joined(separator: ", ")). Default: rsa2048.",
            valueName: "type"))
    var type: KeyType?

    func validate() throws { try options.refuseProvider() }

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let name = pair.name
            let keys = try await context.namedKeys(pin.source, in: new.place)
            let made = try await keys.create(
                name, type: type ?? .rsa2048, in: new.place, isConfirmed: new.confirm, context.interaction)
            try context.show(NamedKeyDocument(key: NamedKeyItem(made))) { made.publicKeyBase64 + "\n" }
            return .done
        }
    }
}

struct KeysImport: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "import",
        abstract: "Take a private key from a PEM file in, and show its public key.",
        discussion: """
            The key is PKCS#8, PKCS#1 or SEC1, encrypted or not. The file stays as it is; remove it when it is not needed any more. \
            The key store must take in keys: store: does, a token does not. A key of an identity is refused.
            """)

    @OptionGroup var options: GlobalOptions
    @OptionGroup var pair: KeyNameArgument

    @Argument(help: ArgumentHelp("The PEM file with the private key.", valueName: "file"), completion: .file())
    var file: String

    @OptionGroup var new: NewPairOptions
    @OptionGroup var pin: KeysPINOption

    @Option(
        help: ArgumentHelp(
            "The source of the password of an encrypted key, such as file:PATH. Default: prompt.", valueName: "source"))
    var passwordSource: String?

    func validate() throws {
        try options.refuseProvider()
        if let passwordSource, SecretSource(passwordSource) == nil {
            throw ValidationError("--password-source must be file:PATH, env:NAME, fd:N, systemd:NAME or prompt.")
        }
    }

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let name = pair.name
            let interaction = context.interaction
            let keys = try await context.namedKeys(pin.source, in: new.place)
            let pem = try PEMFile(path: file)
            var status = stat()
            if stat(file, &status) == 0, status.st_mode & 0o077 != 0 {
                context.remark(
                    "\(file.withVisibleControls) is open to other users, who may know the private key; run: "
                        + "chmod 600 \(file.shellQuoted)")
            }
            var password: SecretBytes?
            if pem.blocks.contains(where: \.isEncrypted) {
                let source = passwordSource.flatMap { SecretSource($0) } ?? .prompt
                password = try await context.secret(source, "Password for \(file)", interaction)
            }
            let made = try await keys.importKey(
                name, from: pem, password: password, in: new.place, isConfirmed: new.confirm,
                notAmong: try await context.identityKeys(), interaction)
            try context.show(NamedKeyDocument(key: NamedKeyItem(made))) { made.publicKeyBase64 + "\n" }
            return .done
        }
    }
}

struct KeysDelete: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "delete",
        abstract: "Destroy a key pair for good, and say whether there was one: true or false.")

    @OptionGroup var options: GlobalOptions
    @OptionGroup var pair: KeyNameArgument
    @OptionGroup var pin: KeysPINOption

    @Flag(help: "Leave the private key where it is: for one on a token that is gone.")
    var keepKey = false

    func validate() throws { try options.refuseProvider() }

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let name = pair.name
            let keys = try await context.namedKeys(pin.source)
            let existed = try await keys.delete(name, keepingKey: keepKey, context.interaction)
            try context.show(DeletedKeyDocument(name: name.description, existed: existed)) { "\(existed)\n" }
            return .done
        }
    }
}

/// The result of `keys delete`.
private struct DeletedKeyDocument: CommandDocument {
    static let kind = "NamedKeyDeletion"

    let name: String
    /// Whether there was a pair of that name.
    let existed: Bool
}
