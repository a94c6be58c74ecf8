import CertificateProviding

/// The passcodes that were tried since the last right one, and the limit at that time: a file with the format version and both
/// numbers, in decimal digits, a line each. Without the file there were none.
///
/// Read and written with the vault's lock held.
struct VaultAttempts {
    static let file = "attempts"
    private static let version = "1"

    var count = 0
    var limit = 0

    /// Reads them from the application's directory.
    static func read(from directory: SafeDirectory) throws(SafeDirectory.Refusal) -> VaultAttempts {
        guard let bytes = try directory.read(file, atMost: 64) else { return VaultAttempts() }
        let lines = String(decoding: bytes, as: UTF8.self).split(separator: "\n", omittingEmptySubsequences: false)
        let numbers = lines.dropFirst().dropLast().compactMap { Int($0) }.filter { 0...1_000_000_000 ~= $0 }
        guard lines.count == 4, lines[0] == version, lines[3].isEmpty, numbers.count == 2 else {
            throw SafeDirectory.Refusal(
                reason:
                    "\(directory.path)/\(file) is damaged, or of a newer certprov; write '\(version)', the number of wrong "
                    + "attempts and their limit into it, a line each")
        }
        return VaultAttempts(count: numbers[0], limit: numbers[1])
    }

    /// They are on disk when it returns.
    func write(to directory: SafeDirectory, _ files: FileSystem) throws(SafeDirectory.Refusal) {
        let text = "\(Self.version)\n\(count)\n\(limit)\n"
        try directory.write(Array(text.utf8), to: Self.file, replacing: true, files)
    }

    /// Needs no room on the disk.
    static func remove(from directory: SafeDirectory, _ files: FileSystem) throws(SafeDirectory.Refusal) {
        try directory.remove(file, files)
        try directory.flush(files)
    }
}
