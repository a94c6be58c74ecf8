import CertificateProviding
import Foundation
import JWTKit
import ProviderTransport

/// The RSA keys of a JSON Web Key Set (RFC 7517) that sign with RS256. They are fetched again after ten minutes, and for a key that
/// is not there.
actor KeySet {
    private static let age: TimeInterval = 600
    /// The minimum time between two requests for a key that is not there.
    private static let pause: TimeInterval = 5

    private struct Set: Decodable {
        let keys: [Key]
    }

    /// A key of another kind, which other programs may use, is left out.
    private struct Key: Decodable {
        let kid: String?
        let key: Insecure.RSA.PublicKey?

        private enum Name: CodingKey { case kid, kty, use, alg, n, e }

        init(from decoder: any Decoder) throws {
            let members = try decoder.container(keyedBy: Name.self)
            func text(_ name: Name) -> String? { try? members.decode(String.self, forKey: name) }
            kid = text(.kid)
            guard text(.kty) == "RSA", ["sig", nil].contains(text(.use)), ["RS256", nil].contains(text(.alg)),
                let modulus = text(.n), let exponent = text(.e)
            else {
                key = nil
                return
            }
            key = try? Insecure.RSA.PublicKey(modulus: modulus, exponent: exponent)
        }
    }

    private let calls: ServerCalls
    private var keys: [Key] = []
    private var fetched = Date.distantPast

    init(_ calls: ServerCalls) { self.calls = calls }

    /// Returns the key of a token.
    ///
    /// - Parameters:
    ///   - kid: `nil` for a token that names none: then there must be one key.
    ///   - url: Where the keys are.
    /// - Returns: `nil` if there is no such key, or several.
    func key(
        _ kid: String?, at url: ServerURL, within budget: TimeBudget
    ) async throws(ProviderError) -> Insecure.RSA.PublicKey? {
        let age = calls.now().timeIntervalSince(fetched)
        if (0..<Self.age).contains(age) {
            if let key = key(kid) { return key }
            if age < Self.pause { return nil }
        }
        keys = try await calls.document(Set.self, at: url, within: budget).keys
        fetched = calls.now()
        return key(kid)
    }

    private func key(_ kid: String?) -> Insecure.RSA.PublicKey? {
        let found = keys.filter { $0.key != nil && (kid == nil || $0.kid == kid) }
        return found.count == 1 ? found[0].key : nil
    }
}
