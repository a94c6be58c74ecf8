import CertificateProviding
import Foundation
import Signing
import TestSupport
import Testing

@testable import PDFUpdate

/// The index of the folder.
private enum FieldDocuments {
    struct Row: Sendable { var file, expected, path: String }

    static let rows: [Row] = {
        let folder = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
            .deletingLastPathComponent().appending(path: "shared/testdata/pdf").path
        let lines = (try? String(contentsOfFile: folder + "/index.tsv", encoding: .utf8))?.split(separator: "\n") ?? []
        let rows = lines.map { $0.split(separator: "\t", omittingEmptySubsequences: false).map(String.init) }
        guard let header = rows.first, let expected = header.firstIndex(of: "expected") else { return [] }
        return rows.dropFirst().map { Row(file: $0[0], expected: $0[expected], path: folder + "/" + $0[0]) }
    }()
}

/// Documents that other projects wrote, where a folder of them is beside the checkout. They are not part of this repository.
@Suite(.enabled(if: !FieldDocuments.rows.isEmpty, "no folder shared/testdata/pdf beside the checkout"))
struct PDFFieldFileTests {
    @Test("Each document from the field is signed or refused as its index says")
    func eachIsSignedOrRefused() throws {
        for row in FieldDocuments.rows {
            let found = failure { try Self.document(row.path) }
            switch row.expected {
            case "sign": #expect(found == nil, "\(row.file): \(found?.message ?? "")")
            case "either":
                #expect(found == nil || found?.code == .malformedData, "\(row.file): \(found?.message ?? "")")
            case "refuse:damaged": #expect(found?.code == .malformedData, "\(row.file): \(found?.message ?? "signed")")
            default: #expect(found?.code == .documentNotSignable, "\(row.file): \(found?.message ?? "signed")")
            }
        }
    }

    private static func document(_ path: String, field: String? = nil) throws -> SignableDocument {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        defer { close(descriptor) }
        return try SignableDocument(try PDFSource(fileDescriptor: descriptor), PDFSignatureRequest(field: field))
    }

    /// Signatures that pdfsig judges and this project does not, by file.
    private static let notJudged = ["qpdf-minimal-signed-restricted.pdf": "encrypted"]

    @Test("Signatures from the field are those of their bytes where pdfsig says so, and none outlives a changed byte")
    func earlierSignatures() async throws {
        let folder = try TemporaryDirectory()
        var counts = (intact: 0, changed: 0)
        for row in FieldDocuments.rows {
            let file = Array(try Data(contentsOf: URL(filePath: row.path)))
            let verifier = try SignatureVerifier(anchors: nil)
            guard let verdicts = try? await verifier.pdf(SigningContent(file)) else { continue }
            let others = try Verifiers.pdfsig(row.path, in: folder)
            let valid = others.count { $0.contains("Signature is Valid.") }
            let own = verdicts.filter { $0.form == .pdf && $0.isUnaltered.holds == true && $0.isSigned.holds == true }
            #expect(own.count >= valid || Self.notJudged[row.file] != nil, "\(row.file): \(valid), \(verdicts)")
            let whole = others.count { $0.contains("- Total document signed") }
            #expect(verdicts.count { $0.coverage?.change == .nothing } <= max(1, whole), "\(row.file)")
            counts.intact += own.count
            for verdict in own.prefix(3) {
                let end = try #require(verdict.coverage?.signedBytes)
                for place in stride(from: end / 14, to: end, by: max(1, end / 7)) {
                    var changed = file
                    changed[place] ^= 0x01
                    let again = try? await verifier.pdf(SigningContent(changed))
                    let same = again?.first { $0.field == verdict.field }
                    // In the value of /Contents a byte may be padding, or of another certificate.
                    let isValue = file[max(0, place - 20)..<min(end, place + 20)].allSatisfy {
                        $0.hexadecimalValue != nil
                    }
                    #expect(same?.isIntact != true || isValue, "\(row.file) \(place)")
                    if same?.isIntact != true { counts.changed += 1 }
                }
            }
        }
        #expect(counts.intact > 10 && counts.changed > 50, "\(counts)")
    }

    @Test("Existing fields of a document from the field")
    func existingFields() throws {
        guard let row = FieldDocuments.rows.first(where: { $0.file == "own-fields-open.pdf" }) else { return }
        for (field, isSigned) in [("Plain", true), ("Locks", false), ("OnlyPKCS7", false), ("OnlyCAdES", true)] {
            #expect(
                failure { try Self.document(row.path, field: field) }?.code == (isSigned ? nil : .documentNotSignable),
                "\(field)")
        }
    }

    @Test(
        "Signed documents from the field are valid to all programs, and earlier signatures stay what they were",
        .enabled(if: TestLength.hasSeconds),
        .enabled(if: Verifiers.hasHanko, "pyHanko is not installed: make .build/pyhanko/bin/pyhanko"))
    func signedOnesAreValid() async throws {
        let (directory, authority) = (try TemporaryDirectory(), try TestAuthority())
        let signer = try Signer(try authority.signer("Signer"))
        var signed: [(row: FieldDocuments.Row, path: String)] = []
        for row in FieldDocuments.rows where row.expected == "sign" {
            let document = try await signer.signedPDF(of: Array(try Data(contentsOf: URL(filePath: row.path))))
            signed.append((row, try directory.write(document, to: row.file)))
        }
        let before = try Verifiers.hanko(signed.map(\.row.path), anchors: [authority.root], in: directory)
        let after = try Verifiers.hanko(signed.map(\.path), anchors: [authority.root], in: directory)
        for (row, path) in signed {
            let (earlier, now) = (before[row.path] ?? [], after[path] ?? [])
            // One has an earlier signature without a CMS message, which ends pyHanko's look at the whole file.
            try Verifiers.expectValid(path, from: row.path, now.isEmpty ? nil : now, in: directory)
            for (old, new) in zip(earlier, now) where old.error == nil {
                #expect(new.intact == old.intact && new.valid == old.valid, "\(row.file): \(old), then \(new)")
                let isFilling = ["FORM_FILLING", "LTA_UPDATES", "NONE"].contains(new.level ?? "") && new.docmdp ?? true
                #expect(
                    isFilling || new.level == old.level && new.docmdp == old.docmdp, "\(row.file): \(old), then \(new)")
            }
        }
    }
}
