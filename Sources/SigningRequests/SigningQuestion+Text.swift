import CertificateProviding
import FoundationEssentials

extension SigningQuestion {
    /// One of the facts that a person sees.
    package struct Line: Sendable, Equatable {
        package var label: String
        /// With visible control characters, and of at most ``SigningQuestion/maximumText`` characters, or cut visibly.
        package var value: String
        /// Whether the request says so, and nothing has verified it.
        package var isClaimed = false
    }

    /// The maximum of characters of a value.
    package static let maximumText = 128
    /// The question that the lines are about, without anything from outside: a prompt with rich text looks for tags in the first
    /// line.
    static let headline = "Approve this signature?"
    static let claims = "The request says, unverified:"

    /// The facts for the person: first the registry's name of the client, then those that were verified, last the claims of the request.
    package var lines: [Line] {
        func known(_ label: String, _ value: String?) -> Line? {
            value.map { Line(label: label, value: Self.visible($0)) }
        }
        func claimed(_ label: String, _ value: String?) -> Line? {
            value.map { Line(label: label, value: Self.visible($0), isClaimed: true) }
        }
        return [
            // The number is last, and a long name does not hide it.
            Line(label: "Application", value: "\(Self.visible(clientName)) (client \(client))"),
            known("Operation", operation.rawValue),
            known("Size", "\(size) bytes"),
            known("SHA-256", digest),
            known("Signer", signer), known("Certificate", fingerprint),
            known("Signed before", signedBefore?.formatted(.iso8601)),
            // Never cut in the middle of what another program opens.
            documentPath.map { Line(label: "Copy", value: $0.withVisibleControls) },
            logoPath.map { Line(label: "Logo", value: $0.withVisibleControls) },
            known("Sent by (a hint)", peer.isEmpty ? nil : peer),
            claimed("Service", serviceName),
            claimed("Document", documentName),
            claimed("Request id", requestID),
        ].compactMap(\.self)
    }

    /// The lines as text for a terminal.
    package var text: String { Self.text(lines) }

    /// The lines, shortened to what fits into a number of bytes.
    ///
    /// Without the logo and the fingerprint: also the lines of a window are few. The claims of the request and the hint give way
    /// first, then the subject, the copy's path and the time of an earlier signature. The client, the operation, the size and the
    /// digest stay whole.
    ///
    /// - Parameter count: Returns the bytes of a text, with those of its escapes.
    package func text(fitting maximum: Int, _ count: (String) -> Int) -> String {
        var lines = lines.filter { !["Logo", "Certificate"].contains($0.label) }
        let giving = [
            "Request id", "Sent by (a hint)", "Document", "Service", "Signer", "Copy",
            "Signed before",
        ]
        // A bit of each, before one goes.
        for least in [24, 0] {
            for label in giving {
                guard let index = lines.firstIndex(where: { $0.label == label }) else { continue }
                let value = Array(lines[index].value.unicodeScalars)
                var kept = value.count
                while count(Self.text(lines)) > maximum, kept > least {
                    kept -= 1
                    lines[index].value = Self.text(of: value[..<kept]) + "…"
                }
            }
        }
        return Self.text(lines)
    }

    private static func text(_ lines: [Line]) -> String {
        var result = headline
        var areClaims = false
        for line in lines {
            if line.isClaimed, !areClaims {
                result += "\n\(claims)"
                areClaims = true
            }
            result += "\n\(line.isClaimed ? "  " : "")\(line.label): \(line.value)"
        }
        return result
    }

    /// A text from outside, safe to show.
    private static func visible(_ text: String) -> String {
        // The rest is not looked at, whatever the size.
        let start = String(String.UnicodeScalarView(text.unicodeScalars.prefix(maximumText + 1)))
        let scalars = Array(start.withVisibleControls.unicodeScalars)
        return scalars.count > maximumText ? Self.text(of: scalars[..<maximumText]) + "…" : start.withVisibleControls
    }

    private static func text(of scalars: ArraySlice<Unicode.Scalar>) -> String {
        String(String.UnicodeScalarView(scalars))
    }
}
