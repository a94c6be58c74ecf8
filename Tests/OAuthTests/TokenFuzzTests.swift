import CertificateProviding
import TestSupport
import Testing

@testable import OAuth

/// Answers that were cut off or damaged: none, an error, or a token that fits into a header field.
@Suite struct TokenFuzzTests {
    private static let answers = [
        """
        {"access_token": "2YotnFZFEjr1zCsicMWpAA", "token_type": "Bearer", "expires_in": 3600, \
        "refresh_token": "tGzv3JOkF0XG5Qx2TlKWIA", "scope": "a b", "more": {"x": [1, [2, "\\u00fc\\n\\\"[{"]]}}
        """,
        #"{"access_token": "\u0041", "token_type": "bearer", "expires_in": "1e999999999"}"#,
        #"{"error": "invalid_grant", "error_description": "\ud83d\ude00 \u001b[0m", "error_uri": "https://example.com"}"#,
        // A token that is none, and a lifetime that is none.
        #"{"access_token": "a\tb\u000d\n", "token_type": "bearer", "expires_in": -3600}"#,
        #"{"access_token": "ab", "token_type": "bearer", "expires_in": -3600.5}"#,
    ].map { Array($0.utf8) }

    @Test("Each undamaged token response is read or refused as expected")
    func theAnswersAreRead() throws {
        let members = try Self.answers.map { try #require(TokenMembers($0)) }
        #expect(try TokenResponse(members[0], from: "server").scopes == ["a", "b"])
        let second = try TokenResponse(members[1], from: "server")
        #expect(second.token == SecretBytes(utf8: "A") && second.lifetime == TokenResponse.maximumLifetime)
        #expect(members[2].error == "invalid_grant")
        #expect(throws: ProviderError.self) { try TokenResponse(members[3], from: "server") }
        #expect(try TokenResponse(members[4], from: "server").lifetime == .zero)
    }

    @Test("A truncated token response is not read")
    func whatIsCutOffAnywhereIsNone() {
        for answer in Self.answers {
            for count in answer.indices { #expect(TokenMembers(Array(answer.prefix(count))) == nil, "\(count)") }
        }
    }

    @Test func damagedAnswersAreReadOrRefused() {
        var mutator = Mutator(seeds: Self.answers, seed: 6749)
        var rounds = FuzzRounds(atLeast: 10_000)
        while rounds.next() {
            guard let members = TokenMembers(mutator.next()),
                let response = try? TokenResponse(members, from: "server")
            else { continue }
            #expect(response.token.withUnsafeBytes { $0.allSatisfy { (0x21...0x7e).contains($0) } })
            #expect((.zero...TokenResponse.maximumLifetime).contains(response.lifetime))
        }
    }
}
