/// A PDF of one empty page, with a table of cross-references.
public enum TestPDF {
    public static let text = """
        %PDF-1.7
        1 0 obj
        <</Type/Catalog/Pages 2 0 R>>
        endobj
        2 0 obj
        <</Type/Pages/Kids[3 0 R]/Count 1>>
        endobj
        3 0 obj
        <</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]>>
        endobj
        xref
        0 4
        0000000000 65535 f\u{20}
        0000000009 00000 n\u{20}
        0000000054 00000 n\u{20}
        0000000105 00000 n\u{20}
        trailer
        <</Size 4/Root 1 0 R>>
        startxref
        170
        %%EOF

        """

    public static let bytes = Array(text.utf8)
}
