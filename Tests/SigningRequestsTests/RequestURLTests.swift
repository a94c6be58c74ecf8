import SigningRequests
import Testing

@Suite struct RequestURLTests {
    private func items(_ query: String) -> [RequestURL.Item]? {
        RequestURL(Array("sima://sign-challenge?\(query)".utf8))?.items
    }

    @Test("A plus, %2B and a space stay what they are")
    func decodesOnce() {
        #expect(
            items("a=+&b=%2B&c=%20&d=%252B") == [.init("a", "+"), .init("b", "+"), .init("c", " "), .init("d", "%2B")])
    }

    @Test(
        "What is not a URL is refused",
        arguments: [
            "", "sima", "sima:", "sima:/sign-pdf", "://sign-pdf", "1sima://sign-pdf", "sima://sign-pdf?a=%",
            "sima://sign-pdf?a=%4",
            "sima://sign-pdf?a=%4x", "sima://sign-pdf?a=b c", "sima://sign-pdf?a=ä", "sima://sign-pdf?a=\n&b=",
            "sima://sign-pdf?%ZZ=a",
        ])
    func refuses(_ text: String) { #expect(RequestURL(Array(text.utf8)) == nil) }

    @Test(
        "Only scheme, host and query count",
        arguments: [
            "sima://sign-pdf?a=b", "SIMA://Sign-PDF?a=b", "sima://user:word@sign-pdf:80/path?a=b#?c",
            "sima://sign-pdf/?a=b",
            "sima://sign-pdf?&a=b&", "sima://sign-pdf?a=b\r\n",
        ])
    func ignores(_ text: String) {
        #expect(
            RequestURL(Array(text.utf8)) == RequestURL(scheme: "sima", host: "sign-pdf", items: [.init("a", "b")]))
    }

    @Test("A URL that is written is read as it was")
    func roundTrip() {
        let every = String(String.UnicodeScalarView((0...0x7ff).compactMap(UnicodeScalar.init)))
        let url = RequestURL(
            scheme: "bank", host: "sign-pdf", items: [.init("a&=", every), .init("b", ""), .init("a&=", "c")])
        #expect(RequestURL(Array(url.text.utf8)) == url)
        #expect(url["a&="] == every)
    }

    @Test(
        "Base64 has one text",
        arguments: ["QQ==", "", "+/+/", "QUI="].map { ($0, true) } + [
            ("QR==", false), ("QQ", false), ("QQ==\n", false), (" QQ==", false), ("-_-_", false), ("Q Q=", false),
            ("QQ==QQ==", false),
            ("=", false), ("ä", false),
        ])
    func base64(_ text: String, _ isStrict: Bool) { #expect((text.strictBase64 != nil) == isStrict) }
}
