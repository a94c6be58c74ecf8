import Contracts
import Foundation

/// `.sellsign` files with documents in them.
enum Files {
    /// A PDF with one empty page, which can be signed.
    static func pdf(_ title: String = "contract") -> [UInt8] {
        let objects = [
            "<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Resources << >> >>", "<< /Title (\(title)) >>",
        ]
        var text = "%PDF-1.7\n"
        var offsets: [Int] = []
        for (number, object) in objects.enumerated() {
            offsets.append(text.utf8.count)
            text += "\(number + 1) 0 obj\n\(object)\nendobj\n"
        }
        let start = text.utf8.count
        text += "xref\n0 \(objects.count + 1)\n0000000000 65535 f \n"
        for offset in offsets { text += String(repeating: "0", count: 10 - "\(offset)".count) + "\(offset) 00000 n \n" }
        text += "trailer\n<< /Size \(objects.count + 1) /Root 1 0 R /Info 4 0 R >>\nstartxref\n\(start)\n%%EOF\n"
        return Array(text.utf8)
    }

    static func sellsign(
        number: String = "C-1", mode: Int = 2, isKeptOnMove: Bool = true, firstName: String? = "Alice",
        pdf: [UInt8] = pdf(), others: String = ""
    ) -> [UInt8] {
        let first = firstName.map { #","# + #"{"key":"firstname","value":"\#($0)"}"# } ?? ""
        return Array(
            """
            {"customer":{"number":"\(number)","mode":\(mode),"contractor_id":-1,"fields":[
            {"key":"lastname","value":"Liddell"},{"key":"cell_phone","value":"+33 6 12 34 56 78"},
            {"key":"email","value":"alice@example.org"}\(first)]},
            "contractors":[],\(others)
            "contract":{"contract_definition_id":7,"contract_id":-1,"pdf_file_name":"../Bail <b>.pdf",
            "pdf_file_path":"data:application/pdf;base64,\(Data(pdf).base64EncodedString())",
            "keep_on_move":\(isKeptOnMove)},
            "contract_properties":[],
            "files":[{"path":"data:text/plain;base64,aGVsbG8=","name":"a.txt","type":"text/plain"}],"options":[]}
            """.utf8)
    }
}
