import CertificateProviding
import Crypto
import Foundation
import TestSupport
import Testing

@testable import PKCS11TokenProvider

/// What is remembered of PINs, as it rests in the store.
@Suite struct PINRecordTests {
    private static let pin = SecretBytes(utf8: "1234")
    private static let other = SecretBytes(utf8: "9999")

    private static func token(_ label: String, serial: String = "123") -> Slot.Identity {
        Slot.Identity(manufacturer: "IBM", model: "Soft", serial: serial, label: label)
    }
    private let alpha = token("alpha")
    private let beta = token("beta")

    private func reread(_ record: PINRecord) throws -> PINRecord { try PINRecord(record.encoded) }

    @Test func aRejectionCountsForEveryTokenWithThatSerialNumber() throws {
        var record = PINRecord()
        record.reject(Self.pin, by: alpha)
        let read = try reread(record)
        #expect(read.knowledge(of: Self.pin, on: alpha) == .init(isRejected: true))
        #expect(read.knowledge(of: Self.pin, on: beta) == .init(isRejected: true))
        #expect(read.knowledge(of: Self.other, on: alpha).isRejected == false)
    }

    @Test func itDoesNotForTheTokenThatHasAcceptedThePIN() throws {
        var record = PINRecord()
        record.accept(Self.pin, by: beta, isKept: true)
        record.reject(Self.pin, by: alpha)
        var read = try reread(record)
        #expect(read.knowledge(of: Self.pin, on: alpha) == .init(isRejected: true))
        #expect(read.knowledge(of: Self.pin, on: beta) == .init(isAccepted: true))
        // Until that one rejects it too.
        read.reject(Self.pin, by: beta)
        #expect(try reread(read).knowledge(of: Self.pin, on: beta) == .init(isRejected: true))
    }

    /// Somebody types it in by hand.
    @Test func anAcceptanceSettlesWhatThatTokenHasSaid() throws {
        var record = PINRecord()
        record.reject(Self.pin, by: alpha)
        record.accept(Self.pin, by: beta, isKept: false)
        var read = try reread(record)
        #expect(read.knowledge(of: Self.pin, on: alpha) == .init(isRejected: true))
        #expect(read.knowledge(of: Self.pin, on: beta) == .init(isAccepted: true))
        read.accept(Self.pin, by: alpha, isKept: false)
        #expect(try reread(read).knowledge(of: Self.pin, on: alpha).isRejected == false)
    }

    /// One that this process has seen accepted, and of which nothing is written down.
    @Test func anotherTokensRejectionIsNotThatOfATokenThatIsKnownToAccept() throws {
        var record = PINRecord()
        record.reject(Self.pin, by: beta)
        #expect(record.knowledge(of: Self.pin, on: alpha).isRejected)
        #expect(record.knowledge(of: Self.pin, on: alpha, isAccepted: true) == .init(isAccepted: true))
        record.reject(Self.pin, by: alpha)
        #expect(record.knowledge(of: Self.pin, on: alpha, isAccepted: true).isRejected)
    }

    /// Those that wait for their turn take an answer for their own: one that they did not know, of their PIN.
    @Test(arguments: [(true, true, false), (true, false, true), (false, true, false), (false, false, false)])
    func whoWaitsGoesOnWithNews(isSamePIN: Bool, wasKnown: Bool, goesOn: Bool) throws {
        let records = PINRecords(storage: InMemoryStorage(), timeout: .milliseconds(700))
        func change(_ change: (inout PINRecord) -> Void) throws {
            try records.update(alpha) { record in
                change(&record)
                return true
            }
        }
        try change { _ in }
        var accepting = try records[alpha]
        accepting.accept(Self.pin, by: alpha, isKept: true)
        // One PIN in 256 has the byte of the other.
        let others = (9000...9999).map { SecretBytes(utf8: "\($0)") }
        let other = try #require(others.first { !accepting.knowledge(of: $0, on: alpha).isAccepted })
        let pin = isSamePIN ? Self.pin : other
        if wasKnown { try change { $0.accept(pin, by: alpha, isKept: true) } }
        var hasWaited = false
        let mine = try records.turn(at: alpha, &hasWaited) { _ in false }
        guard case .mine(let claim) = mine else { throw CertificateProviderError(.internal, "\(mine)") }
        var looks = 0
        let turn = try records.turn(at: alpha, &hasWaited) { record in
            looks += 1
            // After the first look somebody else logs in.
            if looks == 1 { try? change { $0.accept(Self.pin, by: alpha, isKept: true) } }
            return record.knowledge(of: pin, on: alpha).isAccepted
        }
        if case .known = turn { #expect(goesOn) } else { #expect(!goesOn, "\(turn)") }
        withExtendedLifetime(claim) {}
    }

    @Test func nothingIsKeptOfAPINThatAPersonTypes() throws {
        var record = PINRecord()
        record.accept(Self.pin, by: alpha, isKept: false)
        #expect(try reread(record).knowledge(of: Self.pin, on: alpha) == .init())
    }

    @Test func loginsWithoutAnAnswerAreKept() throws {
        let unanswered = PINRule.Unanswered(
            count: 3, last: Date(timeIntervalSince1970: 2_000_000_000), wasCountLow: true)
        var record = PINRecord()
        record.set(unanswered, for: Self.pin, on: alpha)
        record.setCountShown(by: alpha)
        var read = try reread(record)
        #expect(read.knowledge(of: Self.pin, on: alpha).unanswered == unanswered)
        #expect(read.isCountShown(by: alpha) && !read.isCountShown(by: beta))
        read.set(nil, for: Self.pin, on: alpha)
        #expect(try reread(read).knowledge(of: Self.pin, on: alpha) == .init())
        #expect(try reread(read).isCountShown(by: alpha))
    }

    @Test func anAnswerChangesTheCountOfLogins() throws {
        var record = PINRecord()
        let before = record.logins
        record.accept(Self.pin, by: alpha, isKept: true)
        #expect(try reread(record).logins != before)
    }

    /// A record of version 1: no tokens, no times.
    private func version1(accepted: SecretBytes?, _ entries: [(UInt8, SecretBytes)]) -> SecretBytes {
        let key = [UInt8](repeating: 7, count: 32)
        func hash(_ pin: SecretBytes) -> [UInt8] {
            pin.withUnsafeBytes { Array(HMAC<SHA256>.authenticationCode(for: $0, using: SymmetricKey(data: key))) }
        }
        var bytes = [1] + key + [accepted == nil ? 0 : 1, accepted.map { hash($0)[0] } ?? 0]
        for (standing, pin) in entries { bytes += [standing] + hash(pin) }
        return SecretBytes(copying: bytes)
    }

    @Test func recordsOfVersion1StillCount() throws {
        let third = SecretBytes(utf8: "5678")
        let read = try reread(PINRecord(version1(accepted: Self.pin, [(3, Self.other), (2, third)])))
        for token in [alpha, beta] {
            #expect(read.knowledge(of: Self.pin, on: token) == .init(isAccepted: true))
            #expect(read.knowledge(of: Self.other, on: token).isRejected)
            let unanswered = try #require(read.knowledge(of: third, on: token).unanswered)
            #expect(unanswered.count == 2 && unanswered.last < Date(timeIntervalSinceNow: -86400))
        }
        // What is learnt since is one token's.
        var changed = read
        changed.accept(Self.other, by: beta, isKept: true)
        #expect(!changed.knowledge(of: Self.other, on: beta).isRejected)
    }

    @Test func whatCannotBeReadIsAnError() throws {
        let whole = PINRecord().encoded.withUnsafeBytes { Array($0) }
        let damaged: [[UInt8]] = [
            [], [3], [0] + whole.dropFirst(), whole.dropLast(), whole + [1], Array(whole.prefix(20)),
        ]
        for bytes in damaged {
            #expect(throws: CertificateProviderError.self, "\(bytes.count)") {
                try PINRecord(SecretBytes(copying: bytes))
            }
        }
    }

    @Test func oldOnesAreForgotten() throws {
        var record = PINRecord()
        for number in 0..<200 { record.reject(SecretBytes(utf8: "\(number)"), by: Self.token("\(number)")) }
        #expect(record.encoded.count < 4096)
        #expect(try reread(record).knowledge(of: SecretBytes(utf8: "199"), on: alpha).isRejected)
    }
}
