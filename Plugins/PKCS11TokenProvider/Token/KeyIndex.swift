import CP11Kit
import CertificateProviding

/// Private keys by what certificates are matched with them by: each with each would take too long for thousands.
struct KeyIndex {
    private struct Name: Hashable {
        let id: [UInt8]
        let modulus: [UInt8]?
    }

    private let keys: [Name: [TokenReader.PrivateKey]]
    private let labels: [[UInt8]: Set<[UInt8]>]
    /// The keys that show their public key, by its modulus or by each form of its point.
    private let shown: [[UInt8]: [TokenReader.PrivateKey]]

    init(_ keys: [TokenReader.PrivateKey]) {
        self.keys = Dictionary(grouping: keys) { Name(id: $0.id, modulus: $0.modulus) }
        self.labels = Dictionary(keys.map { ($0.id, [$0.label]) }) { $0.union($1) }
        var shown: [[UInt8]: [TokenReader.PrivateKey]] = [:]
        for key in keys {
            for name in key.modulus.map({ [$0] }) ?? Array(key.points) { shown[name, default: []].append(key) }
        }
        self.shown = shown
    }

    func hasKey(id: [UInt8]) -> Bool { labels[id] != nil }

    func hasKey(id: [UInt8], label: [UInt8]) -> Bool { labels[id]?.contains(label) ?? false }

    /// Whether a key may be found by its public key.
    var showsKeys: Bool { !shown.isEmpty }

    /// Returns the key that shows a public key, whatever its id.
    func key(for publicKey: PublicKeyInfo) -> TokenReader.PrivateKey? {
        for name in publicKey.rsaModulus.map({ [$0] }) ?? publicKey.points {
            if let key = shown[name]?.first(where: { $0.mayBe(publicKey) }) { return key }
        }
        return nil
    }

    /// Returns the key with this id that may belong to a public key.
    func key(for publicKey: PublicKeyInfo, id: [UInt8]) -> TokenReader.PrivateKey? {
        // RSA keys need not show their modulus.
        for modulus in publicKey.rsaModulus.map({ [$0, nil] }) ?? [nil] {
            let key = keys[Name(id: id, modulus: modulus)]?.first { $0.mayBe(publicKey) }
            if let key { return key }
        }
        return nil
    }
}

extension TokenReader.PrivateKey {
    /// Whether something says whose private half this is, so that ``mayBe(_:)`` does.
    var showsPublicKey: Bool { modulus != nil || !points.isEmpty }

    /// Whether this may be the private half of a public key. Without a public key beside it, only a signature tells.
    func mayBe(_ publicKey: PublicKeyInfo) -> Bool {
        guard isOfKind(of: publicKey) else { return false }
        if let modulus { return publicKey.rsaModulus == modulus }
        return points.isEmpty || publicKey.points.contains { points.contains($0) }
    }

    private func isOfKind(of publicKey: PublicKeyInfo) -> Bool {
        switch type {
        case CK_KEY_TYPE(CKK_RSA): publicKey.algorithm == .rsa
        // Before PKCS#11 3.0 there was no other type for Ed25519.
        case CK_KEY_TYPE(CKK_EC): publicKey.algorithm != .rsa
        // Ed448 too, of which is said later that it cannot be used.
        case CK_KEY_TYPE(CKK_EC_EDWARDS): ![.rsa, .ec].contains(publicKey.algorithm)
        default: true
        }
    }
}

extension PublicKeyInfo {
    /// The possible values of `CKA_EC_POINT` for this key: uncompressed, or compressed (SEC 1, section 2.3.3).
    fileprivate var points: [[UInt8]] {
        // A point is a byte that says how it is written, and two numbers of one length.
        guard algorithm == .ec, keyBits.first == 4, keyBits.count >= 3, !keyBits.count.isMultiple(of: 2),
            let last = keyBits.last
        else { return [keyBits] }
        return [keyBits, [2 | (last & 1)] + keyBits[1...(keyBits.count / 2)]]
    }
}
