import CertificateProviding
import Testing

@testable import PKCS11TokenProvider

/// Which token gets the PIN, row by row.
@Suite struct LoginChoiceTests {
    struct Row: Sendable, CustomTestStringConvertible {
        let testDescription: String
        /// The tokens that have a login: whether each is logged in.
        let tokens: [Bool]
        var namesToken = false
        /// The visible identities: `nil` if the token cannot be read.
        var sight: LoginChoice.Sight?
        /// Those that the identity was on which was chosen last: `nil` where that is not to be looked at.
        var remembered: [Int]?
        let verdict: LoginChoice.Verdict

        init(
            _ name: String, _ tokens: [Bool], named: Bool = false, holders: [Int]? = nil, isComplete: Bool = true,
            remembered: [Int]? = nil, then verdict: LoginChoice.Verdict
        ) {
            testDescription = name
            self.tokens = tokens
            namesToken = named
            sight = holders.map { LoginChoice.Sight(holders: $0, isComplete: isComplete) }
            self.remembered = remembered
            self.verdict = verdict
        }
    }

    static let rows = [
        Row("no token has a login", [], then: .none),
        Row("logged in already", [true], then: .none),
        Row("all logged in already", [true, true], then: .none),
        Row("the only one, and the URI names it", [false], named: true, then: .token(0, isMeant: true)),
        Row("the only one, and it shows the identity", [false], holders: [0], then: .token(0, isMeant: true)),
        Row(
            "the only one, it shows nothing, and it was chosen last", [false], holders: [], remembered: [0],
            then: .token(0, isMeant: true)),
        Row(
            "the only one, and nothing says that it is meant", [false], holders: [], remembered: [],
            then: .token(0, isMeant: false)),
        Row(
            "the only one cannot be read, and was not chosen last", [false], holders: [], isComplete: false,
            remembered: [], then: .unreadable),
        Row(
            "the only one cannot be read, and was chosen last", [false], holders: [], isComplete: false,
            remembered: [0], then: .token(0, isMeant: true)),

        Row("two, and one shows the identity", [false, false], holders: [1], then: .token(1, isMeant: true)),
        Row(
            "two with the name of the URI, and one shows the identity", [false, false], named: true, holders: [1],
            then: .token(1, isMeant: true)),
        Row(
            "two, one shows the identity, the other cannot be read", [false, false], holders: [0], isComplete: false,
            then: .token(0, isMeant: true)),
        Row(
            "two show the identity, and one was chosen last", [false, false], holders: [0, 1], remembered: [1],
            then: .token(1, isMeant: true)),
        Row(
            "two show the identity, and none was chosen last", [false, false], holders: [0, 1], remembered: [],
            then: .several([0, 1])),
        Row(
            "three, and two of them show the identity", [false, false, false], holders: [0, 2], remembered: [],
            then: .several([0, 2])),
        Row(
            "two show nothing, and one was chosen last", [false, false], holders: [], remembered: [0],
            then: .token(0, isMeant: true)),
        Row(
            "two show nothing, and none was chosen last", [false, false], holders: [], remembered: [],
            then: .several([0, 1])),
        Row(
            "two show nothing, and one cannot be read", [false, false], holders: [], isComplete: false, remembered: [],
            then: .unreadable),

        Row("one is logged in, and shows the identity", [true, false], holders: [0], then: .none),
        Row(
            "one is logged in, the other shows the identity", [true, false], holders: [1],
            then: .token(1, isMeant: true)),
        Row(
            "one is logged in, and may have the identity: the other gets no PIN", [true, false], holders: [0, 1],
            remembered: [], then: .several([0, 1])),
        Row("one is logged in, and was chosen last", [true, false], holders: [0, 1], remembered: [0], then: .none),
        Row(
            "one is logged in, the other was chosen last", [true, false], holders: [], remembered: [1],
            then: .token(1, isMeant: true)),
        Row(
            "one is logged in, and nothing says which is meant", [true, false], holders: [], remembered: [],
            then: .several([0, 1])),
    ]

    @Test(arguments: rows) func row(_ row: Row) throws {
        var (hasRead, hasRemembered) = (false, false)
        let verdict = try LoginChoice.verdict(
            on: row.tokens, namesToken: row.namesToken,
            sight: {
                hasRead = true
                return row.sight ?? LoginChoice.Sight(holders: [])
            },
            remembered: { _ in
                hasRemembered = true
                return row.remembered ?? []
            })
        #expect(verdict == row.verdict)
        #expect(hasRead == (row.sight != nil) && hasRemembered == (row.remembered != nil))
    }

    /// Whatever is known, at most one token gets a PIN, and none that is not meant where there are others.
    @Test func inEveryCase() throws {
        for count in 0...3 {
            let subsets = (0..<1 << count).map { bits in (0..<count).filter { bits >> $0 & 1 == 1 } }
            for isLoggedIn in subsets {
                for holders in subsets {
                    for known in subsets {
                        for (named, complete) in [(true, true), (true, false), (false, true), (false, false)] {
                            let verdict = try LoginChoice.verdict(
                                on: (0..<count).map(isLoggedIn.contains), namesToken: named,
                                sight: { .init(holders: holders, isComplete: complete) },
                                remembered: { $0.filter(known.contains) })
                            guard case .token(let index, let isMeant) = verdict else { continue }
                            #expect(!isLoggedIn.contains(index))
                            #expect(holders.isEmpty || count == 1 && named || holders.contains(index))
                            #expect(isMeant || count == 1)
                        }
                    }
                }
            }
        }
    }
}
