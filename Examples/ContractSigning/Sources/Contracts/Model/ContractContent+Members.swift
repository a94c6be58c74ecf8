import CertificateProviding

extension ContractContent.Property {
    static let member = "contract_properties"

    static func read(in file: MemberReader) throws(ProviderError) -> [ContractContent.Property] {
        var properties: [ContractContent.Property] = []
        var keys: Set<String> = []
        for property in try file.objects(member) {
            let key = try property.required("key")
            let name = try key.string()
            guard !name.isEmpty else { throw key.malformed("is empty") }
            guard keys.insert(name).inserted else {
                throw key.malformed("is \(JSONPath.visible(name)), which is there already")
            }
            let value = try property["value"]?.plainText()
            let isToFill = try property["to_fill_by_user"]?.flag() ?? false
            properties.append(
                ContractContent.Property(
                    key: name, value: value.flatMap { $0.isBlank ? nil : $0 }, isToFill: isToFill))
        }
        return properties
    }

    /// Whether a person has to fill it in.
    var isMissing: Bool { isToFill && value == nil }

    /// The key that `complete` takes: that of the property, unless a field of a signatory has the same.
    func fillingKey(besides fields: [String]) -> String {
        fields.contains(CustomerField.name(of: key) ?? key) ? "\(Self.member).\(key)" : key
    }
}

extension ContractContent.Attachment {
    /// The PDF of a contract.
    ///
    /// - Parameter size: The size of the documents before this one; then with it.
    static func pdf(
        of contract: MemberReader, _ size: inout Int
    ) throws(ProviderError) -> ContractContent.Attachment {
        let name = try contract["pdf_file_name"]?.string() ?? ""
        let path = try contract.required("pdf_file_path")
        let (type, document) = try reference(path, &size)
        guard MediaType(MediaType.pdf)?.fits(type.isEmpty ? nil : MediaType(type)) == true else {
            throw path.malformed("is \(type), and no PDF (application/pdf)")
        }
        return Self(
            name: FileName.visible(name, default: "contract.pdf"), type: MediaType.pdf, document: document)
    }

    init(_ file: MemberReader, _ index: Int, _ size: inout Int) throws(ProviderError) {
        let path = try file.required("path")
        let (written, document) = try Self.reference(path, &size)
        let name = try file["name"]?.string() ?? ""
        var type = written.isEmpty ? MediaType.unknown : written
        if let member = file["type"] {
            type = try member.string()
            guard let stated = MediaType(type) else { throw member.malformed("is no media type, such as image/png") }
            guard stated.fits(written.isEmpty ? nil : MediaType(written)) else {
                throw member.malformed(
                    "is \(JSONPath.visible(type)), and \(path.path) says \(JSONPath.visible(written))")
            }
        }
        self.init(
            name: FileName.visible(name, default: "attachment-\(index + 1)"), type: type, document: document)
    }

    private static func reference(
        _ path: MemberReader, _ size: inout Int
    ) throws(ProviderError) -> (type: String, document: DocumentReference) {
        guard let reference = DocumentReference.reading(placeholder: try path.string()) else {
            throw path.malformed("is no reference of a document (data:TYPE;base64,sha256:DIGEST,SIZE)")
        }
        try path.requireSize(reference.document.size, besides: &size)
        return reference
    }
}

extension MemberReader {
    /// Adds the size of a document to that of those before it.
    ///
    /// - Throws: `malformedData` for more than a contract may have.
    func requireSize(_ size: Int, besides sum: inout Int) throws(ProviderError) {
        guard size <= ContractContent.maximumDocuments - sum else {
            throw malformed(
                "with the documents before it has \(size > Int.max - sum ? size : sum + size) bytes; "
                    + "at most \(ContractContent.maximumDocuments) are taken")
        }
        sum += size
    }
}

extension String {
    /// Whether there is nothing, or only white space.
    var isBlank: Bool { allSatisfy(\.isWhitespace) }
}
