import CertificateProviding
import FoundationEssentials

/// Which of the identities that a URI matches is meant.
///
/// Only the decision: nothing is read and nothing is sent here.
enum IdentityChoice {
    struct Candidate {
        let certificate: X509Certificate
        /// The token that it is on.
        let token: ObjectIdentifier
        /// Whether its key may be used: the login has been made, or it needs none. To sign with another one would send its
        /// token a PIN that is for this one.
        let isOpen: Bool
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
    /// - Parameters:
    ///   - remembered: Returns the public key of the identity that was chosen last; called where that matters.
    ///   - now: When certificates have to be valid.
    static func verdict(
        on candidates: [Candidate], now: Date,
        remembered: () throws(CertificateProviderError) -> PublicKeyInfo?
    ) throws(CertificateProviderError) -> Verdict {
        var rest = candidates.indices.filter { candidates[$0].isOpen }
        let rules: [(X509Certificate) -> Bool] = [
            { $0.permitsClientAuthentication }, { SigningMechanism.isPossible(for: $0.publicKey) },
        ]
        for rule in rules { rest = rest.preferring { rule(candidates[$0].certificate) } }
        rest = newest(rest, of: candidates, now: now)
        if rest.count > 1, let known = try remembered() {
            // A renewal with a new key keeps the old one until the new one works.
            rest = rest.preferring { candidates[$0].certificate.publicKey.isSameKey(as: known) }
        }
        guard let first = rest.first else { return .none }
        return rest.count == 1 ? .one(first) : .several(rest)
    }

    /// Of the certificates of one key on one token, those that a renewal has not replaced: valid ones before others,
    /// then the latest. Of one that a tool has written twice, the first.
    private static func newest(_ indices: [Int], of candidates: [Candidate], now: Date) -> [Int] {
        var newest: [Holder: Age] = [:]
        for index in indices {
            let (holder, age) = (Holder(candidates[index]), Age(candidates[index].certificate, at: now))
            newest[holder] = max(newest[holder] ?? age, age)
        }
        var seen: [Holder: Set<X509Certificate>] = [:]
        return indices.filter { index in
            let (holder, certificate) = (Holder(candidates[index]), candidates[index].certificate)
            return newest[holder] == Age(certificate, at: now)
                && seen[holder, default: []].insert(certificate).inserted
        }
    }

    /// A token and a key on it.
    private struct Holder: Hashable {
        let token: ObjectIdentifier
        let algorithm: PublicKeyInfo.Algorithm
        let curve: String?
        let keyBits: [UInt8]

        init(_ candidate: Candidate) {
            let key = candidate.certificate.publicKey
            (token, algorithm, curve, keyBits) = (candidate.token, key.algorithm, key.curve, key.keyBits)
        }
    }

    /// The greatest is the one to use.
    private struct Age: Comparable {
        let isValid: Bool
        let start, end: Date

        init(_ certificate: X509Certificate, at now: Date) {
            isValid = certificate.status(at: now) == .valid
            (start, end) = (certificate.notValidBefore, certificate.notValidAfter)
        }

        static func < (left: Age, right: Age) -> Bool {
            if left.isValid != right.isValid { return right.isValid }
            return (left.start, left.end) < (right.start, right.end)
        }
    }
}

extension [Int] {
    /// Those that fit, or all if none does.
    fileprivate func preferring(_ fits: (Int) -> Bool) -> [Int] {
        let fitting = filter(fits)
        return fitting.isEmpty ? self : fitting
    }
}
