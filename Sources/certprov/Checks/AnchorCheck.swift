import CertificateProviding
import FoundationEssentials

/// Checks trust anchors, each by itself: that chains can lead to it, now and for as long as `--expires-within` demands.
struct AnchorCheck {
    let now: Date
    /// The time before its end at which an anchor is an error.
    let limit: SpanOfTime?

    /// - Parameter files: The anchors by their files; `nil` for anchors without one, or of a single one.
    func run(
        _ files: [(file: String?, certificates: [X509Certificate])], _ what: String
    ) -> [Finding] {
        let all = files.flatMap(\.certificates)
        let isUseless = !all.contains { $0.status(at: now) == .valid && isAuthority($0) }
        return files.flatMap { file, certificates in
            let what = what + (file.map { " \($0.withVisibleControls)" } ?? "")
            let problems = certificates.compactMap { problem($0, among: all, isUseless: isUseless, what) }
            guard problems.isEmpty else { return problems }
            let count = certificates.count == 1 ? "one certificate" : "\(certificates.count) certificates"
            let first = certificates.min { $0.notValidAfter < $1.notValidAfter }
            return [.ok(what, count + (first.map { ", '\($0.subject)' until \($0.notValidAfter.rfc3339)" } ?? ""))]
        }
    }

    /// - Parameter isUseless: Whether no chain leads to any of the anchors, so that every peer is refused.
    private func problem(
        _ anchor: X509Certificate, among all: [X509Certificate], isUseless: Bool, _ what: String
    ) -> Finding? {
        func finding(_ code: ProviderError.Code, _ text: String, isError: Bool) -> Finding {
            let finding = Finding.error(what, ProviderError(code, "'\(anchor.subject)' \(text)"))
            return isError ? finding : finding.asWarning
        }
        let end = anchor.notValidAfter
        // Both certificates of a CA stand side by side while it changes.
        let isReplaced = all.contains { $0.subject == anchor.subject && $0.notValidAfter > end && !ends($0) }
        switch anchor.status(at: now) {
        case .expired:
            return finding(
                .expired, "has expired at \(end.rfc3339). Remove it, or replace it by the CA's new certificate.",
                isError: isUseless || limit != nil && !isReplaced)
        case .notYetValid:
            return finding(
                .configurationInvalid,
                "does not count before \(anchor.notValidBefore.rfc3339); check this host's clock.", isError: isUseless)
        case .valid where !isAuthority(anchor):
            return finding(
                .configurationInvalid,
                "is not a CA's, so that no chain leads to it; add the certificate of '\(anchor.issuer)'.",
                isError: isUseless)
        case .valid:
            guard let limit, ends(anchor), !isReplaced else { return nil }
            return finding(
                .expired, "ends at \(end.rfc3339), which is within \(limit). Add the CA's next certificate.",
                isError: true)
        }
    }

    private func isAuthority(_ certificate: X509Certificate) -> Bool {
        certificate.isAuthority || certificate.isSelfIssued
    }

    private func ends(_ certificate: X509Certificate) -> Bool {
        certificate.notValidAfter < now.addingTimeInterval(limit.map { $0.duration / .seconds(1) } ?? 0)
    }
}
