import CertificateProviding
import Foundation
import Testing

@testable import PKCS11TokenProvider

/// Which identity is meant, row by row.
@Suite struct IdentityChoiceTests {
    private final class Token: Sendable {}
    private static let (one, other) = (Token(), Token())

    struct Row: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let candidates: [Candidate]
        /// Those whose issuer is on the token: `nil` where that is not to be looked at.
        let chained: [Int]?
        /// Those with the key that was chosen last: `nil` where that is not to be looked at.
        let remembered: [Int]?
        let verdict: IdentityChoice.Verdict

        init(
            _ name: String, _ candidates: [Candidate], chained: [Int]? = nil, remembered: [Int]? = nil,
            then verdict: IdentityChoice.Verdict
        ) {
            testDescription = name
            self.candidates = candidates
            self.chained = chained
            self.remembered = remembered
            self.verdict = verdict
        }
    }

    struct Candidate: Sendable {
        /// The fields of a candidate.
        var key: UInt8 = 1
        var certificate: UInt8?
        var isOnOther = false
        var isOpen = true
        var permitsUsage = true
        var namesUsage = false
        var subject: UInt8 = 1
        var issuer: UInt8 = 1
        var canSign = true
        var isValid = true
        var start: TimeInterval = 0
        var end: TimeInterval = 100

        fileprivate var fact: IdentityChoice.Candidate {
            .init(
                key: .init(token: ObjectIdentifier(isOnOther ? other : one), bits: [key]),
                certificate: [certificate ?? key, UInt8(start), UInt8(end)], isOpen: isOpen, permitsUsage: permitsUsage,
                namesUsage: namesUsage, subject: [subject], issuer: [issuer], canSign: canSign, isValid: isValid,
                start: Date(timeIntervalSince1970: start),
                end: Date(timeIntervalSince1970: end))
        }
    }

    static let rows = [
        Row("none", [], then: .none),
        Row("one", [Candidate()], then: .one(0)),
        Row("one on a token that is closed", [Candidate(isOpen: false)], then: .none),
        Row(
            "two, of which one is on a token that is closed", [Candidate(key: 1, isOpen: false), Candidate(key: 2)],
            then: .one(1)),
        Row("one for servers only", [Candidate(permitsUsage: false)], then: .one(0)),
        Row("one for servers and one for clients", [Candidate(permitsUsage: false), Candidate(key: 2)], then: .one(1)),
        Row("one that cannot sign", [Candidate(canSign: false)], then: .one(0)),
        Row("one that cannot sign and one that can", [Candidate(canSign: false), Candidate(key: 2)], then: .one(1)),
        Row(
            "for clients counts more than whether it can sign",
            [Candidate(permitsUsage: false), Candidate(key: 2, canSign: false)], then: .one(1)),
        Row("two keys", [Candidate(key: 1), Candidate(key: 2)], remembered: [], then: .several([0, 1])),
        Row(
            "two keys, of which one was chosen last", [Candidate(key: 1), Candidate(key: 2)], remembered: [1],
            then: .one(1)),
        Row(
            "one key on two tokens, chosen last", [Candidate(), Candidate(isOnOther: true)], remembered: [0, 1],
            then: .several([0, 1])),
        Row("two certificates of a key: the later one", [Candidate(start: 2), Candidate(start: 1)], then: .one(0)),
        Row(
            "two that begin together: the one that ends later", [Candidate(end: 50), Candidate(end: 60)], then: .one(1)),
        Row("the later one is not valid", [Candidate(start: 1), Candidate(isValid: false, start: 2)], then: .one(0)),
        Row(
            "none is valid: the later one", [Candidate(isValid: false, start: 1), Candidate(isValid: false, start: 2)],
            then: .one(1)),
        Row("one certificate written twice", [Candidate(), Candidate()], then: .one(0)),
        Row(
            "two certificates of a key with the same dates", [Candidate(certificate: 1), Candidate(certificate: 2)],
            chained: [], remembered: [0, 1], then: .several([0, 1])),
        Row(
            "another subject's from the same issuer is a renewal",
            [Candidate(subject: 1, start: 1), Candidate(subject: 2, start: 2)], then: .one(1)),
        Row(
            "the same subject's from another issuer is a renewal, whatever it says of its usage",
            [Candidate(namesUsage: true, issuer: 1, start: 1), Candidate(issuer: 2, start: 2)], then: .one(1)),
        Row(
            "another subject's from another issuer is none: the one that names clients",
            [Candidate(namesUsage: true), Candidate(subject: 2, issuer: 2, start: 2)], then: .one(0)),
        Row(
            "both name clients: the one whose issuer is there",
            [
                Candidate(namesUsage: true, subject: 2, issuer: 2, start: 2),
                Candidate(namesUsage: true),
            ], chained: [1], then: .one(1)),
        Row(
            "nothing tells the certificates of two issuers apart",
            [Candidate(subject: 2, issuer: 2, start: 2), Candidate()], chained: [], remembered: [0, 1],
            then: .several([0, 1])),
        Row(
            "one of two issuers' is valid",
            [Candidate(namesUsage: true, isValid: false), Candidate(subject: 2, issuer: 2, start: 2)], then: .one(1)),
        Row(
            "two keys with a certificate of another issuer each",
            [
                Candidate(key: 1, namesUsage: true), Candidate(key: 1, subject: 2, issuer: 2, start: 2),
                Candidate(key: 2, namesUsage: true), Candidate(key: 2, subject: 2, issuer: 2, start: 2),
            ], remembered: [2], then: .one(2)),
        Row(
            "the later one of a key is on another token", [Candidate(start: 1), Candidate(isOnOther: true, start: 2)],
            remembered: [], then: .several([0, 1])),
        Row(
            "the later one is of another key", [Candidate(key: 1, start: 1), Candidate(key: 2, start: 2)],
            remembered: [], then: .several([0, 1])),
    ]

    @Test(arguments: rows) func row(_ row: Row) throws {
        var (hasRemembered, hasLooked) = (false, false)
        let verdict = try IdentityChoice.verdict(
            on: row.candidates.map(\.fact),
            chained: { indices in
                hasLooked = true
                return (row.chained ?? []).filter(indices.contains)
            },
            remembered: { _ in
                hasRemembered = true
                return row.remembered ?? []
            })
        #expect(verdict == row.verdict)
        #expect(hasRemembered == (row.remembered != nil) && hasLooked == (row.chained != nil))
    }
}
