import CertificateProviding
import Foundation
import Glibc
import Testing

@testable import SigningRequests

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
        question.signerName = "Ann"
        question.pages = 3
        question.documentPath = "/run/user/1000/certprov/pending/a1/document.pdf"
        question.logoPath = "/run/user/1000/certprov/pending/a1/logo.png"
        change(&question)
        return question
    }
}

@Suite struct SigningQuestionTextTests {
    @Test("The question is a sentence of facts; hexadecimal is below, and claims stand apart")
    func textHasEachFact() throws {
        var seconds = time_t(1_700_000_000)
        var parts = tm()
        localtime_r(&seconds, &parts)
        let zone = String(cString: try #require(parts.tm_zone))
        let local = Date(timeIntervalSince1970: Double(1_700_000_000 + parts.tm_gmtoff)).formatted(.iso8601)
            .replacing("T", with: " ").replacing("Z", with: " " + zone)
        #expect(
            SigningQuestion.example().text == """
                Sign a PDF of 12 kB as Ann for Payroll?
                Client: 7
                Signer: CN=Ann,O=Example
                Signed before: \(local)
                Copy: /run/user/1000/certprov/pending/a1/document.pdf
                Logo: /run/user/1000/certprov/pending/a1/logo.png
                Sent by (a hint): /usr/bin/hr, process 12
                Size: 12345 bytes
                SHA-256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
                Certificate: \(String(repeating: "ff", count: 32))
                The request says, unverified:
                  Service: HR portal
                  Document: contract.pdf
                  Pages: 3
                  Request id: req-1
                """)
    }

    @Test("A challenge says what it is")
    func challenge() {
        let question = SigningQuestion.example {
            ($0.operation, $0.size, $0.documentName, $0.pages, $0.documentPath) = (.signChallenge, 64, nil, nil, nil)
        }
        #expect(question.text.hasPrefix("Sign a challenge of 64 bytes as Ann for Payroll?\n"))
        #expect(question.text.contains("\nChallenge: 64 bytes that only the application understands\n"))
    }

    @Test(
        "A size has three digits at most",
        arguments: [
            (1, "1 byte"), (999, "999 bytes"), (1000, "1 kB"), (1449, "1.4 kB"), (94_208, "94 kB"), (999_499, "999 kB"),
            (999_600, "1 MB"), (3_400_000, "3.4 MB"), (33_554_432, "34 MB"), (2_000_000_000, "2 GB"),
        ])
    func sizes(count: Int, text: String) {
        let question = SigningQuestion.example { $0.size = count }
        #expect(question.text.hasPrefix("Sign a PDF of \(text) as Ann"), "\(question.text)")
    }

    @Test("The name of the owner is that of the certificate, or its subject, and long names are cut")
    func names() {
        let unnamed = SigningQuestion.example { $0.signerName = "" }
        #expect(unnamed.text.hasPrefix("Sign a PDF of 12 kB as CN=Ann,O=Example for Payroll?"))
        let long = SigningQuestion.example { $0.signerName = String(repeating: "ä", count: 100) }
        #expect(long.consent.sentence.contains(" as \(String(repeating: "ä", count: 31))… for Payroll?"))
    }

    private static let hostile =
        "\u{1b}[2J\n\r\u{7}\u{9b}\u{202e}\u{2066}\u{200b}\u{200d}\u{200f}\u{61c}\u{2028}\u{2029}\u{feff}\u{e0041}%0A<b>"
    /// Each sets one text from outside.
    private static let fields: [@Sendable (inout SigningQuestion, String) -> Void] = [
        { $0.clientName = $1 }, { $0.serviceName = $1 }, { $0.signer = $1 }, { $0.peer = $1 }, { $0.documentName = $1 },
        { $0.requestID = $1 },
    ]

    @Test("Control, bidirectional and invisible characters of each field are visible, and no field begins a line")
    func controlsAreVisible() {
        let labels = SigningQuestion.example().text.split(separator: "\n").filter { !$0.hasPrefix("    ") }.count
        for set in Self.fields {
            let text = SigningQuestion.example { set(&$0, Self.hostile) }.text
            let lines = text.split(whereSeparator: \.isNewline)
            #expect(lines.filter { !$0.hasPrefix("    ") }.count == labels, "\(text)")
            let joined = lines.joined().replacing(" ", with: "")
            #expect(joined.contains("\\1b[2J\\0a\\0d\\07\\c29b\\e280ae"), "\(text)")
            let isPlain = text.unicodeScalars.allSatisfy { $0 == "\n" || (0x20...0x7e).contains($0.value) }
            #expect(isPlain, "\(text)")
        }
    }

    @Test("No text of a request looks like a fact", arguments: [" ", "\u{2003}", "\u{3164}", "\u{2800}", "\u{336}"])
    func imitations(filler: String) {
        let spoof = "Loans" + String(repeating: filler, count: 62) + "SHA-256: " + String(repeating: "0", count: 64)
        let text = SigningQuestion.example { ($0.serviceName, $0.documentName, $0.requestID) = (spoof, spoof, spoof) }
            .text
        let lines = text.split(separator: "\n")
        let heading = lines.firstIndex(of: "The request says, unverified:") ?? lines.endIndex
        #expect(lines[..<heading].filter { $0.contains("SHA-256") }.count == 1)
        #expect(lines[heading...].dropFirst().allSatisfy { $0.hasPrefix("  ") && $0.count <= 80 }, "\(text)")
    }

    @Test("A long value is cut at 128 characters, visibly") func longValuesAreCut() throws {
        for text in [String(repeating: "ä", count: 129), String(repeating: "\u{1b}", count: 100_000)] {
            let question = SigningQuestion.example { $0.serviceName = text }
            let shown = question.consent.lines(columns: 1000).first { $0.hasPrefix("  Service: ") }
            #expect(shown?.count == 11 + 128 && shown?.last == "…", "\(shown ?? "")")
        }
    }

    @Test("What fits is whole, but for the logo and the fingerprint") func shortTextIsWhole() {
        let question = SigningQuestion.example()
        var consent = question.consent
        consent.facts.removeAll { ["Logo", "Certificate"].contains($0.label) }
        // The first line has nothing from outside.
        let lines = ["Approve this signature?"] + consent.lines(columns: 75)
        #expect(question.text(fitting: PinentryText.maximum, PinentryText.count) == lines.joined(separator: "\n"))
    }

    @Test("In 900 bytes are the sentence, client, size and digest, and the beginning of the others")
    func givesWay() {
        for filling in ["x", "%", "𝄞", "\u{202e}"] {
            let long = String(repeating: filling, count: 200)
            let question = SigningQuestion.example {
                // The registry has names of at most 128 bytes.
                $0.clientName = long.cut(toBytes: 128)
                ($0.serviceName, $0.documentName, $0.requestID) = (long, long, long)
                ($0.signerName, $0.signer, $0.peer) = (long, long, long)
                $0.documentPath = "/run/user/1000/\(String(repeating: "d", count: 200))/document.pdf"
            }
            let text = question.text(fitting: PinentryText.maximum, rows: PinentryText.maximumRows, PinentryText.count)
            #expect(PinentryText.count(text) <= PinentryText.maximum, "\(PinentryText.count(text)): \(text)")
            #expect(SigningQuestion.rows(text) <= PinentryText.maximumRows, "\(text)")
            let joined = text.split(separator: "\n").map { $0.drop { $0 == " " } }.joined(separator: " ")
            #expect(joined.contains(question.consent.sentence), "\(text)")
            #expect(text.contains("\nClient: 7\n") && text.contains("\nSize: 12345 bytes\n"), "\(text)")
            #expect(text.contains(question.digest), "\(text)")
            // Each is there, if only by its name.
            for line in question.consent.facts + question.consent.claims
            where !["Logo", "Certificate"].contains(line.label) {
                #expect(text.contains("\(line.label):"), "\(text)")
            }
            #expect(text.contains("unverified") && text.contains("…"))
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
