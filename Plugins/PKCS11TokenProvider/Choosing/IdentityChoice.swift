import CertificateProviding
import FoundationEssentials

/// Which of the identities that a URI matches is meant.
///
/// Only the decision: nothing is read and nothing is sent here.
enum IdentityChoice {
    /// What is known of an identity.
    struct Candidate {
        /// Its key, and the token that it is on.
        var key: Key
        /// The certificate's DER.
        var certificate: [UInt8]
        /// Whether its key may be used: the login has been made, or it needs none. To sign with another one would send its
        /// token a PIN that is for this one.
        var isOpen = true
        /// Whether the certificate permits client authentication.
        var isForClients = true
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
        /// Nothing tells these apart.
        case several([Int])
    }

    /// One rule after the other; a rule that none of the rest fits is passed over.
    ///
    /// - Parameter remembered: Returns those with the key of the identity that was chosen last; called where that matters.
    static func verdict(
        on candidates: [Candidate], remembered: ([Int]) throws(CertificateProviderError) -> [Int]
    ) throws(CertificateProviderError) -> Verdict {
        var rest = candidates.indices.filter { candidates[$0].isOpen }
        for rule in [\Candidate.isForClients, \.canSign] {
            let fitting = rest.filter { candidates[$0][keyPath: rule] }
            if !fitting.isEmpty { rest = fitting }
        }
        rest = newest(rest, of: candidates)
        if rest.count > 1 {
            // A renewal with a new key keeps the old one until the new one works.
            let known = try remembered(rest)
            if !known.isEmpty { rest = known }
        }
        guard let first = rest.first else { return .none }
        return rest.count == 1 ? .one(first) : .several(rest)
    }

    /// Of the certificates of one key on one token, those that a renewal has not replaced: valid ones before others,
    /// then the latest. Of one that a tool has written twice, the first.
    private static func newest(_ indices: [Int], of candidates: [Candidate]) -> [Int] {
        let newest = Dictionary(
            indices.map { (candidates[$0].key, Age(candidates[$0])) }, uniquingKeysWith: max)
        var seen: [Key: Set<[UInt8]>] = [:]
        return indices.filter { index in
            let candidate = candidates[index]
            return newest[candidate.key] == Age(candidate)
                && seen[candidate.key, default: []].insert(candidate.certificate).inserted
        }
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
