import CertificateProviding
import Foundation
import TestSupport
import Testing

@testable import IdentityStore
@testable import SigningRequests

/// Damaged files, the same ones in every run.
@Suite struct StoredRequestsFuzzTests {
    @Test func aDamagedJournalIsReadAsFarAsItIsWhole() throws {
        let fixture = try RequestsFixture()
        let journal = fixture.journal()
        for index in 0..<4 {
            try journal.begin(
                RequestsFixture.entry("\(index)", approver: JournalEntry.unattended, requestID: "\u{1b}ü")
            )
            .finish(outcome: .signed)
            try journal.append(RequestsFixture.entry("\(index)", .init(.operationCanceled)))
        }
        let whole = try #require(fixture.bytes())
        let digest = RequestsFixture.digest(Array("1".utf8))
        var mutator = Mutator(seeds: [whole, Array(whole.suffix(700)), []], seed: 11)
        var rounds = FuzzRounds(atLeast: 2000)
        var found = 0
        while rounds.next() {
            let bytes = mutator.next()
            try fixture.directory.write(bytes, to: fixture.journalFile)
            let (entries, damaged) = try journal.entries(newest: 5)
            #expect(entries.count + damaged <= 5)
            if try journal.wasSigned(digest, client: 1, within: .seconds(86_400)) { found += 1 }
            _ = try journal.lastSigned(digest)
            #expect(try journal.unattendedApprovals(client: 1, within: .seconds(3600)) <= 9)
            // It takes a new line, and finds that.
            try journal.append(RequestsFixture.entry("new"))
            #expect(try journal.entries(newest: 1).entries.first == RequestsFixture.entry("new"), "\(bytes.hexEncoded)")
        }
        #expect(found > 10)
    }

    @Test func aDamagedQuestionIsNotShown() throws {
        let question = RequestsFixture.question([1, 2], text: "\u{1b}[1m ü \"")
        var mutator = Mutator(seeds: [Array(try JSONEncoder().encode(question)), Array("{}".utf8), []], seed: 12)
        var rounds = FuzzRounds(atLeast: 10_000)
        var whole = 0
        while rounds.next() {
            guard let read = PendingRequests.question(mutator.next()) else { continue }
            whole += 1
            #expect(read.serviceName.cut(to: 128).unicodeScalars.count <= 128)
        }
        #expect(whole > 5)
    }
}
