import CP11Kit
import CertificateProviding

extension TokenReader {
    /// The certificates on a token.
    struct Certificates {
        /// The certificates that have a key, or may have one: keys are hidden before login.
        var candidates: [Candidate] = []
        /// The certificates without a key; of many, the first ones.
        var keyless: [CK_OBJECT_HANDLE] = []
        var keylessCount = 0
    }

    /// Reads the certificates, one at a time: most objects on a token may belong to no identity.
    ///
    /// - Parameters:
    ///   - maximum: How many candidates are enough.
    ///   - failures: Gets the failures of single objects.
    func certificates(
        for uri: PKCS11URI, keys: KeyIndex, areKeysHidden: Bool, maximum: Int, failures: inout ObjectFailures
    ) throws(CryptokiError) -> Certificates {
        var attributes = [Attribute(CKA_CLASS, CKO_CERTIFICATE), Attribute(CKA_CERTIFICATE_TYPE, CK_ULONG(CKC_X_509))]
        if let id = uri.objectID { attributes.append(Attribute(CKA_ID, id)) }
        var result = Certificates()
        var strangers: [[UInt8]] = []
        // A certificate under another id than its key's is that key's where the key has none under its own.
        var isUnderOwnID: Set<CK_OBJECT_HANDLE> = []
        let reading = try each(session.objects(with: attributes), maximum: maximum) {
            handle throws(CryptokiError) -> Candidate? in
            let id = try session.attribute(CKA_ID, of: handle) ?? []
            guard areKeysHidden || keys.hasKey(id: id) else {
                if let pair = try pair(handle, id, keys, for: uri) { return pair }
                result.keylessCount += 1
                if result.keyless.count < Self.maximumRemarks { result.keyless.append(handle) }
                return nil
            }
            let label = try session.attribute(CKA_LABEL, of: handle) ?? []
            // Keys may have labels of their own, or, in some modules, none.
            if let wanted = uri.objectLabel, wanted != label, !keys.hasKey(id: id, label: wanted) { return nil }
            guard let value = try session.attribute(CKA_VALUE, of: handle), !value.isEmpty else { return nil }
            let certificate: X509Certificate
            do throws(ProviderError) { certificate = try X509Certificate(derRepresentation: value) } catch {
                failures.append(error.in(slot, id))
                return nil
            }
            let key = keys.key(for: certificate.publicKey, id: id)
            if let key { isUnderOwnID.insert(key.handle) }
            if key == nil, let pair = try pair(handle, id, keys, for: uri) { return pair }
            if key == nil, !areKeysHidden {
                strangers.append(id)
                return nil
            }
            // The issuer's certificate may lie beside it; it belongs to no identity here.
            if key == nil, certificate.isAuthority { return nil }
            return Candidate(
                handle: handle, certificate: certificate, id: id, label: label, key: key,
                uri: self.uri(of: key == nil ? CKO_CERTIFICATE : CKO_PRIVATE_KEY, id, key?.label ?? label))
        }
        failures.append(reading, on: slot)
        // Beside the key's own certificate another one may have the id, such as its issuer's.
        for id in Set(strangers).subtracting(reading.found.map(\.id)) {
            let error = ProviderError(
                .keyMismatch,
                "The private key with the id \(DisplayText.hexadecimal(id)) is not the key of the certificate with that id; "
                    + "replace one of them."
            )
            failures.append(error.in(slot, id))
        }
        // A key's label is that of all its certificates; one that has the label itself is meant more than the others.
        let pairs = reading.found.filter { candidate in
            guard let key = candidate.key, key.id != candidate.id else { return true }
            return !isUnderOwnID.contains(key.handle)
        }
        let named = pairs.filter { $0.label == uri.objectLabel }
        result.candidates = distinct(named.isEmpty ? pairs : named)
        return result
    }

    /// Returns a certificate with the key of another id that shows its public key; `nil` where there is none.
    private func pair(
        _ handle: CK_OBJECT_HANDLE, _ id: [UInt8], _ keys: KeyIndex, for uri: PKCS11URI
    ) throws(CryptokiError) -> Candidate? {
        guard keys.showsKeys else { return nil }
        let value: [UInt8]?
        do throws(CryptokiError) { value = try session.attribute(CKA_VALUE, of: handle) } catch {
            // Most certificates without a key are issuers': their failures do not matter.
            if error.endsConnection, !error.mayBeOfOneObject { throw error }
            return nil
        }
        guard let value, let certificate = try? X509Certificate(derRepresentation: value),
            let key = keys.key(for: certificate.publicKey)
        else { return nil }
        let label = try session.attribute(CKA_LABEL, of: handle) ?? []
        guard uri.objectLabel.map({ $0 == label || $0 == key.label }) ?? true else { return nil }
        return Candidate(
            handle: handle, certificate: certificate, id: id, label: label, key: key,
            uri: self.uri(of: CKO_PRIVATE_KEY, key.id, key.label))
    }

    /// Returns the keys and certificates of a token that are paired though their ids differ, where one of both has the id
    /// that a URI names; `nil` without any.
    func pairsOfDifferentIDs(
        for uri: PKCS11URI, _ id: [UInt8], maximum: Int
    ) throws(CryptokiError) -> (keys: [PrivateKey], certificates: Certificates)? {
        let keys = try privateKeys().found
        // Failures of other objects do not matter.
        var failures = ObjectFailures()
        let all = try self.certificates(
            for: uri.withoutID, keys: KeyIndex(keys), areKeysHidden: false, maximum: .max, failures: &failures)
        let pairs = all.candidates.filter { candidate in
            candidate.key.map { $0.id != candidate.id && [$0.id, candidate.id].contains(id) } ?? false
        }
        return pairs.isEmpty
            ? nil : (keys.filter { $0.id == id }, Certificates(candidates: Array(pairs.prefix(maximum))))
    }

    /// Gives certificates of one key the URIs of certificates, which tell them apart.
    private func distinct(_ candidates: [Candidate]) -> [Candidate] {
        let counts = Dictionary(candidates.map { ($0.uri, 1) }, uniquingKeysWith: +)
        return candidates.map { candidate in
            guard counts[candidate.uri] != 1 else { return candidate }
            var copy = candidate
            copy.uri = self.uri(of: CKO_CERTIFICATE, candidate.id, candidate.label)
            return copy
        }
    }

    func uri(of kind: CK_OBJECT_CLASS, _ id: [UInt8], _ label: [UInt8]) -> String {
        PKCS11URI.text(of: slot.token, class: kind, id: id, label: label)
    }

    /// Certificates by their subjects, each of which is looked for once: a thousand leaves may have one issuer.
    typealias Issuers = [[UInt8]: [X509Certificate]]

    /// Returns the chain of a leaf, as far as its issuers are on the token too.
    /// - Parameter known: The issuers of other leaves; gets those of this one.
    func chain(of leaf: X509Certificate, _ known: inout Issuers) throws(CryptokiError) -> [X509Certificate] {
        try CertificateChain.build(from: leaf) { certificate throws(CryptokiError) in
            if let issuers = known[certificate.issuerDER] { return issuers }
            let issuers = try certificates(withSubject: certificate.issuerDER)
            known[certificate.issuerDER] = issuers
            return issuers
        }
    }

    private func certificates(withSubject subject: [UInt8]) throws(CryptokiError) -> [X509Certificate] {
        try certificates(with: [Attribute(CKA_SUBJECT, subject)], maximum: 8).map(\.certificate)
    }

    /// Finds certificates and reads them. Leaves out those that cannot be parsed.
    /// - Parameter maximum: How many objects are enough.
    func certificates(
        with attributes: [Attribute], maximum: Int = .max
    ) throws(CryptokiError) -> [(handle: CK_OBJECT_HANDLE, certificate: X509Certificate)] {
        var found: [(CK_OBJECT_HANDLE, X509Certificate)] = []
        let objects = try session.objects(with: [Attribute(CKA_CLASS, CKO_CERTIFICATE)] + attributes)
        for object in objects.prefix(maximum) {
            guard let value = try session.attribute(CKA_VALUE, of: object),
                let certificate = try? X509Certificate(derRepresentation: value)
            else { continue }
            found.append((object, certificate))
        }
        return found
    }

    /// The objects that hold a certificate.
    /// - Parameter id: Only those with this `CKA_ID`.
    func objects(of certificate: X509Certificate, id: [UInt8]? = nil) throws(CryptokiError) -> [CK_OBJECT_HANDLE] {
        var attributes = [Attribute(CKA_CLASS, CKO_CERTIFICATE), Attribute(CKA_SUBJECT, certificate.subjectDER)]
        if let id { attributes.append(Attribute(CKA_ID, id)) }
        var found: [CK_OBJECT_HANDLE] = []
        for object in try session.objects(with: attributes)
        where try session.attribute(CKA_VALUE, of: object) == certificate.derRepresentation { found.append(object) }
        return found
    }

    /// The certificates for a key, of those that have its id.
    func certificates(
        for publicKey: PublicKeyInfo, id: [UInt8]
    ) throws(CryptokiError) -> [(handle: CK_OBJECT_HANDLE, certificate: X509Certificate)] {
        try certificates(with: [Attribute(CKA_ID, id)]).filter { $0.certificate.publicKey == publicKey }
    }

    // MARK: Public keys

    /// Returns the public key objects.
    /// - Parameter id: Only those with this `CKA_ID`.
    func publicKeys(id: [UInt8]? = nil) throws(CryptokiError) -> [(handle: CK_OBJECT_HANDLE, key: PublicKeyInfo)] {
        var attributes = [Attribute(CKA_CLASS, CKO_PUBLIC_KEY)]
        if let id { attributes.append(Attribute(CKA_ID, id)) }
        var keys: [(CK_OBJECT_HANDLE, PublicKeyInfo)] = []
        for handle in try session.objects(with: attributes) {
            if let key = try publicKey(handle) { keys.append((handle, key)) }
        }
        return keys
    }

    /// Returns the keys of the public key objects and of the certificates, by their `CKA_ID`.
    func publicKeysByID() throws(CryptokiError) -> [[UInt8]: [PublicKeyInfo]] {
        var keys: [[UInt8]: [PublicKeyInfo]] = [:]
        let found = try publicKeys() + certificates(with: []).map { ($0.handle, $0.certificate.publicKey) }
        for (handle, key) in found { keys[try session.attribute(CKA_ID, of: handle) ?? [], default: []].append(key) }
        return keys
    }

    /// Reads a public key object; `nil` for one that cannot be understood.
    func publicKey(_ handle: CK_OBJECT_HANDLE) throws(CryptokiError) -> PublicKeyInfo? {
        switch try session.number(CKA_KEY_TYPE, of: handle) {
        case CK_ULONG(CKK_RSA):
            guard let modulus = try session.attribute(CKA_MODULUS, of: handle),
                let exponent = try session.attribute(CKA_PUBLIC_EXPONENT, of: handle)
            else { return nil }
            return PublicKeyInfo(modulus: modulus, exponent: exponent)
        case CK_ULONG(CKK_EC):
            guard let parameters = try session.attribute(CKA_EC_PARAMS, of: handle),
                let point = try session.attribute(CKA_EC_POINT, of: handle)
            else { return nil }
            return PublicKeyInfo(curve: parameters, point: point)
        case CK_ULONG(CKK_EC_EDWARDS):
            guard let point = try session.attribute(CKA_EC_POINT, of: handle) else { return nil }
            return PublicKeyInfo(edwardsPoint: point)
        default: return nil
        }
    }
}

extension ProviderError {
    fileprivate func `in`(_ slot: Slot, _ id: [UInt8]) -> Self {
        var copy = self
        copy.message = "On the token '\(slot.displayName)', id \(DisplayText.hexadecimal(id)): \(message)"
        return copy
    }
}
