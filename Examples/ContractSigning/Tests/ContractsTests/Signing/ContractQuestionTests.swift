import CertificateProviding
import Contracts
import Foundation
import Signing
import Testing

@Suite struct ContractQuestionTests {
    /// What a contract says in the places that a caller fills as it likes.
    private static let spoofs = [
        "SHA-256: \(String(repeating: "0", count: 64))", "x\nTo read: /tmp/harmless.pdf", "x\r\u{1b}[2JTo read: /tmp/x",
        "x\(String(repeating: "\u{2003}", count: 90))SHA-256: 0", String(repeating: "x ", count: 39) + "SHA-256: 0",
        "\u{3164}\u{115f}\u{2800}\u{ad}\u{34f}\u{fe0f}", "a" + String(repeating: "\u{301}\u{336}", count: 50),
        "\u{202e}gpj.fdp", String(repeating: "L", count: 5000),
    ]

    @Test(
        "What this host knows comes first; what the contract says is apart, and looks like no fact", arguments: spoofs)
    func spoof(_ text: String) async throws {
        let host = try SigningHost()
        let fields = ["SHA-256", "To read", "signed by", text].map {
            #"{"key": \#(Self.json($0)), "value": \#(Self.json(text))}"#
        }
        let file = """
            {"customer": {"number": \(Self.json(String(text.prefix(50)))), "mode": 2, "contractor_id": -1, "fields": [
            {"key": "firstname", "value": \(Self.json(text))}, {"key": "lastname", "value": "D"}, \(fields.joined(separator: ", "))]},
            "contractors": [{"fields": [{"key": "firstname", "value": \(Self.json(text))}, {"key": "lastname", "value": \(Self.json(text))}]}],
            "contract": {"contract_definition_id": 1, "contract_id": -1, "message_title": \(Self.json(text)),
            "message_body": \(Self.json(text)), "pdf_file_name": \(Self.json(text)),
            "pdf_file_path": "data:application/pdf;base64,\(Data(CallFile.pdf).base64EncodedString())"},
            "contract_properties": [{"key": \(Self.json(text)), "value": \(Self.json(text))}], "files": [], "options": []}
            """
        let contract = try host.queue.add(try await ContractFile.read(Array(file.utf8)))
        let question = ContractQuestion(
            contract, for: 1, path: { "/queue/\($0.sha256)" }, signer: try await host.signer().identity.certificate,
            isByOwnIdentity: false)
        for columns in [80, 40] {
            let lines = question.text.lines(columns: columns)
            let heading = try #require(lines.firstIndex(of: "The contract says, unverified:"))
            let facts = lines[..<heading].joined(separator: "\n")
            #expect(facts.hasPrefix("Sign a PDF of \(CallFile.pdf.count) bytes, with 1 property"), "\(facts)")
            #expect(facts.contains(contract.content.pdf.document.sha256) && facts.contains("/queue/"), "\(facts)")
            #expect(facts.contains("signatory 2 of 2"), "\(facts)")
            #expect(facts.contains(contract.id) && !facts.contains(text.prefix(20)), "\(facts)")
            let claims = lines[(heading + 1)...]
            #expect(claims.count > 10)
            for line in claims {
                #expect(line.hasPrefix("  ") && line.unicodeScalars.count <= columns, "\(line)")
                #expect(
                    !line.unicodeScalars.contains { !$0.isASCII && $0 != "…" && !$0.properties.isAlphabetic },
                    "\(line)")
            }
            let labels = claims.filter { !$0.hasPrefix("   ") }.map { $0.dropFirst(2) }
            #expect(!labels.contains { $0.hasPrefix("SHA-256:") || $0.hasPrefix("To read:") }, "\(labels)")
        }
    }

    @Test("Each attachment is there with its digest and where it is read; what it is called is apart")
    func attachments() async throws {
        let host = try SigningHost()
        let contract = try await host.add()
        let document = try #require(contract.content.attachments.first).document
        let lines = ContractQuestion(
            contract, for: 0, path: { "/queue/\($0.sha256)" }, signer: try await host.signer().identity.certificate,
            isByOwnIdentity: false
        ).text.lines(columns: 400)
        let heading = try #require(lines.firstIndex(of: "The contract says, unverified:"))
        let fact = try #require(
            lines.firstIndex(of: "Attachment 1: \(document.size) bytes, SHA-256 \(document.sha256)"))
        #expect(lines[fact + 1] == "To read: /queue/\(document.sha256)" && fact < heading)
        #expect(lines[heading...].contains("  Attachment 1: note.txt (text/plain)"), "\(lines)")
        #expect(!lines[..<heading].joined().contains("note.txt"))
    }

    private static func json(_ text: String) -> String {
        String(decoding: (try? JSONEncoder().encode(text)) ?? Data(), as: UTF8.self)
    }
}
