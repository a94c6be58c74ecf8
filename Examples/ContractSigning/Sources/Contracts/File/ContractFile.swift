public import CertificateProviding
import Signing

/// A `.sellsign` file: a contract with its documents.
public struct ContractFile: Sendable {
    /// Makes a PDF of a template: gets the file, and returns the PDF.
    public typealias Renderer = @Sendable (_ json: [UInt8]) async throws(ProviderError) -> [UInt8]

    public let content: ContractContent
    /// What the references of ``content`` stand for.
    public let documents: [DocumentReference: [UInt8]]

    /// Reads a file. Its documents are in it: names of files and addresses are not followed.
    ///
    /// - Parameter renderer: For a file without a PDF that has `options` for a template.
    /// - Throws: `malformedData`, whose message begins with the path of the member that is wrong; `operationNotAllowed` for a template
    ///   without a renderer; errors of the renderer.
    public static func read(
        _ bytes: [UInt8], renderer: Renderer? = nil
    ) async throws(ProviderError) -> ContractFile {
        var file = try Documents(try JSONValue(parsing: bytes))
        if file.isTemplate {
            // What else is wrong has been found before the program runs, and before a template is refused.
            _ = try ContractContent(file.json)
            guard let renderer else {
                throw ProviderError(
                    .operationNotAllowed,
                    "options: the contract has a template in the place of a PDF, and no program makes PDFs here. Set Contracts.renderer to one."
                )
            }
            try file.setRendered(try await renderer(file.original.bytes))
        }
        let (content, documents) = (try ContractContent(file.json), file.contents)
        try content.check(pdfIsOf: file.isTemplate ? "options" : "contract.pdf_file_path") { documents[$0] ?? [] }
        try content.requireSendable()
        return ContractFile(content: content, documents: documents)
    }

    /// Returns the URLs that a file names for callbacks, as far as they can be told, for the caller of a file that ``read(_:renderer:)``
    /// refuses.
    public static func callbacks(of bytes: [UInt8]) -> (success: String?, error: String?) {
        let json = try? JSONReader.read(
            bytes, maximumSize: JSONValue.maximumSize, maximumDepth: 256, acceptsDuplicates: true)
        guard let json, case .object(let members) = json else { return (nil, nil) }
        func callback(_ name: String) -> String? {
            guard members.count(where: { $0.name == name }) == 1 else { return nil }
            return (try? ContractContent.callback(name, of: MemberReader(json))) ?? nil
        }
        return (callback("success_callback_url"), callback("error_callback_url"))
    }
}

extension ContractContent {
    /// Checks that a message with the content, without its documents, is within the limits of JSON texts: what is accepted can be sent.
    ///
    /// - Throws: `malformedData`.
    func requireSendable() throws(ProviderError) {
        let most = (
            size: JSONValue.maximumSize - ContractVersion.maximumEnvelope.size,
            values: JSONValue.maximumValues - ContractVersion.maximumEnvelope.values
        )
        let file = MemberReader(json)
        let (size, values) = (json.bytes.count, json.count)
        guard size <= most.size else {
            throw file.malformed(
                "has \(size) bytes as it is sent, without its documents; at most \(most.size) are taken")
        }
        guard values <= most.values else {
            throw file.malformed("has \(values) values; at most \(most.values) are taken")
        }
    }

    /// Checks the documents: whether the PDF can be signed, and each attachment is what its type says, as far as that can be told.
    ///
    /// - Parameter content: Returns the content of a document.
    /// - Throws: `malformedData`, which names the member by its path, and errors of `content`.
    public func check(
        _ content: (DocumentReference) throws(ProviderError) -> [UInt8]
    ) throws(ProviderError) {
        try check(pdfIsOf: "contract.pdf_file_path", content)
    }

    /// - Parameter member: The path of the member that the PDF comes from.
    fileprivate func check(
        pdfIsOf member: String, _ content: (DocumentReference) throws(ProviderError) -> [UInt8]
    ) throws(ProviderError) {
        do throws(ProviderError) {
            // A time-stamp server may be configured, or not: a field that requires one does not matter here.
            _ = try PDFToSign(SigningContent(try content(pdf.document)), hasTimeStamp: true)
        } catch {
            guard [.documentNotSignable, .malformedData].contains(error.code) else { throw error }
            // A contract is signed in this way only.
            let reason = error.message.replacing(" Sign it with certprov sign cms.", with: "")
                .replacing(", or the file as it is with certprov sign cms.", with: ".")
            throw ProviderError(.malformedData, "\(member): \(reason)", underlying: error)
        }
        for (index, attachment) in attachments.enumerated() {
            guard let type = MediaType(attachment.type), type.canBe(try content(attachment.document)) else {
                throw ProviderError(
                    .malformedData,
                    "files[\(index)].path: the content is not \(DisplayText.visible(attachment.type)), which its type says."
                )
            }
        }
    }

    /// The file as it came, with the documents in it.
    ///
    /// - Parameter documents: Returns the content of a document.
    public func originalFile(
        documents: (DocumentReference) throws(ProviderError) -> [UInt8]
    ) throws(ProviderError) -> JSONValue {
        try json.replacingDocuments { path throws(ProviderError) in
            guard let (type, document) = DocumentReference.reading(placeholder: try path.string()) else {
                throw path.malformed("is no reference of a document")
            }
            return DataURI.text(type: type, try documents(document))
        }
    }
}

/// A file whose documents are taken out.
private struct Documents {
    let original: JSONValue
    /// With references in the places of the documents.
    private(set) var json: JSONValue
    var contents: [DocumentReference: [UInt8]] { rendered.reduce(into: written) { $0[DocumentReference(of: $1)] = $1 } }
    /// Those that are in the file.
    private let written: [DocumentReference: [UInt8]]
    /// The PDF that was made of a template.
    private var rendered: [[UInt8]] = []
    /// Whether `options` are to become the PDF. ``json`` has a reference to nothing then.
    private(set) var isTemplate = false

    init(_ file: JSONValue) throws(ProviderError) {
        original = file
        var contents: [DocumentReference: [UInt8]] = [:]
        var size = 0
        json = try file.replacingDocuments { path throws(ProviderError) in
            let (type, content) = try Self.content(path, &size)
            let document = DocumentReference(of: content)
            contents[document] = content
            return document.placeholder(type: type)
        }
        written = contents
        let reader = MemberReader(json)
        let hasPDF = reader["contract"]?["pdf_file_path"] != nil
        if !hasPDF, try !reader.elements("options").isEmpty, reader["contract"]?.value.isObject == true {
            isTemplate = true
            setPDF([])
        }
    }

    private static func content(
        _ path: MemberReader, _ size: inout Int
    ) throws(ProviderError) -> (type: String, content: [UInt8]) {
        guard let uri = DataURI(try path.string()) else {
            throw path.malformed("is no data: URI with ;base64; names of files and addresses are not followed")
        }
        if let count = uri.size { try path.requireSize(count, besides: &size) }
        guard let content = uri.content() else { throw path.malformed("is no base64 (RFC 4648)") }
        return (uri.type, content)
    }

    private mutating func setPDF(_ content: [UInt8]) {
        guard var contract = json["contract"] else { return }
        contract.set("pdf_file_path", .string(DocumentReference(of: content).placeholder(type: MediaType.pdf)))
        json.set("contract", contract)
    }

    mutating func setRendered(_ content: [UInt8]) throws(ProviderError) {
        guard content.count <= ContractContent.maximumDocuments else {
            throw ProviderError(
                .malformedData,
                "options: the PDF that was made of them has \(content.count) bytes; at most \(ContractContent.maximumDocuments) are taken."
            )
        }
        rendered = [content]
        setPDF(content)
    }
}

extension JSONValue {
    /// Returns the file with another text in the place of each document's.
    func replacingDocuments(
        _ replacement: (MemberReader) throws(ProviderError) -> String
    ) throws(ProviderError) -> JSONValue {
        var file = self
        let reader = MemberReader(self)
        if let contract = reader["contract"], let path = contract["pdf_file_path"] {
            var value = contract.value
            value.set("pdf_file_path", .string(try replacement(path)))
            file.set("contract", value)
        }
        if reader["files"] != nil {
            var files: [JSONValue] = []
            for entry in try reader.elements("files") {
                var value = entry.value
                if let path = entry["path"] { value.set("path", .string(try replacement(path))) }
                files.append(value)
            }
            file.set("files", .array(files))
        }
        return file
    }
}
