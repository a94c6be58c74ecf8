import CertificateProviding
import Crypto
import Foundation
import Glibc
import SigningRequests
import TestSupport
import Testing

@Suite struct RequestStepsTests {
    private static let key = "the key of client 1"
    private static let registry: RequestRegistry = {
        var registry = RequestRegistry([
            .init(
                number: 1, name: "Test Bank", key: SecretBytes(utf8: key), operations: [.signPDF, .signChallenge],
                returnSchemes: ["bank"], unattended: [.signChallenge]),
            .init(
                number: 2, name: "Two", key: SecretBytes(utf8: "αβ"), operations: [.signChallenge],
                returnSchemes: ["bank"]),
        ])
        registry.userCode = "1234567"
        return registry
    }()
    private static let png = Data([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])
    private static let document = Data(TestPDF.bytes)

    private static func mac(_ data: Data, _ key: String = key) -> String {
        Data(
            HMAC<SHA256>.authenticationCode(
                for: Data(SHA256.hash(data: data)), using: SymmetricKey(data: Data(key.utf8)))
        )
        .base64EncodedString()
    }

    private static func items(_ operation: SigningOperation, _ data: Data? = nil) -> [RequestURL.Item] {
        let data = data ?? (operation == .signPDF ? document : Data("challenge".utf8))
        return [
            .init("scheme", "bank"), .init(operation.dataItem, data.base64EncodedString()),
            .init("service-name", "Bank"),
            .init("client-id", "1"), .init("signature", mac(data)),
            .init("service-logo", "data:image/png;base64," + png.base64EncodedString()), .init("user-code", "1234567"),
            .init("request-id", "A1"),
        ]
    }

    /// The refusal of a request, by all steps.
    private static func refusal(
        _ bytes: [UInt8], registry: RequestRegistry = registry, isHandler: Bool = false, wasSigned: Bool = false,
        signer: X509Certificate? = nil
    ) -> RequestRefusal? {
        let steps = RequestSteps(registry, isHandler: isHandler)
        let (address, result) = steps.authenticate(bytes)
        switch result {
        case .failure(let refusal): return refusal
        case .success(let request):
            do throws(RequestRefusal) {
                _ = try steps.examine(request, to: address, wasSigned: wasSigned, signer: signer)
                return nil
            } catch { return error }
        }
    }

    /// A change of the items that makes a step refuse.
    struct Mistake: Sendable, CustomTestStringConvertible {
        let step: Int
        let code: ResponseCode
        let name: String
        let value: String?
        var testDescription: String { "\(step) \(name)=\(value?.prefix(20) ?? "-")" }

        init(_ step: Int, _ code: ResponseCode, _ name: String, _ value: String?) {
            (self.step, self.code, self.name, self.value) = (step, code, name, value)
        }

        func apply(to items: inout [RequestURL.Item]) {
            guard let index = items.firstIndex(where: { $0.name == name }) else { return }
            if let value { items[index].value = value } else { items.remove(at: index) }
        }
    }

    private static let mistakes = [
        Mistake(2, .emptyData, "document", nil), Mistake(2, .emptyData, "document", ""),
        Mistake(3, .documentProcessingError, "document", "*"),
        Mistake(4, .emptyService, "service-name", nil), Mistake(4, .emptyService, "service-name", " \t\u{a0}"),
        Mistake(5, .emptyClientID, "client-id", nil), Mistake(5, .emptyClientID, "client-id", " "),
        Mistake(6, .emptySignature, "signature", nil), Mistake(6, .emptySignature, "signature", "\n"),
        Mistake(7, .emptyUserCode, "user-code", nil), Mistake(7, .emptyUserCode, "user-code", " "),
        Mistake(8, .wrongLogoFormat, "service-logo", nil),
        Mistake(8, .wrongLogoFormat, "service-logo", "data:image/svg;base64,QQ=="),
        Mistake(9, .wrongLogoSize, "service-logo", "data:image/png;base64," + String(repeating: "*", count: 682_672)),
        Mistake(10, .wrongLogoFormat, "service-logo", "data:image/jpeg;base64,QQ=="),
        Mistake(11, .validateRequestError, "client-id", "3"), Mistake(11, .validateRequestError, "client-id", "-1"),
        Mistake(11, .validateRequestError, "client-id", "2"), Mistake(11, .validateRequestError, "signature", "QQ=="),
        Mistake(13, .wrongUserCode, "user-code", "7654321"),
    ]

    @Test("Of two mistakes, the earlier step answers", arguments: mistakes)
    func everyPair(one: Mistake) {
        func refusal(_ mistakes: [Mistake], _ host: String = "sign-pdf") -> RequestRefusal? {
            var items = Self.items(.signPDF)
            for mistake in mistakes { mistake.apply(to: &items) }
            return Self.refusal(Array(RequestURL(scheme: "sima", host: host, items: items).text.utf8))
        }
        #expect(refusal([one])?.step == one.step && refusal([one])?.code == one.code)
        #expect(refusal([one], "sign-xml")?.code == .wrongOperationType)
        for other in Self.mistakes where other.step > one.step && other.name != one.name {
            #expect(refusal([one, other])?.step == one.step, "\(other.testDescription)")
        }
    }

    @Test("A PDF that cannot be signed is found after all others")
    func lastStep() {
        let items = Self.items(.signPDF, Data("no PDF".utf8))
        let refusal = Self.refusal(Array(RequestURL(scheme: "sima", host: "sign-pdf", items: items).text.utf8))
        #expect(refusal?.step == 14 && refusal?.code == .documentProcessingError)
    }

    @Test("512,000 bytes of logo pass, and one more does not", arguments: [(512_000, true), (512_001, false)])
    func logo(count: Int, passes: Bool) {
        var items = Self.items(.signChallenge)
        let image = Self.png + Data(count: count - Self.png.count)
        items[5].value = "data:image/png;base64," + image.base64EncodedString()
        let refusal = Self.refusal(Array(RequestURL(scheme: "sima", host: "sign-challenge", items: items).text.utf8))
        #expect(refusal?.code == (passes ? nil : .wrongLogoSize))
    }

    @Test("The limits of the data hold", arguments: [(4096, true), (4097, false)])
    func challengeSize(count: Int, passes: Bool) {
        let items = Self.items(.signChallenge, Data(repeating: 7, count: count))
        let refusal = Self.refusal(Array(RequestURL(scheme: "sima", host: "sign-challenge", items: items).text.utf8))
        #expect(refusal?.code == (passes ? nil : .challengeProcessingError))
        var registry = Self.registry
        registry.maximumDocument = Self.document.count - (passes ? 0 : 1)
        let other = RequestURL(scheme: "sima", host: "sign-pdf", items: Self.items(.signPDF))
        #expect(Self.refusal(Array(other.text.utf8), registry: registry)?.step == (passes ? nil : 3))
    }

    @Test("Without a configured code, the subject's serialNumber is the person's, whole or after its prefix")
    func serialNumber() throws {
        var registry = Self.registry
        registry.userCode = nil
        let folder = try TemporaryDirectory()
        try Subprocess.run([
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
            "-subj",
            "/serialNumber=PNOAZ-1234567/CN=Person", "-keyout", "\(folder.path)/key.pem", "-out",
            "\(folder.path)/cert.pem",
        ])
        let certificate = try #require(try CertificateFile.read("\(folder.path)/cert.pem").first)
        let codes = [
            "1234567": true, "PNOAZ-1234567": true, "PNOAZ-": false, "234567": false, "Z-1234567": false,
            "Person": false,
        ]
        for (code, isRight) in codes {
            var items = Self.items(.signPDF)
            items[6].value = code
            let url = Array(RequestURL(scheme: "sima", host: "sign-pdf", items: items).text.utf8)
            let refusal = Self.refusal(url, registry: registry, signer: certificate)
            #expect(refusal?.step == (isRight ? nil : 13), "\(code)")
        }
    }

    @Test("The reply of the URL handler must fit, and have a scheme of the client")
    func handler() {
        func step(_ items: [RequestURL.Item]) -> Int? {
            Self.refusal(Array(RequestURL(scheme: "sima", host: "sign-pdf", items: items).text.utf8), isHandler: true)?
                .step
        }
        #expect(step(Self.items(.signPDF)) == nil)
        #expect(step(Self.items(.signPDF, Self.document + Data(count: 60_000))) == 14)
        var items = Self.items(.signPDF)
        items[0].value = "other"
        #expect(step(items) == 11)
        items.removeFirst()
        #expect(step(items) == 11)
    }

    @Test("A reply goes to the scheme of the request, and the URL handler opens that of a client only")
    func address() {
        let steps = RequestSteps(Self.registry, isHandler: true)
        func address(_ url: String) -> ReplyAddress { steps.authenticate(Array(url.utf8)).address }
        #expect(address("") == ReplyAddress(scheme: "sima", host: "unknown", isRegistered: false))
        #expect(address("sima://sign-pdf") == ReplyAddress(scheme: "sima", host: "sign-pdf", isRegistered: false))
        #expect(
            address("sima://sign-pdf?scheme=bank")
                == ReplyAddress(scheme: "bank", host: "sign-pdf", isRegistered: false))
        #expect(
            address("sima://sign-pdf?scheme=BANK&client-id=1")
                == ReplyAddress(scheme: "bank", host: "sign-pdf", isRegistered: true))
        #expect(
            address("sima://sign-xml?scheme=no%20scheme&client-id=1")
                == ReplyAddress(scheme: "sima", host: "sign-xml", isRegistered: false))
    }

    @Test("What was signed in the last day needs a person again")
    func replay() {
        let url = Array(RequestURL(scheme: "sima", host: "sign-challenge", items: Self.items(.signChallenge)).text.utf8)
        #expect(Self.refusal(url, wasSigned: true)?.step == 12)
        let document = Array(RequestURL(scheme: "sima", host: "sign-pdf", items: Self.items(.signPDF)).text.utf8)
        #expect(Self.refusal(document, wasSigned: true) == nil)
    }

    // MARK: - Requests of others

    private static let folder = URL(filePath: #filePath).deletingLastPathComponent().appending(
        path: "../../../shared/testdata/sima")
    private static var rows: [[String]] {
        guard let text = try? String(contentsOf: folder.appending(path: "index.tsv"), encoding: .utf8) else {
            return []
        }
        return text.split(separator: "\n").dropFirst().map {
            $0.split(separator: "\t", omittingEmptySubsequences: false).map(String.init)
        }
    }

    @Test("Requests that others made get their codes", .enabled(if: !rows.isEmpty))
    func requestsOfOthers() throws {
        func key(_ name: String) throws -> SecretBytes {
            SecretBytes(copying: Array(try Data(contentsOf: Self.folder.appending(path: name))))
        }
        var registry = RequestRegistry([
            .init(
                number: 1, name: "Test Bank", key: try key("client-1.key"), operations: [.signPDF, .signChallenge],
                returnSchemes: ["sima-demo"]),
            .init(
                number: 2, name: "Two", key: try key("client-2.key"), operations: [.signChallenge],
                returnSchemes: ["sima-demo"]),
        ])
        registry.userCode = "1234567"
        for row in Self.rows {
            let bytes = Array(try Data(contentsOf: Self.folder.appending(path: row[0])))
            let expected = row[1] == "-" ? nil : ResponseCode(rawValue: row[1])
            for isHandler in [false, true] {
                if row[3] == "stream", isHandler || row[3] == "handler", !isHandler { continue }
                if row[3] == "stream" && isHandler { continue }
                let asked = row[3] == "handler" && !isHandler ? nil : expected
                var unattended = registry
                if row[4] != "-" { unattended.clients[1]?.unattended = [.signChallenge] }
                let refusal = Self.refusal(bytes, registry: unattended, isHandler: isHandler, wasSigned: row[4] != "-")
                #expect(refusal?.code == asked, "\(row[0]) \(isHandler): \(refusal?.reason ?? "")")
                if asked != nil { #expect(refusal.map { "\($0.step)" } == row[2], "\(row[0])") }
            }
        }
    }
}
