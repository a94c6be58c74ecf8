import CertificateProviding
import Foundation
import Signing
import TestSupport
import Testing

@testable import PDFUpdate

/// Documents that were cut off or damaged: signed validly, or refused.
@Suite struct PDFDamageTests {
    private static let documents = PDFSignatureTests.documents.map(\.bytes).prefix(10)

    /// Reads a document, writes an update, and reads the result, which must be what others read.
    private static func sign(_ document: [UInt8]) throws -> [UInt8]? {
        let read = failure { try SignableDocument(PDFSource(document), PDFSignatureRequest()) }
        guard read == nil else {
            #expect(read?.code == .malformedData || read?.code == .documentNotSignable, "\(read?.message ?? "")")
            return nil
        }
        let signable = try SignableDocument(PDFSource(document), PDFSignatureRequest())
        let update = try PDFSignatureUpdate(of: signable, by: "Signer", date: Date(), room: 8)
        let signed = document + update.bytes
        _ = try SignableDocument(PDFSource(signed), PDFSignatureRequest())
        return signed
    }

    @Test("A document that is cut off anywhere, or has one changed byte, is signed or refused")
    func eachDamageIsSignedOrRefused() throws {
        // Coprime to the lengths of lines.
        for document in Self.documents {
            for index in stride(from: 0, to: document.count, by: TestLength.rounds(7, soak: 1)) {
                _ = try Self.sign(Array(document[..<index]))
                var changed = document
                for value in [document[index] ^ 1, document[index] &+ 1, 0x20, 0xff] {
                    changed[index] = value
                    _ = try Self.sign(changed)
                }
            }
        }
    }

    @Test(
        "What is signed of a damaged document is valid to other programs, and they find no more damage",
        .enabled(if: TestLength.hasSeconds))
    func signedDamageIsValid() async throws {
        let (directory, authority) = (try TemporaryDirectory(), try TestAuthority())
        let signer = try Signer(try authority.signer("Signer"))
        var count = 0
        for (number, document) in Self.documents.enumerated() {
            for index in stride(from: number, to: document.count, by: TestLength.rounds(61, soak: 1)) {
                var changed = document
                changed[index] ^= 1
                for (kind, damaged) in [("cut", Array(document[..<index])), ("changed", changed)] {
                    guard let signed = try? await signer.signedPDF(of: damaged) else { continue }
                    count += 1
                    let original = try directory.write(damaged, to: "original.pdf")
                    let path = try directory.write(signed, to: "\(number)-\(index)-\(kind).pdf")
                    try Verifiers.expectValid(path, from: original, nil, in: directory)
                    try FileManager.default.removeItem(atPath: path)
                }
            }
        }
        #expect(count > 0)
    }
}

/// As above, with more damage at once.
@Suite struct PDFFuzzTests {
    @Test("Damaged documents are signed or refused")
    func damagedDocumentsAreSignedOrRefused() throws {
        var seeds = PDFSignatureTests.documents.map(\.bytes)
        seeds.append(Documents.stream(Documents.objects(), compressed: [1, 2, 3], trailer: "/Filter /FlateDecode"))
        seeds.append(VisibleSignatureTests.kid("10 10 190 70.5", root: "/Rotate 90 /CropBox [0 0 150 150]"))
        var mutator = Mutator(seeds: seeds, seed: 32000)
        var rounds = FuzzRounds(atLeast: 20_000)
        let rectangle = PDFRectangle(x: 1, y: 2, width: 30, height: 40)
        let requests = [
            PDFSignatureRequest(), PDFSignatureRequest(field: "Author"), PDFSignatureRequest(place: (1, rectangle)),
        ]
        while rounds.next() {
            let source = PDFSource(mutator.next())
            guard let signable = try? SignableDocument(source, requests[source.count % 3]) else { continue }
            let update = try PDFSignatureUpdate(of: signable, by: "Signer", date: Date(), room: 8)
            #expect(update.byteRange[2] + update.byteRange[3] == source.count + update.bytes.count)
        }
    }

    /// The input of zlib, and that of the predictors of PNG.
    @Test("Damaged compressed data is inflated or refused")
    func damagedStreams() throws {
        let compressed: [UInt8] = [
            0x78, 0x9c, 0x63, 0x60, 0x64, 0x62, 0x66, 0x61, 0x65, 0x63, 0xe7, 0xe0, 0xe4, 0xe2, 0x02, 0x00, 0x00, 0x97,
            0x00, 0x2e,
        ]
        var mutator = Mutator(seeds: [compressed], seed: 1950)
        var rounds = FuzzRounds(atLeast: 10_000)
        while rounds.next() {
            var rest = mutator.next()
            let bytes = try? StreamDecoder.inflate(
                {
                    defer { rest = [] }
                    return rest
                }, predictor: .init(rowLength: 3, pixelLength: 1))
            #expect((bytes?.count ?? 0) <= StreamDecoder.maximumSize)
        }
    }
}
