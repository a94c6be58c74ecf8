import CertificateProviding
import Foundation
import TestSupport
import Testing

/// PEM as people and programs write it, beside OpenSSL: it reads the same, and refuses damage.
@Suite struct PEMFileTests {
    struct Oddity: Sendable, CustomTestStringConvertible {
        var testDescription: String
        /// `nil` for a text that must be read; else what the error must say.
        var refusal: String?
        /// Makes the text from two certificates.
        var write: @Sendable (_ first: String, _ second: String) -> String

        init(_ name: String, refused: String? = nil, _ write: @escaping @Sendable (String, String) -> String) {
            (testDescription, refusal, self.write) = (name, refused, write)
        }
    }

    private static let begin = "-----BEGIN CERTIFICATE-----"
    private static let end = "-----END CERTIFICATE-----"

    /// The lines of base64, in lines of another length.
    private static func wrapped(_ pem: String, _ columns: Int) -> String {
        var digits = Substring(pem.split(separator: "\n").dropFirst().dropLast().joined())
        var lines: [String] = []
        while !digits.isEmpty {
            lines.append(String(digits.prefix(columns)))
            digits = digits.dropFirst(columns)
        }
        return ([begin] + lines + [end]).joined(separator: "\n") + "\n"
    }

    /// The text with each line of base64 replaced.
    private static func inside(_ pem: String, _ change: (Substring) -> String) -> String {
        pem.split(separator: "\n").map { $0.hasPrefix("-----") ? String($0) : change($0) }.joined(separator: "\n")
            + "\n"
    }

    private static func block(_ label: String, headers: String = "") -> String {
        "-----BEGIN \(label)-----\n\(headers)MDAwMDAwMDAw\n-----END \(label)-----\n"
    }

    /// The text without its base64 line of this number.
    private static func without(_ pem: String, line: Int) -> String {
        var lines = pem.split(separator: "\n")
        lines.remove(at: line)
        return lines.joined(separator: "\n") + "\n"
    }

    static let oddities: [Oddity] = [
        Oddity("as OpenSSL writes it") { $0 + $1 },
        Oddity("a blank after BEGIN") { $0 + $1.replacing(begin, with: begin + " ") },
        Oddity("a tab after BEGIN") { $0.replacing(begin, with: begin + "\t") + $1 },
        Oddity("a blank after END") { $0.replacing(end, with: end + " ") + $1 },
        Oddity("a blank at the end of each line") { ($0 + $1).replacing("\n", with: " \n") },
        Oddity("a tab at the end of each line") { ($0 + $1).replacing("\n", with: "\t\n") },
        Oddity("base64 indented by a blank") { inside($0) { " \($0)" } + inside($1) { " \($0)" } },
        Oddity("base64 indented by a tab") { inside($0) { "\t\($0)" } + inside($1) { "\t\($0)" } },
        Oddity("lines of 76 characters") { wrapped($0, 76) + wrapped($1, 76) },
        Oddity("lines of 48 characters") { wrapped($0, 48) + wrapped($1, 48) },
        Oddity("base64 in one line") { wrapped($0, 100_000) + wrapped($1, 100_000) },
        Oddity("CRLF") { ($0 + $1).replacing("\n", with: "\r\n") },
        Oddity("CR") { ($0 + $1).replacing("\n", with: "\r") },
        Oddity("no line ending at the end") { $0 + String($1.dropLast()) },
        Oddity("an empty line after BEGIN") { $0.replacing(begin, with: begin + "\n") + $1 },
        Oddity("an empty line before END") { $0 + $1.replacing(end, with: "\n" + end) },
        Oddity("empty lines between the blocks") { "\n\n" + $0 + "\n\n\n" + $1 + "\n" },
        Oddity("text around the blocks") { "Our CA: it's new\n0 s:CN = leaf\n" + $0 + "-- \nissuer\n" + $1 + "end" },
        Oddity("bag attributes") {
            "Bag Attributes\n    localKeyID: 01 02\nsubject=CN = leaf\n\n" + $0 + "Bag Attributes: <Empty Attributes>\n"
                + $1
        },
        Oddity("a byte order mark") { "\u{feff}" + $0 + $1 },
        Oddity("the label X509 CERTIFICATE") { ($0 + $1).replacing(" CERTIFICATE", with: " X509 CERTIFICATE") },
        Oddity("a label in lower case") { $0 + $1.replacing(" CERTIFICATE", with: " certificate") },
        Oddity("curve parameters before") { block("EC PARAMETERS") + $0 + $1 },
        Oddity("DH parameters after") { $0 + $1 + block("DH PARAMETERS") },
        Oddity("a public key between") { $0 + block("PUBLIC KEY") + $1 },
        Oddity("a private key before") { block("PRIVATE KEY") + $0 + $1 },
        Oddity("an encrypted private key between") { $0 + block("ENCRYPTED PRIVATE KEY") + $1 },
        Oddity("a key with the old encryption before") {
            block("EC PRIVATE KEY", headers: "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,F2FF4FCC\n\n") + $0 + $1
        },
        Oddity("whole blocks indented, as in YAML") { ($0 + $1).split(separator: "\n").map { "    \($0)\n" }.joined() },
        Oddity("a blank between digits") { inside($0) { "\($0.prefix(20)) \($0.dropFirst(20))" } + $1 },

        Oddity("the end cut off", refused: "is cut off") { $0 + $1.dropLast(40) },
        Oddity("cut off after a line", refused: "is cut off") {
            $0 + $1.split(separator: "\n").prefix(4).joined(separator: "\n") + "\n"
        },
        Oddity("only BEGIN", refused: "is cut off") { $0 + $1 + begin + "\n" },
        Oddity("no END of the first", refused: "line 1: the PEM block 'CERTIFICATE' is cut off") {
            $0.replacing(end + "\n", with: "") + $1
        },
        Oddity("no BEGIN of the second", refused: "a PEM block ends, and no line before it") {
            $0 + $1.replacing(begin + "\n", with: "")
        },
        Oddity("another label at END", refused: "ends in another line than") {
            $0 + $1.replacing(end, with: "-----END PRIVATE KEY-----")
        },
        Oddity("a character that is not base64", refused: "is not base64") {
            $0 + inside($1) { String($0.replacing("M", with: "*")) }
        },
        Oddity("base64 of URLs", refused: "is not base64") { $0 + inside($1) { "-" + $0.dropFirst() } },
        Oddity("a line lost", refused: "is a damaged certificate") { $0 + without($1, line: 3) },
        Oddity("a digit lost", refused: "is cut off") { inside($0) { String($0.dropLast()) } + $1 },
        Oddity("padding in the middle", refused: "is not base64") { $0 + inside($1) { "\($0)==" } },
        Oddity("an empty block", refused: "is cut off") { "\(begin)\n\(end)\n" + $0 + $1 },
        Oddity("four dashes before BEGIN", refused: "a PEM block ends, and no line before it") {
            String($0.dropFirst()) + $1
        },
        Oddity("four dashes after BEGIN", refused: "line 1: a PEM block begins with") {
            $0.replacing(begin, with: String(begin.dropLast())) + $1
        },
        Oddity("END and BEGIN in one line", refused: "ends in another line than") { String($0.dropLast()) + $1 },
        Oddity("all in one line", refused: "a PEM block begins with a line that is not") {
            ($0 + $1).replacing("\n", with: "")
        },
        Oddity("line ends as \\n", refused: "a PEM block begins with a line that is not") {
            ($0 + $1).replacing("\n", with: "\\n")
        },
        Oddity("headers that do not end", refused: "is cut off") { $0.replacing(begin, with: begin + "\nA: b") + $1 },
        Oddity("a TRUSTED CERTIFICATE", refused: "convert each with: openssl x509") {
            $0.replacing(" CERTIFICATE", with: " TRUSTED CERTIFICATE") + $1
        },
        Oddity("another thing as a certificate", refused: "is a damaged certificate") {
            block("CERTIFICATE") + $0 + $1
        },
    ]

    @Test("PEM is read as OpenSSL reads it, and a damaged block is refused", arguments: oddities)
    func readsWhatOpenSSLReads(_ oddity: Oddity) throws {
        let authority = try TestAuthority()
        let expected = [authority.intermediate, authority.root]
        let text = oddity.write(expected[0].pemRepresentation, expected[1].pemRepresentation)
        let directory = try TemporaryDirectory()
        let path = try directory.write(Array(text.utf8), to: "chain.pem")
        let ours = Result { try CertificateFile.read(path) }

        let openSSL = try Subprocess(["openssl", "storeutl", "-noout", "-certs", path], .captured(), seconds: 60).wait()
        let count = openSSL.stdout.split(separator: "\n").last { $0.hasPrefix("Total found: ") }
            .flatMap { Int($0.dropFirst("Total found: ".count)) }
        let readsAll = openSSL.status == 0 && count == 2
        switch ours {
        case .success(let certificates):
            #expect(certificates == expected)
            #expect(oddity.refusal == nil)
        case .failure(let error as ProviderError):
            // OpenSSL reads its own form, and leaves out a block without content at the end.
            let isRefusedByUsAlone = ["a TRUSTED CERTIFICATE", "only BEGIN"].contains(oddity.testDescription)
            #expect(!readsAll || isRefusedByUsAlone, "OpenSSL reads it: \(error)")
            #expect(error.code == .malformedData || error.code == .configurationInvalid)
            #expect(error.message.contains(path + ", line "))
            let refusal = try #require(oddity.refusal, "\(error)")
            #expect(error.message.contains(refusal), "\(error)")
        case .failure(let error):
            Issue.record(error)
        }
        // The same without a file.
        let memory = Result { try X509Certificate.certificates(pem: text) }
        #expect((try? memory.get()) == (try? ours.get()))
    }

    @Test("A private key is a secret, and no error quotes it")
    func keysAreSecret() throws {
        let key = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0IGtleQ==\n-----END PRIVATE KEY-----\n"
        let block = try #require(try PEMFile(Array(key.utf8), named: "key.pem").blocks.first)
        #expect(block.bytes.isEmpty)
        #expect(block.secret == SecretBytes(utf8: "secret key"))
        #expect(!"\(block)".contains("secret key"))
        for broken in [
            key.replacing("\n", with: ""), key.replacing("\n", with: " "), key.replacing("=", with: "*"),
            "-----BEGIN c2VjcmV0IGtleQ", key.replacing("PRIVATE KEY-----\nc2", with: "c2"),
        ] {
            #expect(failure { try PEMFile(Array(broken.utf8), named: "key.pem") }?.message.contains("VjcmV0") == false)
        }
    }

    @Test("A file that is not PEM, too large or not there is an error that names it")
    func otherFiles() throws {
        let directory = try TemporaryDirectory()
        let authority = try TestAuthority()
        let der = try directory.write(authority.root.derRepresentation, to: "root.der")
        #expect(try CertificateFile.read(der) == [authority.root])
        for (name, bytes, code, reason) in [
            ("cut.der", authority.root.derRepresentation.dropLast(), ProviderError.Code.malformedData, "damaged"),
            ("empty", [], .malformedData, "contains no certificate; name a file"),
            ("text", Array("0 is not DER".utf8)[...], .malformedData, "contains no certificate"),
            ("key.pem", Array(Self.block("PUBLIC KEY").utf8)[...], .malformedData, "but 'PUBLIC KEY' (line 1)"),
            (
                "large", [UInt8](repeating: 0x20, count: PEMFile.maximumSize + 1)[...], .configurationInvalid,
                "the limit is"
            ),
        ] as [(String, ArraySlice<UInt8>, ProviderError.Code, String)] {
            let path = try directory.write(bytes, to: name)
            let error = #expect(throws: ProviderError.self) { try CertificateFile.read(path) }
            #expect(error?.code == code && error?.message.contains(reason) == true, "\(name): \(error?.message ?? "")")
            #expect(error?.message.contains(path) == true)
        }
        #expect(code { try CertificateFile.read(directory["nothing"]) } == .fileNotFound)
        #expect(code { try CertificateFile.read(directory.path) } == .configurationInvalid)
    }

    @Test(
        "A file in another encoding is an error with the command that converts it",
        arguments: [
            ("DER", "x509 -in a.pem -outform DER -out x"), ("DER", "pkey -in a.pem -outform DER -out x"),
            ("PKCS#7", "crl2pkcs7 -nocrl -certfile a.pem -outform DER -out x"),
            ("PKCS#7", "crl2pkcs7 -nocrl -certfile a.pem -out x"),
            ("PKCS#12", "pkcs12 -export -in a.pem -passout pass: -out x"), ("UTF-16", ""),
        ])
    func otherEncodings(_ name: String, _ command: String) throws {
        let directory = try TemporaryDirectory()
        func shell(_ command: String) throws {
            _ = try Subprocess.run(["sh", "-c", command], in: directory.path)
        }
        try shell(
            "openssl req -x509 -newkey ed25519 -nodes -subj /CN=host -keyout a.key -out a.crt && cat a.key a.crt >a.pem"
        )
        let certificates = try PEMFile(path: directory["a.pem"]).certificates()
        try shell(command.isEmpty ? "iconv -f UTF-8 -t UTF-16 a.pem >x" : "openssl \(command)")
        let error = failure { try PEMFile(path: directory["x"]).certificates() }
        let message = try #require(error?.message)
        #expect(message.hasPrefix(directory["x"]) && message.contains(name))
        var conversion = String(try #require(message.split(separator: "convert it with: ").last))
            .replacing("NEW", with: "b.pem").replacing(#/ \(for.*/#, with: "")
        if conversion.hasSuffix(".") { conversion.removeLast() }
        if command.hasPrefix("pkey") { conversion = conversion.replacing("x509", with: "pkey") }
        if name == "PKCS#12" { conversion += " -passin pass: -passout pass:1234" }
        try shell(conversion)
        let made = try PEMFile(path: directory["b.pem"])
        #expect(try made.blocks.contains(where: \.isPrivateKey) || made.certificates() == certificates)
    }

    private func code(_ body: () throws -> [X509Certificate]) -> ProviderError.Code? {
        failure(body)?.code
    }
}

/// Files from the field, where there is a folder of them beside the checkout.
@Suite struct FieldPEMTests {
    private static let folder = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent().appending(path: "shared/testdata/field").path
    private static let isPresent = FileManager.default.fileExists(atPath: folder + "/index.tsv")

    @Test(
        "Files from the field are read whole", .enabled(if: isPresent),
        arguments: [
            ("root.pem", 1), ("chain.pem", 2), ("begin-blank.pem", 1), ("begin-blank-second.pem", 2),
            ("begin-blank-first-of-two.pem", 2), ("blanks-everywhere.pem", 1), ("indented.pem", 1), ("tab-ends.pem", 1),
            ("columns-76.pem", 1), ("columns-48.pem", 1), ("one-line.pem", 1), ("blank-line.pem", 1),
            ("label-x509.pem", 1),
            ("encrypted-key-last.pem", 2), ("encrypted-key-first.pem", 2), ("root-first.pem", 3),
            ("server-two-icas.pem", 3),
        ])
    func filesAreRead(_ file: String, _ count: Int) throws {
        let path = Self.folder + "/" + file
        #expect(try CertificateFile.read(path).count == count)
        #expect(try CertificatePin.read(path).count == count)
    }

    @Test("A certificate in OpenSSL's own form is an error that says how to convert it", .enabled(if: isPresent))
    func ownForm() throws {
        let error = failure { try CertificateFile.read(Self.folder + "/label-trusted.pem") }
        #expect(error?.message.contains("openssl x509") == true)
    }
}
