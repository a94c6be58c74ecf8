import CertificateProviding
import CertprovKit
import Contracts
import Foundation
import Testing

/// The URLs that calling programs are told by.
@Suite struct CallbackTests {
    @Test(
        "a message is appended to the query, before a fragment",
        arguments: [
            ("myapp://x", "myapp://x?message=m"), ("myapp://x?a=1", "myapp://x?a=1&message=m"),
            ("myapp://x#f", "myapp://x?message=m#f"), ("myapp://x?a=1#f?g", "myapp://x?a=1&message=m#f?g"),
            ("myapp://x#f?g=1", "myapp://x?message=m#f?g=1"), ("myapp://x?", "myapp://x?&message=m"),
            ("myapp:", "myapp:?message=m"), ("MyApp://x", "MyApp://x?message=m"),
            ("myapp://é?ü=1#ö", "myapp://%C3%A9?%C3%BC=1&message=m#%C3%B6"),
        ])
    func message(url: String, expected: String) throws {
        let callback = try #require(Callback(url))
        #expect(callback.failure("m") == expected)
        #expect(callback.scheme == "myapp")
    }

    @Test("a success is the URL as it is")
    func success() throws {
        #expect(Callback("myapp://x?a=%20+#f")?.success == "myapp://x?a=%20+#f")
    }

    @Test("a message is percent-encoded UTF-8, and nothing in it ends the parameter")
    func encoding() throws {
        let callback = try #require(Callback("myapp://x"))
        #expect(
            callback.failure("é &=?#%+\n\"'/~-._") == "myapp://x?message=%C3%A9%20%26%3D%3F%23%25%2B%0A%22%27%2F~-._")
        let long = callback.failure(String(repeating: "é", count: 100_000))
        #expect(long.utf8.count < 10_000 && long.hasSuffix("%C3%A9%E2%80%A6"))
        #expect(long.removingPercentEncoding != nil)
    }

    @Test(
        "what is no URL with a scheme is no callback",
        arguments: [
            "", "myapp", "://x", "1app://x", "my app://x", "myapp://x y", "myapp://x\n", "myapp://x\u{0}", "-x",
            "--help",
            "myapp://x\u{202e}y", "myapp://x\u{2028}", "myapp://x\u{a0}y", "é://x", "/etc/passwd", "$(id)",
        ])
    func none(text: String) { #expect(Callback(text) == nil) }

    @Test("schemes are settings, and those of files and pages cannot be")
    func schemes() throws {
        func schemes(_ text: String) throws -> Set<String> {
            let file = FileManager.default.temporaryDirectory.appending(
                path: "contracts-\(UUID().uuidString).properties")
            defer { try? FileManager.default.removeItem(at: file) }
            try Data("Contracts.callback-schemes = \(text)\n".utf8).write(to: file)
            let registry = try ProviderRegistry(sections: [ContractsSettings.section])
            return try LogonConfiguration.load(path: file.path, registry: registry).settings[
                ContractsSettings.callbackSchemes]
        }
        #expect(try schemes("myapp, Other-1+2.3") == ["myapp", "other-1+2.3"])
        for text in [
            "file", "http", "https", "data", "javascript", "sellsign", "myapp,HTTPS", "File", "my app", "1a", "a:", "",
        ] {
            let error = #expect(throws: ProviderError.self, "\(text)") { try schemes(text) }
            #expect(error?.code == .configurationInvalid, "\(text)")
        }
    }
}
