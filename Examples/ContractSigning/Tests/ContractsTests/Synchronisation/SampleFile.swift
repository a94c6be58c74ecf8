import Foundation

/// A small contract, as a file.
enum SampleFile {
    /// - Parameters:
    ///   - number: Makes the file another one.
    ///   - isComplete: Whether the property `delivery_date` has a value.
    ///   - isShared: Whether hosts get it from the server.
    ///   - isSmall: Whether it has only what a contract needs.
    ///   - contractors: The first names of more signatories, who have the same mode.
    ///   - pages: Of the PDF.
    static func bytes(
        number: Int = 1, isComplete: Bool = true, isShared: Bool = true, mode: Int = 2, isSmall: Bool = false,
        contractors: [String] = [], isOrdered: Bool = false, pages: Int = 1
    ) -> [UInt8] {
        let pdf = Data(pdf(title: "Contract \(number)", pages: pages)).base64EncodedString()
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

    /// Pages of A4 with text from edge to edge, but for the last 36 points.
    private static func pdf(title: String, pages: Int) -> [UInt8] {
        let line = "(\(title): \(String(repeating: "both sides agree, ", count: 8))) Tj T* "
        let text = "BT /F 10 Tf 12 TL 4 826 Td \(String(repeating: line, count: 66))ET"
        let numbers = (0..<pages).map { 5 + 2 * $0 }
        let kids = numbers.map { "\($0) 0 R" }.joined(separator: " ")
        let objects =
            [
                "<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Kids[\(kids)]/Count \(pages)>>", "<</Title(\(title))>>",
                "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
            ]
            + numbers.flatMap { number in
                [
                    "<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents \(number + 1) 0 R/Resources<</Font<</F 4 0 R>>>>>>",
                    "<</Length \(text.utf8.count)>>\nstream\n\(text)\nendstream",
                ]
            }
        var file = "%PDF-1.7\n"
        var table = "xref\n0 \(objects.count + 1)\n0000000000 65535 f \n"
        for (index, object) in objects.enumerated() {
            table += String(format: "%010d 00000 n \n", file.utf8.count)
            file += "\(index + 1) 0 obj\n\(object)\nendobj\n"
        }
        let trailer =
            "trailer\n<</Size \(objects.count + 1)/Root 1 0 R/Info 3 0 R>>\nstartxref\n\(file.utf8.count)\n%%EOF\n"
        return Array((file + table + trailer).utf8)
    }
}
