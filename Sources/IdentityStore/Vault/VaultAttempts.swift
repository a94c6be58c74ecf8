import CertificateProviding

/// The passcodes that were tried since the last right one, and the limit at that time: a file with the format version and both
/// numbers, in ten decimal digits, a line each. Without the file there were none.
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

    /// They are on disk when it returns. A file that exists is changed in place, which needs no room: on a full disk, the right
    /// passcode must still count as an attempt before it is tried. It has a few bytes in one sector, which a crash leaves old or
    /// new.
    func write(to directory: SafeDirectory, _ files: FileSystem) throws(SafeDirectory.Refusal) {
        let bytes = Array("\(Self.version)\n\(padded(count))\n\(padded(limit))\n".utf8)
        guard try !directory.overwrite(Self.file, with: bytes, files) else { return }
        try directory.write(bytes, to: Self.file, replacing: true, files)
    }

    /// All files have the same size.
    private func padded(_ number: Int) -> String {
        let digits = String(number)
        return String(repeating: "0", count: max(0, 10 - digits.count)) + digits
    }
}
