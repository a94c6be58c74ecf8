import CertificateProviding
import FoundationEssentials

/// Which of the identities that a URI matches is meant.
///
/// Only the decision: nothing is read and nothing is sent here.
enum IdentityChoice {
    /// The facts about an identity that the choice uses.
    struct Candidate {
        /// Its key, and the token that it is on.
        var key: Key
        /// The certificate's DER.
        var certificate: [UInt8]
        /// Whether its key may be used: the login has been made, or it needs none. To sign with another one would send its
        /// token a PIN that is for this one.
        var isOpen = true
        /// Whether the certificate permits the side of TLS that the identity is for.
        var permitsUsage = true
        /// Whether it names that side: one that names no usage may be meant for something else.
        var namesUsage = false
        /// The certificate's subject and issuer, in DER.
        var subject, issuer: [UInt8]
        /// Whether keys of this type can sign here at all.
        var canSign = true
        /// Whether the certificate is valid now.
        var isValid = true
        /// The certificate's `notBefore` and `notAfter`.
        var start, end: Date
    }

    struct Key: Hashable {
        var token: ObjectIdentifier
        var algorithm = PublicKeyInfo.Algorithm.ec
        var curve: String?
        var bits: [UInt8]
    }

    enum Verdict: Equatable {
        case none
        /// The one with this index.
        case one(Int)
        /// These cannot be told apart.
        case several([Int])
    }

    /// Applies one rule after the other. Skips a rule that none of the remaining candidates fits.
    ///
    /// - Parameters:
    ///   - chained: Returns those whose issuer is on their token; called where that matters.
    ///   - remembered: Returns those with the key of the identity that was chosen last; called where that matters.
    static func verdict(
        on candidates: [Candidate], chained: ([Int]) throws(ProviderError) -> [Int],
        remembered: ([Int]) throws(ProviderError) -> [Int]
    ) throws(ProviderError) -> Verdict {
        var rest = candidates.indices.filter { candidates[$0].isOpen }
        for rule in [\Candidate.permitsUsage, \.canSign] {
            let fitting = rest.filter { candidates[$0][keyPath: rule] }
            if !fitting.isEmpty { rest = fitting }
        }
        rest = try meant(newest(rest, of: candidates), of: candidates, chained)
        if rest.count > 1 {
            // A renewal with a new key keeps the old one until the new one works.
            let known = try remembered(rest)
            if !known.isEmpty { rest = known }
        }
        guard let first = rest.first else { return .none }
        return rest.count == 1 ? .one(first) : .several(rest)
    }

    /// Returns the certificates of each key on each token that a renewal has not replaced: valid ones before others, then the
    /// latest. A renewal keeps the subject or the issuer. Of a certificate that a tool has written twice, the first one.
    private static func newest(_ indices: [Int], of candidates: [Candidate]) -> [Int] {
        // The certificates of one key that were chosen so far, the latest first.
        struct Seen {
            var certificates: Set<[UInt8]> = []
            var subjects: [[UInt8]: Age] = [:]
            var issuers: [[UInt8]: Age] = [:]
        }
        var seen: [Key: Seen] = [:]
        // Certificates of the same age stay in their order.
        let latestFirst = indices.sorted { left, right in
            let (older, newer) = (Age(candidates[right]), Age(candidates[left]))
            return older < newer || !(newer < older) && left < right
        }
        let left = latestFirst.filter { index in
            let candidate = candidates[index]
            let age = Age(candidate)
            guard seen[candidate.key, default: Seen()].certificates.insert(candidate.certificate).inserted else {
                return false
            }
            for newer in [
                seen[candidate.key]?.subjects[candidate.subject], seen[candidate.key]?.issuers[candidate.issuer],
            ] {
                if let newer, age < newer { return false }
            }
            seen[candidate.key]?.subjects[candidate.subject] = age
            seen[candidate.key]?.issuers[candidate.issuer] = age
            return true
        }
        return left.sorted()
    }

    /// Returns, of the certificates of one key on one token that do not renew each other, those that name the usage: a
    /// device's attestation of its key is another certificate for it.
    private static func meant(
        _ indices: [Int], of candidates: [Candidate], _ chained: ([Int]) throws(ProviderError) -> [Int]
    ) throws(ProviderError) -> [Int] {
        var left: [Int] = []
        for (_, group) in Dictionary(grouping: indices, by: { candidates[$0].key }) {
            var rest = group
            for rule in [\Candidate.isValid, \.namesUsage] where rest.count > 1 {
                let fitting = rest.filter { candidates[$0][keyPath: rule] }
                if !fitting.isEmpty { rest = fitting }
            }
            if rest.count > 1 {
                let fitting = try chained(rest)
                if !fitting.isEmpty { rest = fitting }
            }
            left += rest
        }
        return left.sorted()
    }

    /// The greatest is the one to use.
    private struct Age: Comparable {
        let isValid: Bool
        let start, end: Date

        init(_ candidate: Candidate) {
            (isValid, start, end) = (candidate.isValid, candidate.start, candidate.end)
        }

        static func < (left: Age, right: Age) -> Bool {
            if left.isValid != right.isValid { return right.isValid }
            return (left.start, left.end) < (right.start, right.end)
        }
    }
}
