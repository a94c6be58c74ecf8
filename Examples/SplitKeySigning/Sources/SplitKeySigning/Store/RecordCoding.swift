import CertificateProviding

extension VersionedRecord {
    /// The format of a record of this program.
    init(named name: String) {
        self.init(of: name, ifDamaged: "restore it from a backup, or enrol again: dvs enrol", writtenBy: "dvs")
    }
}

/// The content of a record that is replaced unread.
struct AnyRecord: Codable, Sendable {}
