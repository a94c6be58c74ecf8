package import CertificateProviding

extension PeerTrust {
    /// The keys of the property file, beside `TrustAnchors`.
    package static let settings = SettingsSection(
        title: "Peers of a service", namespaces: ["TrustAnchors.", "Peers."],
        [lists.descriptor, listMode.descriptor, allowed.descriptor, pins.descriptor, pinMode.descriptor])

    package static let lists = Parameter<String?>(
        "TrustAnchors.crl", .path, defaultValue: "revocation is not checked",
        summary:
            "File with the revocation lists of the peers' CAs, in PEM or DER, or directory of such files. One is needed for each CA of a chain."
    ) { text, _ throws(ParameterProblem) in
        guard !text.isEmpty else { throw .expected("must not be blank; remove the line to check no revocation") }
        return text
    }

    private static let listMode = Parameter<RevocationMode>.choice(
        "TrustAnchors.crl-mode", default: .strict, needs: [.given(lists.name)],
        summary: "strict refuses a peer for whose CA the list is missing or overdue; lenient accepts it.")

    private enum RevocationMode: String, CaseIterable, Sendable { case strict, lenient }

    package static let allowed = Parameter<PeerPolicy>(
        "Peers.allow", .list, absent: .everyVerifiedPeer, defaultValue: "every peer with a certificate of TrustAnchors",
        summary:
            "The peers that are admitted, by a name of their certificates: dns:*.clients.example, uri:spiffe://example.org/ns/prod/*, "
            + "email:*@example.com, upn:alice@corp.example, ip:192.0.2.7, cn:backup, ou:operations. * is a label or path segment, ** the rest. any: every peer with a certificate of TrustAnchors."
    ) { text, _ throws(ParameterProblem) in
        do throws(ProviderError) { return try PeerPolicy(parsing: text) } catch { throw .error(error) }
    }

    private static let pins = Parameter<[CertificatePin]>(
        "Peers.pin", .pins, absent: [], defaultValue: "none",
        summary:
            "Pins of keys, separated by commas, sha256/BASE64 as certprov connect shows them. The chain of a peer must contain one of "
            + "them, in addition to leading to TrustAnchors."
    ) { text, _ throws(ParameterProblem) in
        do throws(ProviderError) { return try CertificatePin.keys(text) } catch { throw .error(error) }
    }

    private static let pinMode = Parameter<Bool>.pinOnly(
        "Peers.pin-mode", needs: [.given(pins.name)],
        summary:
            "pin-and-pki, or pin-only: the pin of a peer's own key in place of TrustAnchors. Names and validity count with both."
    )

    /// Creates the value that a property file describes.
    ///
    /// - Parameters:
    ///   - trustAnchors: The value of `TrustAnchors`; `nil` where it is not given.
    ///   - settings: The values of ``settings``.
    package init(trustAnchors: String?, _ settings: Parameters) {
        var peers = settings[Self.allowed]
        (peers.pins, peers.isPinOnly) = (settings[Self.pins], settings[Self.pinMode])
        self.init(
            anchors: .configured(trustAnchors),
            revocationLists: settings[Self.lists].map {
                RevocationLists(path: $0, isLenient: settings[Self.listMode] == .lenient)
            },
            peers: peers)
    }
}

extension TrustAnchors {
    /// The anchors that `TrustAnchors` of a property file names: a PEM file, a directory, or `provider` for those that come
    /// with the identity; without it the system trust store.
    package static func configured(_ setting: String?) -> TrustAnchors {
        switch setting {
        case nil: .system
        case "provider": .ofIdentity
        case let path?: .pemFile(path)
        }
    }
}
