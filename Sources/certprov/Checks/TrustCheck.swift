import CertificateProviding
import CertificateTLS
import FoundationEssentials
import Logon

/// Says what each file of trust anchors and revocation lists holds, and when that ends.
struct TrustCheck {
    private let trust: PeerTrust
    private let now: Date

    init(_ configuration: LogonConfiguration, at now: Date) {
        trust = PeerTrust(trustAnchors: configuration.trustAnchors, configuration.settings)
        self.now = now
    }

    /// - Parameters:
    ///   - identity: The stored identity, for the anchors that come with it.
    ///   - failure: Why there is none, if one is stored.
    func run(_ identity: Identity?, failure unreadable: ProviderError?) -> [Finding] {
        var findings: [Finding] = []
        var authorities: [X509Certificate] = []
        do throws(ProviderError) {
            findings += try anchors(identity, unreadable, &authorities)
        } catch { findings.append(failure("TrustAnchors", error)) }
        guard let lists = trust.revocationLists else { return findings }
        do throws(ProviderError) {
            let contents = try lists.contents()
            for (file, entries) in contents.files {
                let what = "TrustAnchors.crl" + (file == lists.path ? "" : " \(file.withVisibleControls)")
                findings += entries.map { finding(what, $0, isLenient: lists.isLenient) }
            }
            guard !lists.isLenient else { return findings }
            findings += contents.authoritiesWithoutList(authorities).map {
                .warning(
                    "TrustAnchors.crl",
                    "There is no revocation list that '\($0.subject)' has signed, so that its peers are refused. "
                        + "Add its current, complete list.")
            }
        } catch { findings.append(failure("TrustAnchors.crl", error)) }
        return findings
    }

    /// A warning if the identity does not lead to the CAs that come with it, such as a `ca.crt` that was left behind when the CA changed.
    func path(of identity: Identity) async -> [Finding] {
        guard trust.anchors.isOfIdentity, let bundle = identity.trust, identity.status(at: now) == .valid,
            !bundle.certificates.contains(identity.certificate)
        else { return [] }
        do throws(ProviderError) {
            let path = try await CertificateChain.validated(
                from: identity.certificate, among: identity.certificateChain, trusting: bundle.certificates, at: now)
            if path != nil { return [] }
        } catch { return [] }
        let names = bundle.certificates.prefix(4).map { "'\($0.subject)'" }.joined(separator: ", ")
        return [
            .warning(
                "TrustAnchors",
                "The certificate of '\(identity.certificate.subject)', issued by '\(identity.certificate.issuer)', does not lead to the CAs "
                    + "that come with it (\(names)): peers that trust the same CAs refuse it. Replace the file of these CAs, or set "
                    + "TrustAnchors to those of the peers.")
        ]
    }

    private func anchors(
        _ identity: Identity?, _ unreadable: ProviderError?, _ authorities: inout [X509Certificate]
    ) throws(ProviderError) -> [Finding] {
        // Without an identity, there is nothing that could be wrong with its bundle yet.
        var anchors = trust.anchors
        if let identity {
            anchors = try anchors.resolved(with: identity)
        } else if anchors.isOfIdentity {
            let reason = unreadable.map { ", which cannot be read: \($0.message)" } ?? ", and none is stored yet."
            return [.warning("TrustAnchors", "The CAs come with the identity" + reason)]
        }
        let contents = try anchors.contents()
        authorities = contents.flatMap(\.certificates)
        return contents.map { file, certificates in
            let what = "TrustAnchors" + (file == nil ? "" : " \((file ?? "").withVisibleControls)")
            let count = certificates.count == 1 ? "one certificate" : "\(certificates.count) certificates"
            guard let first = certificates.min(by: { $0.notValidAfter < $1.notValidAfter }) else {
                return .ok(what, count)
            }
            let text = "\(count), '\(first.subject)' until \(first.notValidAfter.rfc3339)"
            if first.status(at: now) == .expired {
                return .warning(what, text + ". Remove it, or replace it by the CA's new certificate.")
            }
            if let early = certificates.first(where: { $0.status(at: now) == .notYetValid }) {
                return .warning(
                    what,
                    "\(text). '\(early.subject)' does not count before \(early.notValidBefore.rfc3339); check this host's clock."
                )
            }
            if let leaf = certificates.first(where: { !$0.isAuthority && !$0.isSelfIssued }) {
                return .warning(
                    what,
                    "\(text). '\(leaf.subject)' is not a CA's, so that no chain leads to it; add the certificate of '\(leaf.issuer)'."
                )
            }
            return .ok(what, text)
        }
    }

    private func finding(_ what: String, _ list: RevocationLists.Entry, isLenient: Bool) -> Finding {
        let text =
            "\(list.count) certificates of '\(list.issuer)' are revoked"
            + (list.nextUpdate.map { ", until \($0.rfc3339)" } ?? "")
        if list.isPartial {
            return .warning(
                what,
                text
                    + ". The list does not count, since it covers only \(list.limit ?? "a part"); add the complete one."
            )
        }
        if list.thisUpdate > now {
            return .warning(
                what,
                text
                    + ". The list begins at \(list.thisUpdate.rfc3339) and does not count yet; check this host's clock."
            )
        }
        guard let end = list.nextUpdate, end < now else {
            return .ok(what, text + (list.limit.map { ". The list covers only \($0)" } ?? ""))
        }
        let overdue = text + ". The list is overdue; fetch the CA's current one."
        return isLenient
            ? .warning(what, overdue) : .error(what, ProviderError(.expired, overdue))
    }

    private func failure(_ what: String, _ error: ProviderError) -> Finding {
        var error = error
        if error.code == .malformedData { error.code = .configurationInvalid }
        return .error(what, error)
    }
}
