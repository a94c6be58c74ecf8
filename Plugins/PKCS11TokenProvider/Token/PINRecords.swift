import CertificateProviding
import Crypto
import Glibc

/// The records of what became of PINs, one for each token, in the identity store.
struct PINRecords: Sendable {
    let storage: any IdentityStorage
    /// How long to wait for a claim.
    let patience: Duration

    /// In microseconds.
    private static let pause: useconds_t = 2000

    subscript(token: Slot.Identity) -> PINRecord {
        get throws(CertificateProviderError) {
            guard let stored = try storage.record(named: Self.name(of: token)) else { return PINRecord() }
            return try PINRecord(stored)
        }
    }

    /// - Parameter change: Returns whether the record is to be written.
    func update(
        _ token: Slot.Identity, _ change: (inout PINRecord) throws(CertificateProviderError) -> Bool
    ) throws(CertificateProviderError) {
        try storage.updateRecord(named: Self.name(of: token)) { stored throws(CertificateProviderError) in
            var record = PINRecord()
            if let stored { record = try PINRecord(stored) }
            return try change(&record) ? record.encoded : nil
        }
    }

    /// Returns `nil` while another process, or another provider in this one, has it all the time.
    func claim(
        of token: Slot.Identity, _ hasWaited: inout Bool
    ) throws(CertificateProviderError) -> RecordClaim? {
        let end = ContinuousClock.now + patience
        while true {
            if let claim = try storage.claimRecord(named: Self.name(of: token)) { return claim }
            guard ContinuousClock.now < end else { return nil }
            hasWaited = true
            usleep(Self.pause)
        }
    }

    /// By the serial number alone, where the token has one: a card that is given another label, or is seen through
    /// another module, has no more tries for that. Software tokens often have nothing but zeros.
    private static func name(of token: Slot.Identity) -> String {
        let hasSerial = token.serial.contains { $0 != "0" && $0 != " " }
        let known =
            hasSerial ? Slot.Identity(manufacturer: "", model: "", serial: token.serial, label: "") : token
        return known.recordName("pins")
    }
}

extension Slot.Identity {
    /// The name of a record of this token in the identity store.
    func recordName(_ kind: String) -> String {
        let text = [manufacturer, model, serial, label].joined(separator: "\0")
        return "\(kind)-" + Array(SHA256.hash(data: Array(text.utf8))).hexEncoded.prefix(32)
    }
}
