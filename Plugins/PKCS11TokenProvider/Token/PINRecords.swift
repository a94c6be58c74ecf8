import CertificateProviding
import Crypto
import Glibc

/// The records of logins in the identity store, one for each serial number.
struct PINRecords: Sendable {
    let storage: any IdentityStorage
    /// How long to wait for a lease, where nothing else limits it.
    let timeout: Duration

    /// How long every process waits for its turn: SoftHSM fails now and then when several processes log in at once.
    /// After that, those that wait take a success for their own: fifty logins of half a second each would take too long.
    private static let turns = Duration.seconds(1)
    /// In microseconds.
    private static let pause: useconds_t = 2000
    /// In microseconds, where the record is read each time.
    private static let longPause: useconds_t = 20_000
    /// The part of the caller's time that remains for its error.
    private static let reserve = Duration.milliseconds(250)

    enum Turn {
        case mine(RecordLease)
        /// Another login has established the fact that `isKnown` asks for.
        case known
        /// Other logins took all the time, or the process ends.
        case busy
    }

    subscript(token: Slot.Identity) -> PINRecord {
        get throws(ProviderError) {
            guard let stored = try storage.record(named: Self.name(of: token)) else { return PINRecord() }
            return try PINRecord(stored)
        }
    }

    /// - Parameter change: Returns whether the record is to be written.
    func update(
        _ token: Slot.Identity, _ change: (inout PINRecord) throws(ProviderError) -> Bool
    ) throws(ProviderError) {
        try storage.updateRecord(named: Self.name(of: token)) { stored throws(ProviderError) in
            var record = PINRecord()
            if let stored { record = try PINRecord(stored) }
            return try change(&record) ? try record.encoded() : nil
        }
    }

    /// Waits for the turn to log in to a token, which postpones the deadline of this thread's caller.
    ///
    /// - Parameters:
    ///   - hasWaited: Set to true if the turn was not free at once.
    ///   - isKnown: Whether the record makes the turn unnecessary. Asked after the token has accepted a PIN.
    func turn(
        at token: Slot.Identity, _ hasWaited: inout Bool, unless isKnown: (PINRecord) -> Bool
    ) throws(ProviderError) -> Turn {
        let start = ContinuousClock.now
        var (last, loginsBefore) = (start, UInt8?.none)
        while true {
            if let lease = try storage.leaseRecord(named: Self.name(of: token)) { return .mine(lease) }
            let now = ContinuousClock.now
            // At the end, what remains is for the error.
            ModuleCalls.postponeDeadline(by: now - last)
            last = now
            if loginsBefore == nil || now >= start + Self.turns, let record = try? self[token] {
                let logins = record.logins(of: token)
                if let loginsBefore, loginsBefore != logins, isKnown(record) { return .known }
                loginsBefore = loginsBefore ?? logins
            }
            let end = (ModuleCalls.deadline ?? start + timeout) - Self.reserve
            guard now < end, !ModuleEnd.isUnderWay else { return .busy }
            hasWaited = true
            usleep(now < start + Self.turns ? Self.pause : Self.longPause)
        }
    }

    /// Returns the serial number alone, if the token has one: a card that is given another label, or is seen through another
    /// module, does not have more tries for that. Software tokens often have only zeros.
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
        return "\(kind)-" + DisplayText.hexadecimal(SHA256.hash(data: Array(text.utf8))).prefix(32)
    }
}
