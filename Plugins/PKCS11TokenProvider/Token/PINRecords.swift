import CertificateProviding
import Crypto
import Glibc

/// The records of what became of PINs, one for each serial number, in the identity store.
struct PINRecords: Sendable {
    let storage: any IdentityStorage
    /// How long to wait for a claim, where nothing else limits it.
    let timeout: Duration

    /// In microseconds.
    private static let pause: useconds_t = 2000
    /// How often those who wait look whether somebody else's login has told what they wait for.
    private static let pausesPerLook = 16
    /// What is left of a caller's time for saying that it was in vain.
    private static let reserve = Duration.milliseconds(250)

    enum Turn {
        case mine(RecordClaim)
        /// What was waited for has become known meanwhile.
        case known
        /// Another process, or another provider in this one, has it all the time.
        case busy
    }

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

    /// Waits for a turn at trying PINs on a token, for as long as the caller of this work waits.
    ///
    /// - Parameters:
    ///   - hasWaited: Becomes true where it was not there at once.
    ///   - isKnown: Whether a record, which has changed since, tells what is waited for.
    func turn(
        at token: Slot.Identity, _ hasWaited: inout Bool, unless isKnown: (PINRecord) -> Bool
    ) throws(CertificateProviderError) -> Turn {
        let end = (ModuleCalls.deadline ?? .now + timeout) - Self.reserve
        var first: (logins: UInt32, wasKnown: Bool)?
        for round in 0... {
            if let claim = try storage.claimRecord(named: Self.name(of: token)) { return .mine(claim) }
            if round % Self.pausesPerLook == 0, let record = try? self[token] {
                // What was known before they waited is no news: somebody may have logged in with another PIN.
                if let first, !first.wasKnown, first.logins != record.logins, isKnown(record) { return .known }
                first = first ?? (record.logins, isKnown(record))
            }
            guard ContinuousClock.now < end else { break }
            hasWaited = true
            usleep(Self.pause)
        }
        return .busy
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
