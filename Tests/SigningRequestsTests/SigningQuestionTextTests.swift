import CertificateProviding
import Foundation
import SigningRequests
import Testing

extension SigningQuestion {
    /// A question for tests.
    static func example(_ change: (inout SigningQuestion) -> Void = { _ in }) -> SigningQuestion {
        var question = SigningQuestion(
            id: "a1", operation: .signPDF, client: 7, clientName: "Payroll", serviceName: "HR portal",
            documentName: "contract.pdf", requestID: "req-1", size: 12345,
            digest: String(repeating: "0123456789abcdef", count: 4), signer: "CN=Ann,O=Example",
            fingerprint: String(repeating: "ff", count: 32),
            signedBefore: Date(timeIntervalSince1970: 1_700_000_000), peer: "/usr/bin/hr, process 12",
            deadline: Date(timeIntervalSince1970: 1_800_000_000))
        question.documentPath = "/run/user/1000/certprov/pending/a1/document.pdf"
        question.logoPath = "/run/user/1000/certprov/pending/a1/logo.png"
        change(&question)
        return question
    }
}

@Suite struct SigningQuestionTextTests {
    @Test func textHasEachFact() {
        #expect(
            SigningQuestion.example().text == """
                Approve this signature?
                Application: Payroll (client 7)
                Operation: sign-pdf
                Size: 12345 bytes
                SHA-256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
                Signer: CN=Ann,O=Example
                Certificate: \(String(repeating: "ff", count: 32))
                Signed before: 2023-11-14T22:13:20Z
                Copy: /run/user/1000/certprov/pending/a1/document.pdf
                Logo: /run/user/1000/certprov/pending/a1/logo.png
                Sent by (a hint): /usr/bin/hr, process 12
                The request says, unverified:
                  Service: HR portal
                  Document: contract.pdf
                  Request id: req-1
                """)
    }

    private static let hostile =
        "\u{1b}[2J\n\r\u{7}\u{9b}\u{202e}\u{2066}\u{200b}\u{200d}\u{200f}\u{61c}\u{2028}\u{2029}\u{feff}\u{e0041}%0A<b>"
    /// Each sets one text from outside.
    private static let fields: [@Sendable (inout SigningQuestion, String) -> Void] = [
        { $0.clientName = $1 }, { $0.serviceName = $1 }, { $0.signer = $1 }, { $0.peer = $1 }, { $0.documentName = $1 },
        { $0.requestID = $1 },
    ]

    @Test("Control, bidirectional and invisible characters of each field are visible, and no field adds a line")
    func controlsAreVisible() {
        let lines = SigningQuestion.example().text.split(separator: "\n").count
        for set in Self.fields {
            let text = SigningQuestion.example { set(&$0, Self.hostile) }.text
            #expect(text.split(whereSeparator: \.isNewline).count == lines, "\(text)")
            #expect(text.contains("\\1b[2J\\0a\\0d\\07\\c29b\\e280ae\\e281a6"), "\(text)")
            let isPlain = text.unicodeScalars.allSatisfy { $0 == "\n" || (0x20...0x7e).contains($0.value) }
            #expect(isPlain, "\(text)")
        }
    }

    @Test("A long value is cut at 128 characters, visibly") func longValuesAreCut() throws {
        for text in [String(repeating: "ä", count: 129), String(repeating: "\u{1b}", count: 100_000)] {
            let question = SigningQuestion.example { $0.serviceName = text }
            let line = try #require(question.lines.first { $0.label == "Service" })
            #expect(line.value.count == 129 && line.value.last == "…" && line.isClaimed)
        }
        let whole = SigningQuestion.example { $0.serviceName = String(repeating: "ä", count: 128) }
        #expect(whole.lines.contains { $0.value == String(repeating: "ä", count: 128) })
    }

    @Test("What fits is whole, but for the logo and the fingerprint") func shortTextIsWhole() {
        let question = SigningQuestion.example()
        let lines = question.text.split(separator: "\n").filter {
            !$0.hasPrefix("Logo") && !$0.hasPrefix("Certificate")
        }
        #expect(question.text(fitting: PinentryText.maximum, PinentryText.count) == lines.joined(separator: "\n"))
    }

    @Test("In 900 bytes are the client's name, operation, size and digest, and the beginning of the others")
    func givesWay() {
        for (filling, isWorst) in [("x", false), ("%", true), ("𝄞", true), ("\u{202e}", false)] {
            let long = String(repeating: filling, count: 200)
            let question = SigningQuestion.example {
                ($0.clientName, $0.serviceName, $0.documentName, $0.requestID) = (long, long, long, long)
                ($0.signer, $0.peer) = (long, long)
                $0.documentPath = "/run/user/1000/\(String(repeating: "d", count: 200))/document.pdf"
            }
            let text = question.text(fitting: PinentryText.maximum, PinentryText.count)
            #expect(PinentryText.count(text) <= PinentryText.maximum, "\(PinentryText.count(text)): \(text)")
            for label in ["Application", "Operation", "Size", "SHA-256"] {
                let line = question.lines.first { $0.label == label }
                #expect(text.contains("\n\(label): \(line?.value ?? "?")\n"), "\(text)")
            }
            // Each is there, if only by its name.
            for line in question.lines where !["Logo", "Certificate"].contains(line.label) {
                #expect(text.contains("\(line.label): "))
            }
            #expect(text.contains("unverified") && text.contains("…"))
            if !isWorst { #expect(text.contains("  Request id: " + question.lines.last!.value.prefix(24))) }
        }
    }
}

@Suite struct PinentryTextTests {
    @Test func escapes() {
        #expect(PinentryText.escaped("plain ä") == "plain ä")
        #expect(PinentryText.escaped("100 %\r\n\u{1b}") == "100 %25%0D%0A%1B")
    }

    @Test("A long text is cut visibly, within neither a character nor an escape") func cuts() {
        for unit in ["x", "%", "ä", "€", "𝄞", "\n"] {
            for lead in 0..<4 {
                let text = String(repeating: "x", count: lead) + String(repeating: unit, count: 1000)
                let escaped = PinentryText.escaped(text)
                let size = PinentryText.count(unit)
                #expect(escaped.utf8.count <= 900 && escaped.utf8.count > 900 - size && escaped.hasSuffix("…"))
                let last = PinentryText.escaped(unit)
                #expect(escaped.dropLast().hasSuffix(last), "\(escaped.suffix(12))")
            }
        }
        let whole = String(repeating: "x", count: 900)
        #expect(PinentryText.escaped(whole) == whole)
    }
}
