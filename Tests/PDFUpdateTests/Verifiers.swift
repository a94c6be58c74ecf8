import CertificateProviding
import Foundation
import TestSupport
import Testing

/// The verdicts of other programs on signed documents.
enum Verifiers {
    private static let programs = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().appending(path: ".build/pyhanko/bin").path
    private static let python = programs + "/python"

    /// Whether pyHanko is there.
    static let hasHanko = access(python, X_OK) == 0

    /// pyHanko's verdict on a signature.
    struct Verdict: Decodable, Equatable, Sendable {
        struct Stamp: Decodable, Equatable, Sendable { var valid, trusted: Bool }
        var field: String
        var error, level, coverage: String?
        var intact, valid, trusted, docmdp: Bool?
        var stamp: Stamp?
    }

    private struct Line: Decodable {
        var path: String
        var error: String?
        var signatures: [Verdict]?
    }

    /// pyHanko's verdicts, by the paths of documents; none for a document that it cannot read.
    static func hanko(_ paths: [String], anchors: [X509Certificate], in directory: TemporaryDirectory) throws
        -> [String: [Verdict]]
    {
        let file = try directory.write(
            anchors.map { PEMText.certificate($0) }.joined().utf8, to: "anchors-\(UUID().uuidString).pem")
        let script = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "validate.py").path
        let output = try Subprocess.run([python, "-B", script, file] + paths)
        let lines = try output.split(separator: 0x0a).map { try JSONDecoder().decode(Line.self, from: Data($0)) }
        return Dictionary(lines.map { ($0.path, $0.signatures ?? []) }) { $1 }
    }

    /// Adds empty signature fields by pyHanko, each `PAGE/X1,Y1,X2,Y2/NAME`.
    static func addFields(_ fields: [String], to path: String, as output: String) throws {
        let options = fields.flatMap { ["--field", $0] }
        try Subprocess.run([programs + "/pyhanko", "sign", "addfields"] + options + [path, output])
    }

    /// The text of pdfsig on each signature.
    static func pdfsig(_ path: String, in directory: TemporaryDirectory) throws -> [String] {
        if !FileManager.default.fileExists(atPath: directory["nss"]) {
            try FileManager.default.createDirectory(atPath: directory["nss"], withIntermediateDirectories: true)
            try Subprocess.run(["certutil", "-d", "sql:" + directory["nss"], "-N", "--empty-password"])
        }
        let output = try Subprocess(
            ["pdfsig", "-nssdir", directory["nss"], path], .captured(), seconds: 60
        ).wait().stdout
        return output.components(separatedBy: "Signature #").dropFirst().map { $0 }
    }

    /// The findings of `qpdf --check`, without numbers: an update moves things, also out of an object stream. An object without an end
    /// goes on to that of the file, and is given up after some errors.
    static func qpdf(_ path: String) throws -> Set<String> {
        let output = try Subprocess(["qpdf", "--check", path], .captured(), seconds: 60).wait()
        let lines = (output.stdout + output.stderr).split(separator: "\n").map(String.init).filter {
            line in
            !["checking", "PDF Version", "File is", "No syntax", "errors that", "qpdf: operation"].contains {
                line.hasPrefix($0)
            } && !line.contains("too many errors; giving up")
        }
        return Set(
            lines.map {
                $0.replacing(path, with: "").replacing(#/ object stream \d+,/#, with: ",").filter { !$0.isNumber }
            })
    }

    /// Expects that all three find the last signature valid, and qpdf no more than before.
    ///
    /// - Parameters:
    ///   - verdicts: pyHanko's on the signed document; `nil` where it cannot judge it.
    static func expectValid(
        _ path: String, from original: String, _ verdicts: [Verdict]?, in directory: TemporaryDirectory,
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        try Subprocess.run(["cmp", "-n", "\(size(of: original))", original, path])
        let signatures = try pdfsig(path, in: directory)
        let last = signatures.first { $0.contains("Total document signed\n") && !$0.contains("Not total") }
        #expect(last?.contains("Signature is Valid") == true, "\(path): \(signatures)", sourceLocation: sourceLocation)
        let more = try qpdf(path).subtracting(try qpdf(original))
        #expect(
            more.isEmpty, "\(path): \(more)", sourceLocation: sourceLocation)
        guard let verdicts else { return }
        let own = verdicts.last
        #expect(
            own?.intact == true && own?.valid == true && own?.trusted == true && own?.coverage == "ENTIRE_FILE",
            "\(path): \(verdicts)", sourceLocation: sourceLocation)
    }

    private static func size(of path: String) throws -> Int {
        try FileManager.default.attributesOfItem(atPath: path)[.size] as? Int ?? 0
    }
}

extension TestAuthority {
    /// An identity that NSS takes: serial numbers have at most 20 bytes (RFC 5280, section 4.1.2.2), and every other random one has 21.
    func signer(_ name: String, kind: KeyKind = .p256) throws -> Identity {
        while true {
            let identity = try issue(name, kind: kind)
            if identity.certificate.serialNumber.count <= 20 { return identity }
        }
    }
}

enum PEMText {
    static func certificate(_ certificate: X509Certificate) -> String {
        let base64 = Data(certificate.derRepresentation).base64EncodedString(options: [.lineLength64Characters])
        return "-----BEGIN CERTIFICATE-----\n\(base64)\n-----END CERTIFICATE-----\n"
    }
}
