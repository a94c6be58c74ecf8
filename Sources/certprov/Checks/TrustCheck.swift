import CertificateProviding
import CertificateTLS
import FoundationEssentials
import Logon

/// Says what each file of trust anchors and revocation lists holds, and when that ends.
struct TrustCheck {
    private let trust: PeerTrust
    private let now: Date
    private let limit: SpanOfTime?

    init(_ configuration: LogonConfiguration, at now: Date, expiresWithin limit: SpanOfTime?) {
        trust = PeerTrust(trustAnchors: configuration.trustAnchors, configuration.settings)
        (self.now, self.limit) = (now, limit)
    }

    /// - Parameters:
    ///   - identity: The stored identity, for the anchors that come with it.
    ///   - failure: Why there is none, if one is stored.
    func run(_ identity: Identity?, failure unreadable: ProviderError?) -> [Finding] {
        var findings: [Finding] = []
        var authorities: [X509Certificate] = []
        do throws(ProviderError) {
            findings += try anchors(identity, unreadable, &authorities)
        } catch { findings.append(ParameterCheck.failure("TrustAnchors", error)) }
        guard let lists = trust.revocationLists else { return findings }
        do throws(ProviderError) {
            try trust.requireListsThatCount()
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
        } catch { findings.append(ParameterCheck.failure("TrustAnchors.crl", error)) }
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
        return AnchorCheck(now: now, limit: limit).run(contents, "TrustAnchors")
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
        guard let end = list.nextUpdate, end < now.addingTimeInterval(notice(of: list)) else {
            return .ok(what, text + (list.limit.map { ". The list covers only \($0)" } ?? ""))
        }
        let state = end < now ? "is overdue" : "will soon be overdue"
        let overdue = Finding.error(
            what, ProviderError(.expired, text + ". The list \(state); fetch the CA's current one."))
        return isLenient ? overdue.asWarning : overdue
    }

    /// The time before its end at which a list counts as ending: a list that is made each week has the last third.
    private func notice(of list: RevocationLists.Entry) -> TimeInterval {
        guard let limit, let end = list.nextUpdate else { return 0 }
        return min(limit.duration / .seconds(1), end.timeIntervalSince(list.thisUpdate) / 3)
    }
}
