import CertificateProviding
import Contracts
import Foundation
import Signing
import Synchronization
import Testing

@testable import ContractServer

@Suite(.timeLimit(.minutes(30))) struct ContractSignerTests {
    private static let noServer: ContractSigner.CodeSource = { () async throws(ProviderError) in
        throw ProviderError(.unavailable, "There is no server.")
    }

    private static func sign(
        _ contract: Contract, at host: SigningHost, codes: @escaping ContractSigner.CodeSource = noServer,
        answers: [String] = [], approves: Bool = true, during: () -> Void = {}
    ) async throws -> (contract: Contract, question: [String]) {
        let signer = ContractSigner(host.queue, try await host.signer(), codes: codes)
        var shown: [String] = []
        var rest = answers[...]
        let (signed, effects) = try await signer.sign(contract.id, for: 0) { question in
            shown = question.text.lines()
            during()
            return approves
        } requestCode: { _ in
            rest.popFirst() ?? ""
        }
        #expect(effects == [.storeSignature, .send, .callBack])
        return (signed, shown)
    }

    private static func refusal(_ body: () async throws -> Void) async -> ProviderError? {
        do { try await body() } catch { return error as? ProviderError }
        return nil
    }

    @Test("a signed PDF and its evidence are valid to other programs, and the person has seen what is signed")
    func othersVerify() async throws {
        let host = try SigningHost()
        let contract = try await host.add()
        let (signed, question) = try await Self.sign(contract, at: host)
        #expect(signed.state == .toValidate && signed.isUnsent && signed.content == contract.content)
        let shown = question.joined(separator: "\n")
        for part in [
            contract.id, "Jean", "Dupont", "contract.pdf", contract.content.pdf.document.sha256, "delivery_date",
            "2027-01-15", "note.txt", "Alice", host.queue.path(of: contract.content.pdf.document),
        ] {
            #expect(shown.contains(part), "the question does not have \(part)")
        }

        let signature = try #require(signed.approvals.last)
        let original = try host.queue.content(of: contract.content.pdf.document)
        let pdf = try host.queue.content(of: signature.pdf)
        #expect(pdf.starts(with: original))
        try Self.verify(host, signed)
        let approval = try JSONValue(parsing: host.queue.content(of: signature.evidence))["approvals"]?.array?.first
        #expect(approval?["name"]?.string == "Jean Dupont" && approval?["codes"] == .array([]))
        #expect(approval?["identity"]?.string == "host" && approval?["number"]?.string == "C1")

        // One byte.
        var changed = pdf
        changed[original.count / 2] ^= 1
        try Data(changed).write(to: host.file("changed.pdf"))
        let verdict = try host.run(["pdfsig", "-nssdir", host.nss, "changed.pdf"], expecting: nil)
        #expect(!verdict.contains("Signature is Valid"), "\(verdict)")
        var evidence = try host.queue.content(of: signature.evidence)
        let at = try #require(String(decoding: evidence, as: UTF8.self).range(of: "2027-01-15"))
        evidence[String(decoding: evidence, as: UTF8.self).utf8.distance(from: "".startIndex, to: at.lowerBound)] ^= 1
        try Data(evidence).write(to: host.file("evidence.json"))
        try host.run(Self.cms, expecting: 4)
    }

    private static let cms = [
        "openssl", "cms", "-verify", "-inform", "DER", "-in", "evidence.p7s", "-content", "evidence.json", "-CAfile",
        "ca.pem", "-purpose", "any", "-out", "/dev/null", "-binary",
    ]

    /// Has pdfsig, pyHanko and OpenSSL look at the documents of a signature.
    private static func verify(_ host: SigningHost, _ contract: Contract) throws {
        let signature = try #require(contract.approvals.last)
        for (name, document) in [
            ("signed.pdf", signature.pdf), ("evidence.json", signature.evidence),
            ("evidence.p7s", signature.evidenceSignature),
        ] {
            try Data(try host.queue.content(of: document)).write(to: host.file(name))
        }
        let verdict = try host.run(["pdfsig", "-nssdir", host.nss, "signed.pdf"])
        let count = contract.approvals.count
        #expect(verdict.count(of: "Signature is Valid") == count, "\(verdict)")
        #expect(verdict.contains("  - Total document signed"), "\(verdict)")
        if let pyHanko = ProcessInfo.processInfo.environment["PYHANKO"] {
            let verdict = try host.run(
                [
                    pyHanko, "sign", "validate", "--pretty-print", "--trust", "ca.pem", "--trust-replace",
                    "--no-revocation-check", "signed.pdf",
                ], expecting: nil)
            #expect(verdict.count(of: "The signature is cryptographically sound") == count, "\(verdict)")
            #expect(verdict.count(of: "The signature is judged VALID") == count, "\(verdict)")
        }
        try host.run(cms)
        for (index, approval) in contract.approvals.enumerated() {
            try contract.version.check(evidence: try host.queue.content(of: approval.evidence), of: index)
        }
    }

    @Test("evidence that does not fit the contract is found, by the member")
    func evidenceThatDoesNotFit() async throws {
        let host = try SigningHost()
        let signed = try await Self.sign(try await host.add(), at: host).contract
        let evidence = try host.queue.content(of: try #require(signed.approvals.last).evidence)
        func finding(_ change: (String) -> String) throws -> String? {
            let text = change(String(decoding: signed.version.content.json.bytes, as: UTF8.self))
            let other = ContractVersion(
                id: signed.id, state: .toValidate,
                content: try ContractContent(try JSONValue(parsing: Array(text.utf8))), approvals: signed.approvals)
            do throws(ProviderError) { try other.check(evidence: evidence, of: 0) } catch { return error.message }
            return nil
        }
        #expect(try finding { $0 } == nil)
        let attachment = try #require(signed.content.attachments.first).document.sha256
        let pdf = signed.content.pdf.document.sha256
        let table: [(String, String, String)] = [
            ("2027-01-15", "2027-01-16", "properties"), ("delivery_date", "delivery_day", "properties"),
            (attachment, String(attachment.reversed()), "attachments"), ("note.txt", "mote.txt", "attachments"),
            (pdf, String(pdf.reversed()), "original"), ("\"C1\"", "\"C2\"", "approvals"),
            ("\"mode\":2", "\"mode\":3", "approvals"), ("Dupont", "Dupond", "approvals"),
        ]
        for (old, new, member) in table {
            let message = try finding { $0.replacingOccurrences(of: old, with: new) }
            #expect(message?.contains("approvals[0].evidence: \(member) ") == true, "\(old): \(message ?? "nothing")")
        }
        // The certificate in it is the signature's matter, which the server verifies as well.
        func verdict(_ evidence: [UInt8]) async throws {
            var documents = try host.documents(of: signed)
            documents.evidence[0].text = evidence
            try await EvidenceCheck().check(documents, of: signed.version)
        }
        try await verdict(evidence)
        for index in stride(from: 0, to: evidence.count, by: 3) {
            var changed = evidence
            changed[index] ^= 1
            await #expect(throws: Refusal.self) { try await verdict(changed) }
        }
    }

    @Test("without approval nothing is signed; and nothing is signed twice")
    func onceAndWithApproval() async throws {
        let host = try SigningHost()
        let contract = try await host.add()
        let declined = await Self.refusal { _ = try await Self.sign(contract, at: host, approves: false) }
        #expect(declined?.code == .userCancelled)
        #expect(try host.queue.contract(contract.id) == contract)
        let signed = try await Self.sign(contract, at: host).contract
        let twice = await Self.refusal { _ = try await Self.sign(contract, at: host) }
        #expect(twice?.code == .operationNotAllowed && twice?.message.contains("toValidate") == true)
        #expect(try host.queue.contract(contract.id) == signed)
        let incomplete = try await host.add(isComplete: false)
        let missing = await Self.refusal { _ = try await Self.sign(incomplete, at: host) }
        #expect(missing?.message.contains("contracts complete \(incomplete.id) delivery_date=…") == true)
    }

    @Test("while a person looks at a contract, another process cannot sign it, and a change of it ends in no signature")
    func changedDuringTheQuestion() async throws {
        let host = try SigningHost()
        let contract = try await host.add()
        let error = await Self.refusal {
            _ = try await Self.sign(
                contract, at: host,
                during: {
                    #expect(throws: Never.self) {
                        #expect(try host.queue.lease(contract.id) == nil)
                        try host.queue.event(.abandoned, on: contract.id)
                    }
                })
        }
        #expect(error?.code == .operationNotAllowed, "\(String(describing: error))")
        #expect(try host.queue.contract(contract.id)?.state == .abandoned)
    }

    @Test("a damaged document is not signed, and the person is not asked")
    func damagedDocument() async throws {
        let host = try SigningHost()
        let contract = try await host.add()
        let path = host.queue.path(of: contract.content.pdf.document)
        var content = try Data(contentsOf: URL(filePath: path))
        content[20] ^= 1
        try content.write(to: URL(filePath: path))
        let error = await Self.refusal {
            _ = try await Self.sign(contract, at: host, during: { Issue.record("the person was asked") })
        }
        #expect(error?.code == .storeReadFailed && error?.reason == .damaged)
    }

    @Test("the modes 1 and 3 need a server, and the code that it has sent", arguments: [1, 3])
    func codes(mode: Int) async throws {
        let host = try SigningHost()
        let contract = try await host.add(mode: mode)
        let offline = await Self.refusal { _ = try await Self.sign(contract, at: host) }
        #expect(offline?.code == .unavailable)

        let notices = Notices()
        let server = BookServing(try ContractBook(), account: "alice@example.com", notifier: notices)
        let codes: ContractSigner.CodeSource = { () async throws(ProviderError) in server }
        let signer = ContractSigner(host.queue, try await host.signer(), codes: codes)
        // Three wrong ones end it; then another code is right at the third try.
        let wrong = await Self.refusal {
            _ = try await signer.sign(contract.id, for: 0) { _ in
                true
            } requestCode: { _ in
                notices.other
            }
        }
        #expect(wrong?.code == .pinLocked, "\(String(describing: wrong))")
        var tries = 0
        let (signed, _) = try await signer.sign(contract.id, for: 0) { _ in
            true
        } requestCode: { _ in
            tries += 1
            return tries < 3 ? notices.other : notices.last?.code ?? ""
        }
        #expect(signed.state == .toValidate && tries == (mode == 1 ? 3 : 4))
        let approval = try #require(signed.approvals.last)
        let evidence = try host.queue.content(of: approval.evidence)
        let sent = try #require(try JSONValue(parsing: evidence)["approvals"]?.array?.first?["codes"]?.array)
        #expect(sent.map { $0["by"]?.string } == (mode == 1 ? ["text message"] : ["text message", "mail"]))
        #expect(sent.map { $0["to"]?.string } == (mode == 1 ? ["…00"] : ["…00", "j…@example.com"]))
        #expect(sent.map { $0["receipt"]?.string } == approval.receipts && Set(approval.receipts).count == sent.count)
        try signed.version.check(evidence: evidence, of: 0)
        let verdicts = try await SignatureVerifier(anchors: nil).pdf(
            SigningContent(try host.queue.content(of: signed.version.pdf)))
        #expect(verdicts.map(\.claimedName) == ["Jean Dupont"])
        #expect(verdicts[0].claimedReason?.contains("code sent by text message to …00") == true)
        #expect(verdicts[0].claimedReason?.contains("sealed by CN=Alice for Jean Dupont") == true)
    }

    /// Has a signatory approve at this host.
    private static func approve(
        _ contract: Contract, _ signatory: Int, at host: SigningHost, by identity: String? = nil,
        codes: @escaping ContractSigner.CodeSource = noServer, answer: () -> String = { "" }
    ) async throws -> Contract {
        let signer = ContractSigner(
            host.queue, try await host.signer(identity ?? "alice"), isByOwnIdentity: identity != nil, codes: codes)
        return try await signer.sign(contract.id, for: signatory) { _ in
            true
        } requestCode: { _ in
            answer()
        }.0
    }

    @Test(
        "each signatory signs for himself, in any order: the PDF and the evidence say for whom, and other programs verify them"
    )
    func signatories() async throws {
        let host = try SigningHost()
        var contract = try await host.add(contractors: ["Marie", "Paul"])
        for (count, signatory) in [2, 0, 1].enumerated() {
            contract = try await Self.approve(contract, signatory, at: host)
            #expect(contract.state == (count == 2 ? .toValidate : .inProgress) && contract.approvals.count == count + 1)
            let twice = await Self.refusal { _ = try await Self.approve(contract, signatory, at: host) }
            #expect(twice?.code == .operationNotAllowed)
            // What a kill after this signatory leaves.
            #expect(try host.queue.contract(contract.id) == contract)
            try await EvidenceCheck().check(try host.documents(of: contract), of: contract.version)
        }
        try Self.verify(host, contract)
        let names = ["Paul Curie", "Jean Dupont", "Marie Curie"]
        let verdicts = try await SignatureVerifier(anchors: nil).pdf(
            SigningContent(try host.queue.content(of: contract.version.pdf)))
        #expect(verdicts.map(\.claimedName) == names && verdicts.allSatisfy(\.isIntact))
        let evidence = try JSONValue(parsing: host.queue.content(of: try #require(contract.approvals.last).evidence))
        #expect(evidence["approvals"]?.array?.map { $0["name"]?.string } == names)
        #expect(evidence["approvals"]?.array?.map { $0["number"]?.string } == ["P2", "C1", "P1"])
        #expect(evidence["statement"]?.string?.hasPrefix("The host attests the approvals.") == true)
    }

    @Test(
        "signatures are shown apart from each other, below the text, three on each page; more than there is room for are not"
    )
    func shown() async throws {
        let host = try SigningHost()
        let names = ["Marie", "Paul", "Irene", "Eve", "Pierre", "Łukasz"]
        var contract = try await host.add(contractors: names, pages: 2)
        try Data(try host.queue.content(of: contract.content.pdf.document)).write(to: host.file("original.pdf"))
        for signatory in contract.content.signatories.indices {
            contract = try await Self.approve(contract, signatory, at: host)
        }
        try Self.verify(host, contract)
        try await EvidenceCheck().check(try host.documents(of: contract), of: contract.version)
        let shown = [["Jean Dupont", "Marie Curie", "Paul Curie"], ["Irene Curie", "Eve Curie", "Pierre Curie"]]
        for page in 1...2 {
            for name in ["original", "signed"] {
                try host.run(["pdftoppm", "-gray", "-f", "\(page)", "-singlefile", "-r", "72", "\(name).pdf", name])
            }
            let (before, after) = (try Image(host.file("original.pgm")), try Image(host.file("signed.pgm")))
            let strip = before.height - 36
            #expect(before.rows[..<strip] == after.rows[..<strip], "the text of page \(page) is not as it was")
            #expect(before.rows[strip...].allSatisfy { $0.allSatisfy { $0 == 255 } })
            #expect(after.rows[strip...].contains { $0.contains { $0 < 128 } })
            // The names stand in boxes of their own, side by side.
            var right = 0.0
            for name in shown[page - 1] {
                let words = try host.run(["pdftotext", "-bbox", "-f", "\(page)", "-l", "\(page)", "signed.pdf", "-"])
                    .split(separator: "\n").filter {
                        $0.contains("yMin=\"8") && $0.contains(">\(name.split(separator: " ")[0])<")
                    }
                let begins = words.compactMap { $0.firstMatch(of: /xMin="([0-9.]+)"/).flatMap { Double($0.1) } }
                let begin = try #require(begins.min(), "\(name) is not on page \(page)")
                #expect(begin > right, "\(name)")
                right = begin
            }
        }
        #expect(try !host.run(["pdftotext", "signed.pdf", "-"]).contains("Łukasz Curie"))
        let verdicts = try await SignatureVerifier(anchors: nil).pdf(
            SigningContent(try host.queue.content(of: contract.version.pdf)))
        #expect(verdicts.last?.claimedName == "Łukasz Curie")
    }

    /// A picture in grey (pgm(5)).
    private struct Image {
        let rows: [[UInt8]]
        var height: Int { rows.count }

        init(_ file: URL) throws {
            let bytes = [UInt8](try Data(contentsOf: file))
            let head = bytes.split(separator: 0x0a, maxSplits: 3, omittingEmptySubsequences: false)
            let size = String(decoding: head[1], as: UTF8.self).split(separator: " ").compactMap { Int($0) }
            let pixels = Array(bytes.suffix(size[0] * size[1]))
            rows = (0..<size[1]).map { Array(pixels[($0 * size[0])..<(($0 + 1) * size[0])]) }
        }
    }

    @Test("where the options say so, signatories approve in the order of the file")
    func order() async throws {
        let host = try SigningHost()
        let contract = try await host.add(contractors: ["Marie"], isOrdered: true)
        let early = await Self.refusal { _ = try await Self.approve(contract, 1, at: host) }
        #expect(early?.code == .operationNotAllowed)
        _ = try await Self.approve(contract, 0, at: host)
        #expect(try await Self.approve(contract, 1, at: host).state == .toValidate)
    }

    @Test("an identity of the person's own needs no code and no connection; the server has to trust it instead")
    func ownIdentity() async throws {
        let host = try SigningHost()
        try host.makeIdentity("marie", subject: "/CN=Marie Curie")
        var contract = try await host.add(contractors: ["Marie"])
        contract = try await Self.approve(contract, 0, at: host)
        contract = try await Self.approve(contract, 1, at: host, by: "marie")
        // In mode 2 whose it is is for the back office to judge.
        try await EvidenceCheck().check(try host.documents(of: contract), of: contract.version)
        let coded = try await Self.approve(try await host.add(mode: 3), 0, at: host, by: "marie")
        #expect(coded.state == .toValidate && coded.approvals.last?.receipts == [])
        let documents = try host.documents(of: coded)
        let anchors = try CertificateFile.read(host.file("ca.pem").path)
        try await EvidenceCheck(signatoryAnchors: anchors).check(documents, of: coded.version)
        for check in [EvidenceCheck(), EvidenceCheck(signatoryAnchors: [try await host.signer().identity.certificate])]
        {
            await #expect(throws: Refusal.self) { try await check.check(documents, of: coded.version) }
        }
        // What was taken once is not judged again, when the certificate may have ended.
        var accepted = documents
        accepted.accepted = 1
        try await EvidenceCheck().check(accepted, of: coded.version)
        // The claim that it is the person's is under the signature.
        var claimed = coded.version
        claimed.approvals[0].isByOwnIdentity = false
        await #expect(throws: Refusal.self) {
            try await EvidenceCheck(signatoryAnchors: anchors).check(documents, of: claimed)
        }
    }

    /// The signatory's mail box and telephone.
    private final class Notices: CodeNotifying {
        private let notice = Mutex<CodeNotice?>(nil)
        var last: CodeNotice? { notice.withLock(\.self) }
        /// A code that was not sent.
        var other: String { last?.code == "000000" ? "000001" : "000000" }
        func notify(_ new: CodeNotice) async throws { notice.withLock { $0 = new } }
    }
}

extension String {
    fileprivate func count(of text: String) -> Int { components(separatedBy: text).count - 1 }
}
