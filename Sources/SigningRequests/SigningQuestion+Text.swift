package import CertificateProviding
import FoundationEssentials
import Glibc

extension SigningQuestion {
    /// The first line, where a prompt with rich text looks for tags: without anything from outside.
    static let headline = "Approve this signature?"

    /// The text that the person reads: a sentence of facts, then those that were verified, those in hexadecimal last, then the claims of the
    /// request.
    package var consent: ConsentText {
        func line(_ label: String, _ value: String?) -> ConsentText.Line? { value.map { .init(label, $0) } }
        let isPDF = operation == .signPDF
        let facts = [
            line("Challenge", isPDF ? nil : "\(Self.bytes(size)) that only the application understands"),
            line("Client", "\(client)"),
            line("Signer", signer.asClaim()),
            line("Signed before", signedBefore.map { Self.localTime($0.timeIntervalSince1970) }),
            // Never cut: another program opens it.
            line("Copy", documentPath), line("Logo", logoPath),
            line("Sent by (a hint)", peer.isEmpty ? nil : peer.asClaim()),
            line("Size", isPDF ? Self.bytes(size) : nil),
            line("SHA-256", digest), line("Certificate", fingerprint),
        ]
        let claims = [
            line("Service", serviceName), line("Document", documentName), line("Pages", pages.map { "\($0)" }),
            line("Request id", requestID),
        ]
        let data = isPDF ? "PDF of \(Self.roughly(size))" : "challenge of \(Self.bytes(size))"
        let name = (signerName.isBlank ? signer : signerName).asClaim(limit: 32)
        return ConsentText(
            sentence: "Sign a \(data) as \(name) for \(clientName.asClaim())?", facts: facts.compactMap(\.self),
            heading: "The request says, unverified:", claims: claims.compactMap(\.self))
    }

    /// The lines as text for a terminal.
    package var text: String { consent.lines().joined(separator: "\n") }

    /// The lines, shortened to what fits into a number of bytes, and of rows of a small screen.
    ///
    /// Without the logo and the fingerprint: also the lines of a window are few. The claims of the request and the hint give way
    /// first, then the subject, the copy's path and the time of an earlier signature. The sentence, the client, the size and the
    /// digest stay whole.
    ///
    /// - Parameter count: Returns the bytes of a text, with those of its escapes.
    package func text(fitting maximum: Int, rows: Int = .max, _ count: (String) -> Int) -> String {
        var consent = consent
        consent.facts.removeAll { ["Logo", "Certificate"].contains($0.label) }
        func text() -> String {
            ([Self.headline] + consent.lines(columns: Self.columns)).joined(separator: "\n")
        }
        func isTooLong() -> Bool { count(text()) > maximum || Self.rows(text()) > rows }
        let giving: [(WritableKeyPath<ConsentText, [ConsentText.Line]>, String)] = [
            (\.claims, "Request id"), (\.facts, "Sent by (a hint)"), (\.claims, "Document"), (\.claims, "Service"),
            (\.facts, "Signer"), (\.facts, "Copy"), (\.facts, "Signed before"),
        ]
        // A bit of each, before one goes.
        for least in [24, 0] {
            for (part, label) in giving where isTooLong() {
                guard let index = consent[keyPath: part].firstIndex(where: { $0.label == label }) else { continue }
                let value = Array(consent[keyPath: part][index].value.asClaim(limit: 1024).unicodeScalars)
                func keep(_ kept: Int) {
                    let start = String(String.UnicodeScalarView(value[..<kept]))
                    consent[keyPath: part][index].value = kept < value.count ? start + "…" : start
                }
                // The most that fits, else the least.
                var (low, high) = (min(least, value.count), value.count)
                while low < high {
                    let middle = (low + high + 1) / 2
                    keep(middle)
                    if isTooLong() { high = middle - 1 } else { low = middle }
                }
                keep(low)
            }
        }
        return text()
    }

    /// Of a window on a terminal with 80.
    private static let columns = 75

    /// The rows of such a window, which wraps a word that is longer.
    package static func rows(_ text: String) -> Int {
        text.split(separator: "\n").reduce(0) { rows, line in
            let width = line.unicodeScalars.reduce(0) { $0 + ($1.isASCII ? 1 : 2) }
            return rows + max(1, (width + columns - 1) / columns)
        }
    }

    // MARK: - Numbers and times

    private static func bytes(_ count: Int) -> String { count == 1 ? "1 byte" : "\(count) bytes" }

    /// A size in three digits at most, in units of 1,000.
    private static func roughly(_ count: Int) -> String {
        var (size, unit) = (Double(count), "")
        for larger in ["kB", "MB", "GB"] where size.rounded() >= 1000 { (size, unit) = (size / 1000, larger) }
        if unit.isEmpty { return bytes(count) }
        let tenths = Int((size * 10).rounded())
        return tenths < 100 && tenths % 10 != 0
            ? "\(tenths / 10).\(tenths % 10) \(unit)" : "\(Int(size.rounded())) \(unit)"
    }

    /// A time as the person's clock shows it, with the name of its zone.
    private static func localTime(_ seconds: Double) -> String {
        guard var seconds = time_t(exactly: seconds.rounded(.down)) else { return "at an unknown time" }
        var parts = tm()
        var text = [CChar](repeating: 0, count: 64)
        guard localtime_r(&seconds, &parts) != nil, strftime(&text, text.count, "%Y-%m-%d %H:%M:%S %Z", &parts) > 0
        else {
            return "at an unknown time"
        }
        return String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
