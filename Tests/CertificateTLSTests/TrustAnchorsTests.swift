import CertificateProviding
import Foundation
import NIOSSL
import TestSupport
import Testing

@testable import CertificateTLS

@Suite struct TrustAnchorsTests {
    private func withFile<T>(_ contents: Data, _ body: (String) throws -> T) throws -> T {
        let url = FileManager.default.temporaryDirectory.appending(path: "certprov-anchors-\(UUID().uuidString)")
        try contents.write(to: url)
        defer { try? FileManager.default.removeItem(at: url) }
        return try body(url.path)
    }

    private func expect(_ code: CertificateProviderError.Code, from anchors: TrustAnchors) throws {
        #expect { try anchors.load() } throws: { ($0 as? CertificateProviderError)?.code == code }
    }

    @Test func readsAPEMFile() throws {
        let authority = try authority.get()
        let text = "Our root:\n" + authority.root.pemRepresentation + authority.intermediate.pemRepresentation
        try withFile(Data(text.utf8)) { path in
            guard case .certificates(let certificates) = try TrustAnchors.pemFile(path).load() else {
                Issue.record("not certificates")
                return
            }
            let expected = [authority.root, authority.intermediate].map(\.derRepresentation)
            #expect(try certificates.map { try $0.toDERBytes() } == expected)
        }
    }

    @Test func refusesWhatWouldTrustNobody() throws {
        try expect(.configurationInvalid, from: .certificates([]))
        try expect(.fileNotFound, from: .pemFile("/nonexistent/anchors.pem"))
        try expect(.configurationInvalid, from: .pemFile("/dev/zero"))
        try expect(.configurationInvalid, from: .pemFile("/"))
        try withFile(Data()) { try expect(.configurationInvalid, from: .pemFile($0)) }
        try withFile(Data(try authority.get().root.derRepresentation)) {
            try expect(.configurationInvalid, from: .pemFile($0))
        }
        try withFile(Data("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n".utf8)) {
            try expect(.configurationInvalid, from: .pemFile($0))
        }
        try withFile(Data("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".utf8)) {
            try expect(.malformedData, from: .pemFile($0))
        }
        try withFile(Data(try authority.get().root.pemRepresentation.dropLast(40).utf8)) {
            try expect(.malformedData, from: .pemFile($0))
        }
    }
}
