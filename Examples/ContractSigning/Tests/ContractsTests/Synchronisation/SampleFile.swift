import Foundation

/// A small contract, as a file.
enum SampleFile {
    /// - Parameters:
    ///   - number: Makes the file another one.
    ///   - isComplete: Whether the property `delivery_date` has a value.
    ///   - isShared: Whether hosts get it from the server.
    ///   - isSmall: Whether it has only what a contract needs.
    ///   - contractors: The first names of more signatories, who have the same mode.
    static func bytes(
        number: Int = 1, isComplete: Bool = true, isShared: Bool = true, mode: Int = 2, isSmall: Bool = false,
        contractors: [String] = [], isOrdered: Bool = false
    ) -> [UInt8] {
        let pdf = Data(pdf(title: "Contract \(number)")).base64EncodedString()
        let date = isComplete ? #", "value": "2027-01-15""# : ""
        let people = contractors.enumerated().map { index, name in
            """
            {"number": "P\(index + 1)", "fields": [{"key": "firstname", "value": "\(name)"},
            {"key": "lastname", "value": "Curie"}, {"key": "cell_phone", "value": "+3361111111\(index + 1)"},
            {"key": "email", "value": "\(name)@example.org"}]}
            """
        }.joined(separator: ", ")
        if isSmall {
            return Array(
                """
                {"customer": {"number": "C\(number)", "mode": 2, "fields": [
                    {"key": "firstname", "value": "J"}, {"key": "lastname", "value": "D"}]},
                "contract": {"contract_definition_id": 1, "keep_on_move": \(isShared),
                    "pdf_file_path": "data:application/pdf;base64,\(pdf)"},
                "contractors": [\(people)], "contract_properties": [{"key": "delivery_date", "to_fill_by_user": 1\(date)}]}
                """.utf8)
        }
        let options = isOrdered ? #"{"key": "signing_order", "value": "sequential"}"# : ""
        let text = """
            {"customer": {"number": "C\(number)", "mode": \(mode), "contractor_id": -1, "fields": [
                {"key": "firstname", "value": "Jean"}, {"key": "lastname", "value": "Dupont"},
                {"key": "cellPhone", "value": "+33600000000"}, {"key": "email", "value": "jean@example.com"}]},
            "contractors": [\(people)],
            "contract": {"contract_definition_id": 1, "contract_id": -1, "pdf_file_name": "contract.pdf",
                "keep_on_move": \(isShared), "pdf_file_path": "data:application/pdf;base64,\(pdf)"},
            "contract_properties": [{"key": "delivery_date", "to_fill_by_user": 1\(date)}],
            "files": [{"path": "data:text/plain;base64,\(Data("note \(number)".utf8).base64EncodedString())",
                "name": "note.txt", "type": "text/plain"}],
            "options": [\(options)], "success_callback_url": "myapp://success?id=\(number)",
            "error_callback_url": "myapp://error?id=\(number)"}
            """
        return Array(text.utf8)
    }

    /// One empty page.
    static func pdf(title: String = "Contract") -> [UInt8] {
        let objects = [
            "<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Kids[3 0 R]/Count 1>>",
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]>>", "<</Title(\(title))>>",
        ]
        var text = "%PDF-1.7\n"
        var offsets: [Int] = []
        for (index, object) in objects.enumerated() {
            offsets.append(text.utf8.count)
            text += "\(index + 1) 0 obj\n\(object)\nendobj\n"
        }
        let start = text.utf8.count
        text += "xref\n0 5\n0000000000 65535 f \n"
        for offset in offsets { text += String(format: "%010d 00000 n \n", offset) }
        text += "trailer\n<</Size 5/Root 1 0 R/Info 4 0 R>>\nstartxref\n\(start)\n%%EOF\n"
        return Array(text.utf8)
    }
}
