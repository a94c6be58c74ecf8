import FoundationEssentials

/// Files that other projects wrote, where a folder of them is beside the checkout. They are not part of this
/// repository; what the suites depend on is made at run time.
public enum FieldFiles {
    /// A file and its expected outcome.
    public struct Row: Sendable, CustomStringConvertible {
        public var file, outcome, keyType, wrongPassword: String
        /// `nil` for no password at all.
        public var password: String?
        public var path: String
        public var description: String { file }
    }

    private static let folder = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent().appending(path: "shared/testdata/p12").path

    /// Whether there are any: no cases would pass for a success, so the tests are skipped then.
    public static let arePresent = !rows.isEmpty

    public static let rows: [Row] = {
        guard let index = try? String(contentsOfFile: folder + "/index.tsv", encoding: .utf8) else { return [] }
        return index.split(separator: "\n").dropFirst().map { line in
            let fields = line.split(separator: "\t", omittingEmptySubsequences: false).map(String.init)
            return Row(
                file: fields[0], outcome: fields[2], keyType: fields[5], wrongPassword: fields[8],
                password: fields[1] == "<absent>" ? nil : fields[1] == "<empty>" ? "" : fields[1],
                path: folder + "/" + fields[0])
        }
    }()
}
