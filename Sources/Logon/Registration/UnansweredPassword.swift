import CertificateProviding
import FoundationEssentials
import IdentityStore

/// How often a password was sent that the platform server has neither accepted nor rejected: the connection was closed, a gateway
/// answered, or the process was killed. It may be wrong, and each time may have counted.
struct UnansweredPassword: Codable {
    private static let currentVersion = 1

    private var version = currentVersion
    /// Shows whether a password is this one, as for a rejected one.
    private let secret: Data
    /// How often it was sent.
    var count: Int
    /// When it was sent the last time.
    var last: Date

    /// Reads the record. That of another password counts for nothing: a password that was changed begins anew.
    ///
    /// - Throws: `storeReadFailed` for a record of a newer version.
    init(
        _ record: SecretBytes?, of password: SecretBytes, in vault: DataVault, now: Date
    ) throws(CertificateProviderError) {
        let former = record.flatMap { record in
            try? JSONDecoder().decode(UnansweredPassword.self, from: record.withUnsafeBytes { Data($0) })
        }
        if let former, former.version > Self.currentVersion {
            throw CertificateProviderError(
                .storeReadFailed,
                "The record of passwords without an answer was written by a newer certprov; update certprov.")
        }
        if let former, try vault.isRejected(password, by: SecretBytes(copying: former.secret)) {
            self = former
            // The clock was set back.
            last = min(last, now)
        } else {
            let shown = try vault.noting(rejected: password, in: nil)
            (secret, count, last) = (shown.withUnsafeBytes { Data($0) }, 0, now)
        }
    }

    func encoded() throws(CertificateProviderError) -> SecretBytes {
        let encoder = JSONEncoder()
        encoder.outputFormatting = .sortedKeys
        guard let data = try? encoder.encode(self) else {
            throw CertificateProviderError(.internal, "The record of a password cannot be encoded.")
        }
        return SecretBytes(copying: data)
    }

    /// When it may be sent again: once more at once, then after an hour, then once a day.
    var nextTry: Date {
        switch count {
        case ...1: last
        case 2: last + 3600
        default: last + 86400
        }
    }
}
