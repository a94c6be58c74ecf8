import ArgumentParser
import CertificateProviding
import Contracts
import Terminal

struct CompleteCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "complete", abstract: "Fill in what is missing in a contract.",
        discussion: """
            contracts show names the keys. Other users of the host can read the values on a command line; give - to have KEY=VALUE read \
            from stdin, one a line.
            """)

    @OptionGroup var options: GlobalOptions
    @OptionGroup var contract: ContractArgument

    @Argument(help: ArgumentHelp("What is filled in, or - for stdin.", valueName: "key=value"))
    var values: [String]

    func validate() throws {
        if values.isEmpty { throw ValidationError("Name what is filled in: KEY=VALUE.") }
        if values.contains("-"), values.count > 1 { throw ValidationError("Give KEY=VALUE, or -: one of them.") }
        // Where the key ends in a text with more of them, only the contract says.
        let plain = values.filter { text in text.count { $0 == "=" } < 2 }
        if values != ["-"] { do { _ = try Self.pairs(plain) } catch { throw ValidationError(error.message) } }
    }

    func run() async throws {
        try await Context.run(options) { context throws(ProviderError) in
            let queue = try context.queue()
            let id = try queue.find(contract.id).id
            let texts = values == ["-"] ? try Self.lines() : values
            let contract = try queue.change(id) { contract throws(ProviderError) in
                guard contract.state.after(.filled(isComplete: true)) != nil else {
                    throw ProviderError(
                        .operationNotAllowed,
                        "The contract \(contract.id) is \(contract.state.rawValue); only one that is incomplete is filled in. To correct a value, abandon it, and have it put in again."
                    )
                }
                let missing = contract.content.missing
                let content = try contract.content.filling(try Self.pairs(texts, missing))
                guard let next = contract.state.after(.filled(isComplete: content.missing.isEmpty)) else { return }
                contract.version.content = content
                contract.version.state = next.state
                if next.effects.contains(.send) { contract.isUnsent = true }
            }
            return try context.show(contract, of: queue)
        }
    }

    /// - Parameter keys: Those that are missing, which may have a `=` themselves: the longest counts.
    /// - Throws: `usage` for a text without `=`, and a key that is given twice.
    static func pairs(
        _ texts: [String], _ keys: [String] = []
    ) throws(ProviderError) -> [String: String] {
        var pairs: [String: String] = [:]
        for text in texts {
            let length = keys.map(\.utf8).filter { text.utf8.starts(with: Array($0) + "=".utf8) }.map(\.count).max()
            let end = length.map { text.utf8.index(text.startIndex, offsetBy: $0) }
            guard let equals = end ?? text.utf8.firstIndex(of: UInt8(ascii: "=")), equals > text.startIndex else {
                throw ProviderError(
                    .usage, "'\(DisplayText.visible(text))' is not KEY=VALUE; write the key, =, and the value.")
            }
            let key = String(text[..<equals])
            guard pairs.updateValue(String(Substring(text[equals...].utf8.dropFirst())), forKey: key) == nil else {
                throw ProviderError(
                    .usage, "'\(DisplayText.visible(key))' is given twice; remove one.")
            }
        }
        return pairs
    }

    private static func lines() throws(ProviderError) -> [String] {
        let bytes = try InputFile("-").read(atMost: 1 << 20)
        return try bytes.split(separator: UInt8(ascii: "\n")).map { line throws(ProviderError) in
            guard let text = String(validating: line.last == 0x0d ? line.dropLast() : line, as: UTF8.self) else {
                throw ProviderError(
                    .malformedData, "stdin is not UTF-8; write KEY=VALUE, one a line, in UTF-8.")
            }
            return text
        }.filter { !$0.isEmpty }
    }
}
