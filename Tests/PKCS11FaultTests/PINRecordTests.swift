import CertificateProviding
import Crypto
import Foundation
import TestSupport
import Testing

@testable import PKCS11TokenProvider

/// The record of PINs in the store.
@Suite struct PINRecordTests {
    private static let pin = SecretBytes(utf8: "1234")
    private static let other = SecretBytes(utf8: "9999")

    private static func token(_ label: String, serial: String = "123") -> Slot.Identity {
        Slot.Identity(manufacturer: "IBM", model: "Soft", serial: serial, label: label)
    }
    private let alpha = token("alpha")
    private let beta = token("beta")

    private func reread(_ record: PINRecord) throws -> PINRecord { try PINRecord(record.encoded()) }

    @Test func aRejectionCountsForEveryTokenWithThatSerialNumber() throws {
        var record = PINRecord()
        record.reject(Self.pin, by: alpha)
        let read = try reread(record)
        #expect(read.knowledge(of: Self.pin, on: alpha) == .init(isRejected: true))
        #expect(read.knowledge(of: Self.pin, on: beta) == .init(isRejected: true))
        #expect(read.knowledge(of: Self.other, on: alpha).isRejected == false)
    }

    @Test("A PIN that one token rejects stays good for the token that has accepted it")
    func itDoesNotForTheTokenThatHasAcceptedThePIN() throws {
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

    /// A person types the PIN.
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

    private enum Login: CaseIterable {
        case same, sameAgain, other, onAnotherToken
    }

    /// Those that have waited for their turn take another's success for their own, where it is of their PIN and token.
    @Test(arguments: Login.allCases) private func aLoginThatIsWaitedForCounts(login: Login) throws {
        let storage = InMemoryStorage()
        let isKnown = login == .same || login == .sameAgain
        let records = PINRecords(storage: storage, timeout: isKnown ? .seconds(600) : .milliseconds(1800))
        @Sendable func accept(_ pin: SecretBytes, by token: Slot.Identity) throws {
            try records.update(token) { record in
                record.accept(pin, by: token, isKept: true)
                return true
            }
        }
        try accept(Self.pin, by: alpha)
        // One PIN in 256 has the byte of the other.
        let others = (9000...9999).map { SecretBytes(utf8: "\($0)") }
        let other = try #require(others.first { try !records[alpha].isAccepted($0, by: alpha) })
        if login == .same { try accept(other, by: alpha) }
        var hasWaited = false
        guard case .mine(let lease) = try records.turn(at: alpha, &hasWaited, unless: { _ in false }) else {
            Issue.record("nothing has the lease")
            return
        }
        #expect(!hasWaited && !lease.isAwaited)
        let after = Thread {
            while !lease.isAwaited { usleep(1000) }
            // The look at what there was before comes right after that.
            usleep(200_000)
            try? accept(login == .other ? other : Self.pin, by: login == .onAnotherToken ? beta : alpha)
        }
        after.start()
        let turn = try records.turn(at: alpha, &hasWaited) { $0.knowledge(of: Self.pin, on: alpha).isRight }
        #expect(hasWaited)
        switch turn {
        case .known: #expect(isKnown)
        case .busy: #expect(!isKnown)
        case .mine: Issue.record("two have the lease")
        }
        withExtendedLifetime(lease) {}
    }

    @Test("The record has nothing of a PIN that a user has typed")
    func nothingIsKeptOfAPINThatAPersonTypes() throws {
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

    @Test func eachLoginChangesTheCountOfItsToken() throws {
        var record = PINRecord()
        for _ in 0..<200 {
            let before = (record.logins(of: alpha), record.logins(of: beta))
            record.accept(Self.pin, by: alpha, isKept: true)
            record = try reread(record)
            #expect(record.logins(of: alpha) != before.0 && record.logins(of: beta) == before.1)
            #expect(record.isAccepted(Self.pin, by: alpha) && !record.isCountShown(by: alpha))
        }
    }

    @Test("A damaged record of PINs is an error")
    func whatCannotBeReadIsAnError() throws {
        let whole = try PINRecord().encoded().withUnsafeBytes { Array($0) }
        let newer = Array(#"{"version":2,"pins":{}}"#.utf8)
        let damaged: [[UInt8]] = [[], [3], whole.dropLast(), whole + [1], Array(whole.prefix(20)), newer]
        for bytes in damaged {
            let error = #expect(throws: ProviderError.self, "\(bytes.count)") {
                try PINRecord(SecretBytes(copying: bytes))
            }
            #expect(error?.code == .storeReadFailed && error?.message.contains("newer") == (bytes == newer))
        }
    }

    @Test func oldOnesAreForgotten() throws {
        var record = PINRecord()
        for number in 0..<200 { record.reject(SecretBytes(utf8: "\(number)"), by: Self.token("\(number)")) }
        #expect(try record.encoded().count < 16384)
        #expect(try reread(record).knowledge(of: SecretBytes(utf8: "199"), on: alpha).isRejected)
    }
}
