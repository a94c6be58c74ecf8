import CertificateProviding
import Contracts
import Foundation
import Testing

/// The URLs of calls.
@Suite struct SellSignURLTests {
    private func token(_ url: String) throws(ProviderError) -> String? {
        guard case .auth(let token) = try SellSignURL(Array(url.utf8)).kind else { return nil }
        return token.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
    }

    @Test("the three calls are read")
    func kinds() throws {
        #expect(try token("sellsign://auth?token=abc") == "abc")
        #expect(try SellSignURL("sellsign://sync/incremental".utf8).kind == .syncIncremental)
        #expect(try SellSignURL("SellSign://sync/full\r\n".utf8).kind == .syncFull)
        #expect(try SellSignURL("sellsign://sync/full?".utf8).callbacks == CallbackURLs())
        #expect(try SellSignURL("sellsign://sync/full?success_callback_url=".utf8).callbacks == CallbackURLs())
    }

    @Test("a token may have every printable character, and a + is a plus")
    func printable() throws {
        let printable = String(decoding: 0x20...0x7e, as: UTF8.self) + "é€"
        let encoded = printable.utf8.map { String(format: "%%%02x", $0) }.joined()
        // White space at its ends is not part of it.
        #expect(try token("sellsign://auth?token=\(encoded)%0D%0a") == String(printable.dropFirst()))
        #expect(try token("sellsign://auth?token=a+b=c/!|d") == "a+b=c/!|d")
        #expect(try token("sellsign://auth?token=a%2Bb%2bc%26d%3d%25") == "a+b+c&d=%")
        // What may stand for itself.
        let plain = String(decoding: (0x21...0x7e).filter { !"#%&".utf8.contains($0) }, as: UTF8.self)
        #expect(try token("sellsign://auth?token=\(plain)") == plain)
    }

    @Test("callbacks are decoded once")
    func callbacks() throws {
        let url = """
            sellsign://auth?success_callback_url=myapp%3A%2F%2Fdone%3Fid%3D1%2B1%26x%3D%2541\
            &token=t&error_callback_url=myapp://error
            """
        let callbacks = try SellSignURL(Array(url.utf8)).callbacks
        #expect(callbacks.success?.text == "myapp://done?id=1+1&x=%41")
        #expect(callbacks.error?.text == "myapp://error")
    }

    @Test(
        "what is not known, or wrong, is refused, without the token in the message",
        arguments: [
            ("sellsign://auth", "no token"), ("sellsign://auth?token=", "no token"),
            ("sellsign://auth?token", "token has no value"), ("sellsign://auth?tokensecret7", "does not take"),
            ("sellsign://auth?token=secret7&token=secret7", "token is there twice"),
            ("sellsign://auth?token=secret7&%74oken=secret7", "token is there twice"),
            ("sellsign://auth?token=secret7&Token=secret7", "does not take"),
            ("sellsign://auth?token=secret7&secret7=1", "does not take"),
            ("sellsign://auth?token=secret7&", "does not take"),
            ("sellsign://auth?&token=secret7", "does not take"), ("sellsign://auth?token=secret7%", "two hexadecimal"),
            ("sellsign://auth?token=secret7%4", "two hexadecimal"),
            ("sellsign://auth?token=secret7%zz", "two hexadecimal"),
            ("sellsign://auth?token=secret7%+1", "two hexadecimal"), ("sellsign://auth?token=secret7%ff", "not UTF-8"),
            ("sellsign://auth?token=secret7%c0%80", "not UTF-8"),
            ("sellsign://auth?token=secret7%00", "control character"),
            ("sellsign://auth?token=%0a", "no token"), ("sellsign://auth?token=secret7%0a1", "control character"),
            ("sellsign://auth?token=secret7 1", "a space"),
            ("sellsign://auth?token=secret7\n\n", "control character"), ("sellsign://auth?token=secret7#a", "fragment"),
            ("sellsign://auth/?token=secret7", "its path"), ("sellsign://auth/x?token=secret7", "its path"),
            ("sellsign://Auth?token=secret7", "its path"), ("sellsign://secret7@auth?token=secret7", "its path"),
            ("sellsign://auth:80?token=secret7", "its path"), ("sellsign://sync?token=secret7", "its path"),
            ("sellsign://sync/", "its path"), ("sellsign://sync/incremental/", "its path"),
            ("sellsign://sync/%66ull", "its path"), ("sellsign://sync/../auth?token=secret7", "its path"),
            ("sellsign://sync/full?token=secret7", "does not take"), ("sellsign://", "its path"),
            ("sellsign:", "sellsign://"),
            ("sellsign:auth?token=secret7", "sellsign://"), ("sellsign:/auth?token=secret7", "sellsign://"),
            ("https://auth?token=secret7", "sellsign://"), ("", "sellsign://"),
            ("sellsign://open?file=secret7", "its path"), ("sellsign://sync/full?file=/etc/passwd", "does not take"),
            ("sellsign://sync/full?success_callback_url=secret7", "not a URL"),
            ("sellsign://sync/full?error_callback_url=my%20app://x", "not a URL"),
            ("sellsign://sync/full?error_callback_url=myapp://x%20y", "not a URL"),
            ("sellsign://sync/full?error_callback_url=myapp://x%E2%80%AEy", "not a URL"),
            ("sellsign://sync/full?error_callback_url=--help", "not a URL"),
            ("sellsign://sync/full?error_callback_url=myapp://a&error_callback_url=myapp://a", "there twice"),
        ])
    func refused(url: String, reason: String) throws {
        let error = try #require(throws: ProviderError.self) { try SellSignURL(Array(url.utf8)) }
        #expect(error.code == .malformedData)
        #expect(error.message.contains(reason), "\(error)")
        #expect(!"\(error)".contains("secret7"))
    }

    @Test("8 KiB are read, and not a byte more; bytes that are no UTF-8 are refused")
    func limits() throws {
        let start = "sellsign://auth?token="
        let longest = start + String(repeating: "a", count: SellSignURL.maximumLength - start.utf8.count)
        #expect(try token(longest)?.utf8.count == 8192 - start.utf8.count)
        #expect(throws: ProviderError.self) { try SellSignURL(Array((longest + "a").utf8)) }
        let error = try #require(throws: ProviderError.self) {
            try SellSignURL(Array("sellsign://auth?token=".utf8) + [0x61, 0xff])
        }
        #expect(error.message.contains("UTF-8"))
    }

    @Test("bytes at random are read or refused, and the token is in no description")
    func hostile() throws {
        var random = SystemRandomNumberGenerator()
        let parts = [
            "sellsign://", "auth", "sync/full", "?", "&", "token", "=", "%", "%4", "%41", "#", "success_callback_url",
            "myapp://x",
            "\u{0}", "é", "+", "/", "..",
        ].map { Array($0.utf8) }
        for _ in 0..<20_000 {
            var bytes: [UInt8] = Bool.random() ? Array("sellsign://auth?token=".utf8) : []
            for _ in 0..<Int.random(in: 0...8, using: &random) {
                bytes += Bool.random() ? parts.randomElement() ?? [] : [UInt8.random(in: 0...255)]
            }
            _ = try? SellSignURL(bytes)
        }
        let call = try SellSignURL("sellsign://auth?token=secret7".utf8)
        var text = ""
        dump(call, to: &text)
        #expect(!text.contains("secret7") && !"\(call)".contains("secret7"))
    }
}
