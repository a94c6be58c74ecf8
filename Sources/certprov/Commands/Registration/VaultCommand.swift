import ArgumentParser
import CertificateProviding
import FoundationEssentials
import Glibc
import IdentityStore
import Logon
import Terminal

/// The subcommands for an application's own values.
struct VaultCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "vault",
        abstract: "Keep values of the application in its vault, such as passwords and tokens.",
        subcommands: [Get.self, Put.self, Names.self, Remove.self])

    private static func check(_ name: String) throws {
        if DataVault.isValid(valueName: name) { return }
        throw ValidationError(
            "The name of a value must have 1 to 128 bytes, no '/' or NUL, and not begin with a dot.")
    }

    struct Get: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "get", abstract: "Write a value to stdout, as it is.")

        @OptionGroup var options: GlobalOptions
        @Argument(help: "The name of the value.") var name: String

        func validate() throws { try VaultCommand.check(name) }

        func run() async throws {
            try await CommandContext.run(options) { context throws(ProviderError) in
                let vault = try await context.openedVault()
                guard let value = try vault.value(named: name) else {
                    throw ProviderError(
                        .notFound, "The vault has no value '\(name.withVisibleControls)'; see: certprov vault list")
                }
                guard options.json else {
                    try Console.print(value)
                    return .done
                }
                let base64 = value.withUnsafeBytes { Data($0).base64EncodedString() }
                try context.show(ValueDocument(name: name, base64: base64)) { "" }
                return .done
            }
        }
    }

    struct Put: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "put", abstract: "Set a value: what stdin has, or the secret of a source.")

        @OptionGroup var options: GlobalOptions
        @Argument(help: "The name of the value.") var name: String
        @Option(help: ArgumentHelp("The source of the value, such as file:PATH or prompt.", valueName: "source"))
        var source: String?

        func validate() throws {
            try VaultCommand.check(name)
            if let source, SecretSource(source) == nil {
                throw ValidationError("--source must be file:PATH, env:NAME, fd:N, systemd:NAME or prompt.")
            }
        }

        func run() async throws {
            try await CommandContext.run(options) { context throws(ProviderError) in
                let vault = try await context.openedVault()
                let value: SecretBytes
                if let source = source.flatMap({ SecretSource($0) }) {
                    value = try await context.secret(source, "Value of \(name)", context.interaction)
                } else if isatty(STDIN_FILENO) == 1 {
                    value = try await context.secret(.prompt, "Value of \(name)", context.interaction)
                } else {
                    value = try Self.standardInput()
                }
                try vault.setValue(value, named: name)
                if options.json { try context.show(NamesDocument(names: [name])) { "" } }
                return .done
            }
        }

        /// Everything that stdin has, up to 1 MiB.
        private static func standardInput() throws(ProviderError) -> SecretBytes {
            var buffer = [UInt8](repeating: 0, count: DataVault.maximumValue + 1)
            defer { buffer.withUnsafeMutableBytes { if let base = $0.baseAddress { explicit_bzero(base, $0.count) } } }
            var used = 0
            while used < buffer.count {
                let count = buffer.withUnsafeMutableBytes { bytes in
                    read(STDIN_FILENO, bytes.baseAddress?.advanced(by: used), bytes.count - used)
                }
                if count < 0 && errno == EINTR { continue }
                guard count >= 0 else {
                    throw ProviderError(
                        .fileNotFound, "stdin cannot be read: \(errorText(errno)).")
                }
                if count == 0 { return SecretBytes(copying: buffer[..<used]) }
                used += count
            }
            throw ProviderError(
                .usage, "stdin has more than the \(DataVault.maximumValue) bytes of a value.")
        }
    }

    struct Names: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "list", abstract: "Show the names of the values.")

        @OptionGroup var options: GlobalOptions

        func run() async throws {
            try await CommandContext.run(options) { context throws(ProviderError) in
                let names = try await context.openedVault().valueNames()
                try context.show(NamesDocument(names: names)) { names.map { $0.withVisibleControls + "\n" }.joined() }
                return .done
            }
        }
    }

    struct Remove: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "delete", abstract: "Remove a value. Succeeds if there is none.")

        @OptionGroup var options: GlobalOptions
        @Argument(help: "The name of the value.") var name: String

        func validate() throws { try VaultCommand.check(name) }

        func run() async throws {
            try await CommandContext.run(options) { context throws(ProviderError) in
                try await context.openedVault().removeValue(named: name)
                if options.json { try context.show(NamesDocument(names: [name])) { "" } }
                return .done
            }
        }
    }
}

extension CommandContext {
    /// Returns the vault of the application, unlocked.
    ///
    /// - Throws: `notFound` if the application is not registered, `vaultLocked`, and errors of the passcode.
    fileprivate func openedVault() async throws(ProviderError) -> DataVault {
        let (manager, vault) = try await registeredApplication()
        try await unlock(vault, of: manager, interaction)
        return vault
    }
}

/// The result of `vault get`.
private struct ValueDocument: CommandDocument {
    static let kind = "VaultValue"

    let name: String
    let base64: String
}

/// The result of the others: the names that there are, or that were changed.
private struct NamesDocument: CommandDocument {
    static let kind = "VaultNames"

    let names: [String]
}
