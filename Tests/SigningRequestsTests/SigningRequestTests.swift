import CertificateProviding
import Foundation
import SigningRequests
import TestSupport
import Testing

@Suite struct SigningRequestTests {
    private static let keys = ["client_master_key", "αβ key of client 2", String(repeating: "k", count: 100)]

    @Test("The HMAC is that of OpenSSL's pipeline", arguments: keys)
    func authenticationCode(key: String) throws {
        let folder = try TemporaryDirectory()
        for count in [1, 64, 4096] {
            let data = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31) }
            try folder.write(data, to: "data")
            let output = try Subprocess.run(
                [
                    "sh", "-c",
                    "openssl dgst -sha256 -binary data | openssl dgst -sha256 -mac HMAC -macopt key:\"$1\" -binary | base64",
                    "sh", key,
                ], in: folder.path)
            let url = try SigningRequest(.signChallenge, data, serviceName: "Bank", clientID: 1).url(
                key: SecretBytes(utf8: key))
            #expect(url["signature"] == String(decoding: output, as: UTF8.self).filter { $0 != "\n" })
        }
    }

    private static let field = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent().appending(path: "shared/testdata/sima").path

    @Test(
        "A request is that of the folder",
        .enabled(if: FileManager.default.fileExists(atPath: field), "it is not there"))
    func fieldFile() throws {
        func read(_ name: String) throws -> [UInt8] {
            Array(try Data(contentsOf: URL(filePath: Self.field + "/" + name)))
        }
        let key = SecretBytes(copying: try read("client-1.key"))
        for (file, operation, data) in [
            ("sign-challenge-percent.url", SigningOperation.signChallenge, nil),
            ("sign-challenge.url", .signChallenge, "challenge.bin"), ("sign-pdf.url", .signPDF, "document.pdf"),
        ] {
            let expected = try #require(RequestURL(try read(file)))
            let data = try data.map(read) ?? expected["challenge"]?.strictBase64 ?? []
            let image = try #require(
                expected["service-logo"]?.split(separator: ",").last.map(String.init)?.strictBase64)
            let request = SigningRequest(
                operation, data, serviceName: "Test Bank", clientID: 1, logo: try RequestLogo(image),
                documentName: "contract.pdf", userCode: operation == .signPDF ? "1234567" : nil,
                requestID: expected["request-id"], returnScheme: "sima-demo")
            #expect(try request.url(key: key) == expected)
        }
    }

    @Test("A signer takes the request as it is")
    func roundTrip() throws {
        let key = SecretBytes(utf8: "key")
        let registry = RequestRegistry([
            .init(number: 4_294_967_295, name: "Bank", key: key, operations: [.signPDF, .signChallenge])
        ])
        let steps = RequestSteps(registry, isHandler: false)
        for operation in SigningOperation.allCases {
            var request = SigningRequest(
                operation, TestPDF.bytes, serviceName: "Bank & Söhne + Co %", clientID: .max, userCode: "1 &+",
                requestID: "a=b")
            if operation == .signPDF { request.documentName = "Vertrag 1+1.pdf" }
            let url = try request.url(key: key)
            let (address, result) = steps.authenticate(Array(url.text.utf8))
            let taken = try result.get()
            #expect(address.scheme == "sima" && taken.operation == operation && taken.data == TestPDF.bytes)
            #expect(taken.serviceName == request.serviceName && taken.documentName == request.documentName)
            #expect(taken.userCode == "1 &+" && taken.requestID == "a=b" && taken.logo == .blank)
        }
    }

    @Test("A request that every signer refuses by its form is not made")
    func refusals() throws {
        let good = SigningRequest(.signPDF, TestPDF.bytes, serviceName: "Bank", clientID: 1, userCode: "1")
        func reason(_ change: (inout SigningRequest) -> Void) -> String? {
            var request = good
            change(&request)
            return failure { try request.url(key: SecretBytes(utf8: "key")) }?.reason?.rawValue
        }
        #expect(reason { _ in } == nil)
        #expect(reason { $0.data = [] } == "empty-data")
        #expect(reason { $0.serviceName = " \t" } == "empty-service")
        #expect(reason { $0.userCode = nil } == "empty-user-code")
        #expect(reason { $0.userCode = "" } == "empty-user-code")
        #expect(reason { $0.returnScheme = "a b" } == "wrong-operation-type")
        let long = [UInt8](repeating: 7, count: 4097)
        #expect(reason { ($0.operation, $0.data) = (.signChallenge, long) } == "challenge-processing-error")
        #expect(reason { ($0.operation, $0.data) = (.signChallenge, Array(long.dropLast())) } == nil)
        #expect(reason { ($0.operation, $0.userCode) = (.signChallenge, nil) } == nil)
    }

    @Test("A logo is an image of a kind that signers take, of at most 512,000 bytes")
    func logos() throws {
        let png = RequestLogo.blank.bytes
        #expect(try RequestLogo(png) == .blank)
        for begin in ["GIF89a", "GIF87a", "RIFFabcdWEBP"] {
            #expect(try RequestLogo(Array(begin.utf8)).bytes.count > 0)
        }
        #expect(try RequestLogo([0xff, 0xd8, 0xff, 0xe0]).bytes.count == 4)
        for image in [[], Array("<svg/>".utf8), Array(png.dropFirst()), Array("RIFFabcdWAVE".utf8)] {
            #expect(failure { try RequestLogo(image) }?.reason?.rawValue == "wrong-logo-format")
        }
        let full = png + [UInt8](repeating: 0, count: 512_000 - png.count)
        #expect(try RequestLogo(full).bytes.count == 512_000)
        #expect(failure { try RequestLogo(full + [0]) }?.reason?.rawValue == "wrong-logo-size")
    }
}
