import CertificateProviding
import FoundationEssentials

extension TokenLocator {
    /// A token and a key on it.
    private struct Holder: Hashable {
        let token: ObjectIdentifier
        let algorithm: PublicKeyInfo.Algorithm
        let curve: String?
        let keyBits: [UInt8]

        init(_ token: Token, _ key: PublicKeyInfo) {
            self.token = ObjectIdentifier(token)
            (algorithm, curve, keyBits) = (key.algorithm, key.curve, key.keyBits)
        }
    }

    /// The greatest is the one to use.
    private struct Age: Comparable {
        let isValid: Bool
        let start, end: Date

        static func < (left: Age, right: Age) -> Bool {
            if left.isValid != right.isValid { return right.isValid }
            return (left.start, left.end) < (right.start, right.end)
        }
    }

    /// Of the certificates of one key on one token, those that a renewal has not replaced: valid ones before others,
    /// then the latest. Of one that some tool has written twice, the first.
    func newest(_ candidates: [Found]) -> [Found] {
        let now = environment.now()
        let aged = candidates.map { found in
            let certificate = found.candidate.certificate
            return (
                found: found,
                holder: Holder(found.token, certificate.publicKey),
                age: Age(
                    isValid: certificate.status(at: now) == .valid, start: certificate.notValidBefore,
                    end: certificate.notValidAfter)
            )
        }
        let newest = Dictionary(aged.map { ($0.holder, $0.age) }, uniquingKeysWith: max)
        var seen: [Holder: Set<X509Certificate>] = [:]
        return aged.filter { one in
            newest[one.holder] == one.age
                && seen[one.holder, default: []].insert(one.found.candidate.certificate).inserted
        }.map(\.found)
    }
}
