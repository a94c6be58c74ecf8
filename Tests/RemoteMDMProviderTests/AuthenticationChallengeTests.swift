import NIOHTTP1
import Testing

@testable import ProviderTransport
@testable import RemoteMDMProvider

@Suite struct AuthenticationChallengeTests {
    @Test(arguments: [
        (["Basic realm=\"x\""], ["basic realm=x"]), (["Negotiate, Basic realm=x"], ["negotiate", "basic realm=x"]),
        (["Negotiate YII==, Basic realm=\"x\""], ["negotiate", "basic realm=x"]),
        (["NTLM TlRMTVNTUAAC/+w , Basic realm=x"], ["ntlm", "basic realm=x"]),
        (["Negotiate YII=="], ["negotiate"]), (["Basic realm=\"x\", Negotiate YII="], ["basic realm=x", "negotiate"]),
        (["Digest realm=\"a, b\", nonce=n, Basic realm=\"c\""], ["digest nonce=n realm=a, b", "basic realm=c"]),
        (["Bearer error=invalid_token, realm=x"], ["bearer error=invalid_token realm=x"]),
        (["Basic realm = \"x\" , charset=UTF-8", "Negotiate"], ["basic charset=UTF-8 realm=x", "negotiate"]),
        ([""], []), ([",,"], []),
    ])
    func allChallengesAreRead(fields: [String], challenges: [String]) {
        let read = AuthenticationChallenge.all(in: .init(fields.map { ("WWW-Authenticate", $0) })).map { challenge in
            let parameters = challenge.parameters.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }
            return ([challenge.scheme] + parameters).joined(separator: " ")
        }
        #expect(read == challenges)
    }
}
