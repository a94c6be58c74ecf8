import CertificateProviding
import Contracts
import FoundationEssentials
import Testing

/// Files as other programs make them.
enum SellSignFixture {
    /// A PDF of one page.
    ///
    /// - Parameter size: Of the whole document; `nil` for the smallest.
    static func pdf(_ title: String = "Contract AF72379987", size: Int? = nil) -> [UInt8] {
        let smallest = pdf(title, padding: 0)
        guard let size else { return smallest }
        // The length of the padding is written in it, and in the offsets, which all have ten digits.
        var padding = max(0, size - smallest.count)
        for _ in 0..<4 { padding += size - pdf(title, padding: padding).count }
        return pdf(title, padding: padding)
    }

    private static func pdf(_ title: String, padding: Int) -> [UInt8] {
        let stream = "BT /F 12 Tf 72 770 Td (\(title)) Tj ET"
        let fill = "\(padding)"
        var objects: [[UInt8]] = [
            "<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources << /Font << /F 5 0 R >> >> >>",
            "<< /Length \(stream.utf8.count) >>\nstream\n\(stream)\nendstream",
            "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        ].map { Array($0.utf8) }
        objects.append(
            Array("<< /Length \(fill) >>\nstream\n".utf8) + [UInt8](repeating: 0x20, count: padding)
                + Array("\nendstream".utf8))
        var document = Array("%PDF-1.7\n".utf8)
        var offsets: [Int] = []
        for (index, object) in objects.enumerated() {
            offsets.append(document.count)
            document += "\(index + 1) 0 obj\n".utf8
            document += object
            document += "\nendobj\n".utf8
        }
        let start = document.count
        document += "xref\n0 \(objects.count + 1)\n0000000000 65535 f \n".utf8
        for offset in offsets {
            let digits = "\(offset)"
            document += (String(repeating: "0", count: 10 - digits.count) + digits + " 00000 n \n").utf8
        }
        document += "trailer\n<< /Size \(objects.count + 1) /Root 1 0 R >>\nstartxref\n\(start)\n%%EOF\n".utf8
        return document
    }

    static let png: [UInt8] = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0]

    static func uri(_ type: String, _ content: [UInt8]) -> JSONValue {
        .string("data:\(type);base64,\(Data(content).base64EncodedString())")
    }

    /// The example of the vendor's page, with every optional member.
    static func complete(pdf: [UInt8] = pdf()) throws -> JSONValue {
        var file = try JSONValue(
            parsing: Array(
                #"""
                { "customer": { "number": "my_customer_number", "mode": 2, "contractor_id": -1, "fields": [
                      { "key": "firstname", "value": "Jean" }, { "key": "lastname", "value": "Dupont" },
                      { "key": "civility", "value": "MONSIEUR" }, { "key": "companyName", "value": "cal" },
                      { "key": "shoe_size", "value": 42.50 } ], "vendor": "vendor@example.com" },
                  "contractors": [ { "number": "second", "mode": 2, "fields": [
                      { "key": "firstname", "value": "Marie" }, { "key": "lastname", "value": "Curie" } ], "ratio": 1e-3 } ],
                  "contract": { "contract_definition_id": 1, "pdf_file_name": "my_contract.pdf", "contract_id": -1,
                      "message_title": "Votre contrat", "message_body": "Bonjour\n\u0001\u00e9\ud83d\ude00", "keep_on_move": true },
                  "contract_properties": [ { "key": "my_internal_contract_id", "value": "AF72379987", "to_fill_by_user": 0 } ],
                  "files": [ { "name": "cal.png", "type": "image/png" } ],
                  "options": [], "my_own_member": { "kept": [null, true, false, 0, -0.0, 1E+2, ""] },
                  "error_callback_url": "myapp://error?id=AF72379987",
                  "success_callback_url": "myapp://success?id=AF72379987" }
                """#.utf8))
        file[at: "contract.pdf_file_path"] = uri("application/pdf", pdf)
        file[at: "files[0].path"] = uri("image/png", png)
        return file
    }

    /// A file of other members.
    static func file(_ changes: [String: JSONValue?]) throws -> [UInt8] {
        var file = try complete()
        for (path, value) in changes.sorted(by: { $0.key < $1.key }) { file[at: path] = value }
        return file.bytes
    }

    static func content(_ changes: [String: JSONValue?] = [:]) async throws -> ContractContent {
        try await ContractFile.read(file(changes)).content
    }

    /// The folder of files for all implementations, if it is beside this checkout.
    static let folder: String? = {
        var folder = URL(filePath: #filePath)
        while folder.path.count > 1 {
            folder.deleteLastPathComponent()
            let files = folder.appending(path: "shared/testdata/sellsign")
            if FileManager.default.fileExists(atPath: files.appending(path: "index.tsv").path) { return files.path }
        }
        return nil
    }()
}

extension JSONValue {
    /// A value by its path, such as `files[0].path`; set to `nil`, it is removed, and `[9]` in an array is added at its end.
    subscript(at path: String) -> JSONValue? {
        get { value(at: Self.steps(path)) }
        set { set(Self.steps(path)[...], newValue) }
    }

    private static func steps(_ path: String) -> [String] {
        path.replacing("[", with: ".[").split(separator: ".").map(String.init)
    }

    private func value(at steps: [String]) -> JSONValue? {
        steps.reduce(self as JSONValue?) { value, step in
            step.hasPrefix("[")
                ? Int(step.dropFirst().dropLast()).flatMap { index in
                    value?.array.flatMap { $0.indices.contains(index) ? $0[index] : nil }
                }
                : value.flatMap {
                    if case .object(let members) = $0 { members.first { $0.name == step }?.value } else { nil }
                }
        }
    }

    private mutating func set(_ steps: ArraySlice<String>, _ new: JSONValue?) {
        guard let step = steps.first else { return }
        let rest = steps.dropFirst()
        switch self {
        case .array(var elements):
            let index = Int(step.dropFirst().dropLast()) ?? elements.count
            if !rest.isEmpty, elements.indices.contains(index) {
                elements[index].set(rest, new)
            } else if let new {
                if elements.indices.contains(index) { elements[index] = new } else { elements.append(new) }
            } else {
                elements.remove(at: index)
            }
            self = .array(elements)
        case .object(var members):
            let index = members.firstIndex { $0.name == step }
            if let index, !rest.isEmpty {
                members[index].value.set(rest, new)
            } else if let new {
                if let index { members[index].value = new } else { members.append(.init(step, new)) }
            } else if let index {
                members.remove(at: index)
            }
            self = .object(members)
        default: return
        }
    }
}

extension Result where Failure == any Error {
    /// Runs work, and keeps its error.
    init(of work: () async throws -> Success) async {
        do { self = .success(try await work()) } catch { self = .failure(error) }
    }
}

/// Returns the error of work that must fail.
func failure<T>(_ work: () async throws -> T) async -> ProviderError? {
    do {
        _ = try await work()
        return nil
    } catch { return error as? ProviderError }
}
