import Foundation
import TestSupport
import Testing

/// `verify`: the parts of verdicts, and their exit statuses.
@Suite struct VerifyCommandTests {
    private let sandbox: Sandbox
    private let identity: [String]

    init() throws {
        sandbox = try Sandbox()
        let script = """
            set -eu
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 2 -subj /CN=CA -keyout ca.key -out ca.pem
            openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -subj /CN=Alice -keyout alice.key -out alice.csr
            openssl x509 -req -in alice.csr -CA ca.pem -CAkey ca.key -days 1 -out alice.pem
            openssl x509 -in alice.pem -noout -pubkey >alice.pub
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 2 -subj /CN=Other -keyout o.key -out other.pem
            openssl req -x509 -newkey rsa:1024 -noenc -days 2 -subj /CN=Small -keyout small.key -out small.pem
            openssl x509 -in small.pem -noout -pubkey >small.pub
            echo content >content; echo other >other; chmod 600 alice.key
            openssl dgst -sha256 -sign small.key -out small.sig content
            """
        try Subprocess.run(["sh", "-c", script], in: sandbox.path)
        try sandbox.write(TestPDF.bytes, to: "contract.pdf")
        identity = [
            "--provider", "pem", "--set", "certificate=\(sandbox.path)/alice.pem", "--set",
            "key=\(sandbox.path)/alice.key", "--set", "usage=signature",
        ]
    }

    private func path(_ name: String) -> String { "\(sandbox.path)/\(name)" }

    private func sign(_ kind: String, _ file: String, to out: String) throws -> Output {
        try sandbox.certprov(["sign", kind, "--out", path(out), "--force", path(file)] + identity).require()
    }

    private func verify(_ arguments: String...) throws -> Output {
        try sandbox.certprov(["verify"] + arguments.map { $0.hasPrefix("-") || $0.contains(":") ? $0 : path($0) })
    }

    @Test("A good signature is 0, an altered one 65, one of another CA and an unknown one 76, wrong use 64 and 66")
    func statuses() throws {
        _ = try sign("cms", "content", to: "a.p7s")
        try Subprocess.run(
            ["openssl", "cms", "-cmsout", "-in", "a.p7s", "-inform", "DER", "-outform", "PEM", "-out", "a.pem"],
            in: sandbox.path)
        _ = try sign("raw", "content", to: "a.sig")
        _ = try sign("pdf", "contract.pdf", to: "a.pdf")
        let cases: [([String], Int32)] = [
            (["--trust-anchors", "ca.pem", "--content", "content", "a.p7s"], 0),
            (["--trust-anchors", "ca.pem", "--content", "other", "a.p7s"], 65),
            (["--trust-anchors", "other.pem", "--content", "content", "a.p7s"], 76),
            (["--trust-anchors", "ca.pem", "--content", "content", "a.pem"], 0),
            (["--content", "content", "a.p7s"], 76), (["--trust-anchors", "ca.pem", "a.p7s"], 66),
            (["--trust-anchors", "ca.pem", "--content", "content", "content"], 65),
            (["--trust-anchors", "ca.pem", "--content", "content", "none"], 66),
            (["--trust-anchors", "ca.pem", "--certificate", "alice.pem", "--content", "content", "a.sig"], 0),
            (["--trust-anchors", "ca.pem", "--certificate", "other.pem", "--content", "content", "a.sig"], 65),
            (["--public-key", "alice.pub", "--content", "content", "a.sig"], 76),
            (["--public-key", "alice.pub", "--content", "other", "a.sig"], 65),
            (["--public-key", "small.pub", "--content", "content", "small.sig"], 76),
            (["--certificate", "small.pem", "--content", "content", "small.sig"], 76),
            (["--public-key", "alice.pub", "a.sig"], 64), (["--trust-anchors", "ca.pem", "a.pdf"], 0),
            (["a.pdf"], 76), (["contract.pdf"], 66), (["--content", "content", "a.pdf"], 64),
            (["--trust-anchors", "ca.pem", "--time", "2020-01-01T00:00:00Z", "a.pdf"], 76),
            (["--time", "yesterday:x", "a.pdf"], 64), (["--crl", "none", "a.pdf"], 66),
        ]
        for (arguments, status) in cases {
            let output = try sandbox.certprov(
                ["verify"] + arguments.map { $0.hasPrefix("-") || $0.contains(":") ? $0 : path($0) })
            #expect(output.status == status, "\(arguments): \(output)")
            if status == 0 || status == 76 { #expect(output.stderr.isEmpty, "\(arguments): \(output)") }
        }
    }

    @Test("The document has each part of each signature, and a changed PDF is 65 and noted before it is signed again")
    func document() throws {
        _ = try sign("pdf", "contract.pdf", to: "a.pdf")
        _ = try sign("pdf", "a.pdf", to: "b.pdf")
        let good = try verify("--json", "--trust-anchors", "ca.pem", "b.pdf").require()
        let document = try #require(
            try JSONSerialization.jsonObject(with: Data(good.stdout.utf8)) as? [String: Any])
        let signatures = try #require(document["signatures"] as? [[String: Any]])
        #expect(document["kind"] as? String == "Verification" && signatures.count == 2)
        #expect(
            signatures.map { ($0["coverage"] as? [String: Any])?["change"] as? String } == ["signatures", "nothing"])
        #expect(signatures.allSatisfy { ($0["signer"] as? [String: Any])?["subject"] as? String == "CN=Alice" })
        for part in ["unaltered", "signed", "trusted", "maySign"] {
            #expect(signatures.allSatisfy { ($0[part] as? [String: Any])?["holds"] as? Bool == true }, "\(part)")
        }
        #expect(signatures.allSatisfy { $0["notRevoked"] is NSNull && $0["timeStamp"] is NSNull })

        // Another page behind both.
        try update("b.pdf", 3, "<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>", to: "c.pdf")
        let changed = try verify("--trust-anchors", "ca.pem", "c.pdf")
        #expect(changed.status == 65 && changed.stdout.contains("something else was changed"), "\(changed)")
        let noted = try sign("pdf", "c.pdf", to: "d.pdf")
        #expect(noted.stderr.contains("was changed after the signature Signature1"), "\(noted)")
        try update(
            "contract.pdf", 1, "<</Type/Catalog/Pages 2 0 R/OpenAction<</S/JavaScript/JS(x)>>>>", to: "e.pdf")
        let script = try sign("pdf", "e.pdf", to: "f.pdf")
        #expect(script.stderr.contains("has scripts") && !script.stderr.contains("after"), "\(script)")
    }

    /// Adds an update with one object.
    private func update(_ name: String, _ number: Int, _ object: String, to other: String) throws {
        let file = Array(try Data(contentsOf: URL(filePath: path(name))))
        let text = "\(number) 0 obj\n\(object)\nendobj\n"
        let offset = String(repeating: "0", count: 10 - "\(file.count)".count) + "\(file.count)"
        let last = try #require(String(decoding: file, as: UTF8.self).split(separator: "\n").dropLast().last)
        let section = "xref\n\(number) 1\n\(offset) 00000 n \ntrailer\n<</Size 20/Root 1 0 R/Prev \(last)>>\n"
        try sandbox.write(
            file + Array((text + section + "startxref\n\(file.count + text.utf8.count)\n%%EOF\n").utf8), to: other)
    }
}
