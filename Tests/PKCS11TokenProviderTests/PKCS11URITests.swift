import CP11Kit
import CertificateProviding
import Glibc
import TestSupport
import Testing

@testable import PKCS11TokenProvider

/// RFC 7512, beside p11-kit, which reads the same URIs for other programs.
@Suite struct PKCS11URITests {
    @Test func everyAttributeIsRead() throws {
        let uri = try PKCS11URI(
            "pkcs11:token=My%20token;serial=01;manufacturer=m;model=o;library-version=3.1;id=%00%ff;object=a%3bb;type=cert"
                + "?pin-source=file:%2Fpin&module-name=opensc&module-path=/lib/m.so&x-vendor=1")
        #expect(uri.fields[.token] == Array("My token".utf8) && uri.fields[.serial] == Array("01".utf8))
        #expect(uri.fields[.manufacturer] == Array("m".utf8) && uri.fields[.model] == Array("o".utf8))
        #expect(uri.libraryVersion == PKCS11URI.Version(major: 3, minor: 1))
        #expect(uri.objectID == [0, 255] && uri.objectLabel == Array("a;b".utf8) && uri.objectClass == CKO_CERTIFICATE)
        #expect(uri.pinSource == "file:/pin" && uri.moduleName == "opensc" && uri.modulePath == "/lib/m.so")
        #expect(uri.pinValue == nil && uri.query.hasPrefix("?pin-source") && !uri.text.contains("?"))
    }

    @Test func aPINIsInNoText() throws {
        let uri = try PKCS11URI("pkcs11:token=a?pin-value=12%334&module-name=m")
        #expect(uri.pinValue?.withUnsafeBytes { Array($0) } == Array("1234".utf8))
        #expect(uri.text == "pkcs11:token=a" && uri.query.isEmpty)
    }

    /// A line may be broken anywhere.
    @Test(arguments: [
        "pkcs11:token=a;\n id=%01", "pkcs11:tok\r\n\ten=a;id=%01 \n", "PKCS11:token=a;id=%01;",
        "pkcs11:id=%01;token=a%20%20",
    ])
    func anotherFormOfTheSame(text: String) throws {
        let uri = try PKCS11URI(text)
        #expect(uri.fields == [.token: Array("a".utf8)] && uri.objectID == [1])
    }

    /// It would be another token than the one that is meant. The query may have a PIN.
    @Test(
        "A blank in a PKCS#11 URI is refused and named",
        arguments: [
            ("pkcs11:token=Key pairs;object=k", "'pkcs11:token=Key pairs;object=k'"),
            ("pkcs11: token=a", "'pkcs11: token=a'"), ("pkcs11:token=a\tb", "token=a"),
            ("pkcs11:token=a?pin-source=/a b", "'pkcs11:token=a', with its query,"),
        ])
    func aBlankIsRefused(text: String, shown: String) {
        let error = #expect(throws: ProviderError.self) { _ = try PKCS11URI(text) }
        #expect(
            error?.code == .configurationInvalid && error?.message.contains(shown) == true
                && error?.message.contains("%20") == true, "\(error as Any)")
    }

    @Test(
        "A malformed PKCS#11 URI is refused",
        arguments: [
            "token=a", "pkcs11", "pkcs11:token", "pkcs11:token=a;;id=%01", "pkcs11:=a", "pkcs11:token=a;token=b",
            "pkcs11:token=%4", "pkcs11:token=%4g", "pkcs11:id=%+1", "pkcs11:nonsense=a", "pkcs11:type=key",
            "pkcs11:type=cert;object-type=cert", "pkcs11:serial=12345678901234567", "pkcs11:library-version=x",
            "pkcs11:library-version=1.2.3", "pkcs11:library-version=+1", "pkcs11:library-version=256",
            "pkcs11:library-version=1.", "pkcs11:slot-id=1", "pkcs11:?slot-id=1", "pkcs11:?token=a", "pkcs11:?pin=1",
            "pkcs11:?PIN-value=1", "pkcs11:pin-value=1", "pkcs11:token=a;pin=1", "pkcs11:?module-path=m.so",
            "pkcs11:?module-name", "pkcs11:?module-name=%00", "pkcs11:?module-name=%ff",
            "pkcs11:?module-name=a&module-name=b", "pkcs11:?pin-source=/a&pin-value=1",
        ])
    func whatIsWrongIsRefused(text: String) {
        #expect(throws: ProviderError.self) { _ = try PKCS11URI(text) }
    }

    @Test(arguments: [
        "pkcs11:pin-value=1597", "pkcs11:token=a?pin-value=1597%zz", "pkcs11:?pin-1597=a",
        "pkcs11:?pin-value=1597&pin-value=1597", "1597", "pkcs11:token=a?pin-value=1597&token=b",
        "pkcs11:token=a?pin-value=15 97", "pkcs11:pin-value=15 97",
    ])
    func noErrorShowsAPIN(text: String) {
        let error = #expect(throws: ProviderError.self) { _ = try PKCS11URI(text) }
        #expect(error?.code == .configurationInvalid && error?.description.contains("97") == false, "\(error as Any)")
    }

    /// The fields of a token may be padded with NULs.
    @Test func aTokenIsMatched() throws {
        for padding: UInt8 in [0, 32] {
            var token = CK_TOKEN_INFO()
            fill(&token.label, "alpha", padding)
            fill(&token.serialNumber, "0123456789abcdef", padding)
            fill(&token.manufacturerID, "", padding)
            let slot = CK_SLOT_INFO()
            for text in ["", "token=alpha", "serial=0123456789abcdef", "token=alpha;manufacturer=", "token=alpha%20"] {
                #expect(try PKCS11URI("pkcs11:" + text).matches(slot, token), "\(text)")
            }
            for text in ["token=alph", "token=Alpha", "serial=0", "token=", "token=%00", "manufacturer=m", "model=m"] {
                #expect(try !PKCS11URI("pkcs11:" + text).matches(slot, token), "\(text)")
            }
        }
    }

    @Test func tokensAreNamed() throws {
        for text in ["token=a", "serial=1", "model=m;manufacturer=n"] {
            #expect(try PKCS11URI("pkcs11:" + text).namesToken, "\(text)")
        }
        for text in ["", "model=m", "manufacturer=n", "id=%01", "slot-description=s"] {
            #expect(try !PKCS11URI("pkcs11:" + text).namesToken, "\(text)")
        }
        let whole = try PKCS11URI("pkcs11:model=m;manufacturer=n;serial=1;token=a;id=%01")
        for (text, isMeant) in [("", true), ("token=a", true), ("token=b", false), ("serial=1;model=m", true)] {
            #expect(try PKCS11URI("pkcs11:" + text).meansToken(of: whole) == isMeant, "\(text)")
        }
        #expect(try !whole.meansToken(of: PKCS11URI("pkcs11:token=a")))
    }

    /// Stored identities have URIs that p11-kit has written.
    @Test("A token's URI is written as p11-kit writes it")
    func isWrittenAsByP11Kit() throws {
        var random = SystemRandomNumberGenerator()
        for _ in 0..<300 {
            var token = CK_TOKEN_INFO()
            fill(&token.label, Self.text(upTo: 32, &random), 32)
            fill(&token.serialNumber, Self.text(upTo: 16, &random), 32)
            fill(&token.manufacturerID, Self.text(upTo: 32, &random), 32)
            fill(&token.model, Self.text(upTo: 16, &random), 32)
            let id = (0..<Int.random(in: 0...20)).map { _ in UInt8.random(in: 0...255) }
            let label = Array(Self.text(upTo: 40, &random).utf8)
            let kind =
                [nil, CKO_CERTIFICATE, CKO_PRIVATE_KEY, CKO_PUBLIC_KEY, CKO_DATA, CKO_SECRET_KEY].randomElement() ?? nil
            let written = PKCS11URI.text(of: token, class: kind, id: id, label: label)
            let peer = try #require(P11KitURI())
            p11_kit_uri_get_token_info(peer.uri).pointee = token
            if !id.isEmpty { peer.set(CKA_ID, id) }
            if !label.isEmpty { peer.set(CKA_LABEL, label) }
            if let kind { peer.set(CKA_CLASS, withUnsafeBytes(of: kind) { Array($0) }) }
            #expect(written == peer.text)
            // And read again, by both.
            let read = try PKCS11URI(written)
            #expect(read.matches(CK_SLOT_INFO(), token))
            #expect(read.objectID ?? [] == id && read.objectLabel ?? [] == label && read.objectClass == kind)
            let again = try #require(P11KitURI())
            #expect(again.read(written))
            #expect(again.text == written)
        }
    }

    /// A URI that p11-kit reads is read, and means the same tokens; a URI that it refuses is refused.
    @Test("A PKCS#11 URI means the same tokens as for p11-kit")
    func isReadAsByP11Kit() throws {
        var random = SystemRandomNumberGenerator()
        let parts = [
            "token=a", "token=b", "token=%61", "token=a%20", "token", "token=", "serial=1", "serial=%31", "serial=%3",
            "model=m",
            "type=cert", "type=x", "type=private", "id=%01", "id=%0", "object=o", "library-version=2.1",
            "library-version=.1",
            "library-version=2", "unknown=1", "slot-description=s", "manufacturer=" + String(repeating: "m", count: 33),
            "id", "object=%zz",
        ]
        var (accepted, refused) = (0, 0)
        for _ in 0..<3_000 {
            let names = (0..<Int.random(in: 0...3)).map { _ in parts.randomElement(using: &random) ?? "" }
            // Names are compared, and a repetition is refused here alone.
            guard Set(names.map { $0.prefix { $0 != "=" } }).count == names.count else { continue }
            let text = "pkcs11:" + names.joined(separator: ";")
            let peer = try #require(P11KitURI())
            let isRight = peer.read(text) && p11_kit_uri_any_unrecognized(peer.uri) == 0
            let own = try? PKCS11URI(text)
            #expect((own != nil) == isRight, "\(text)")
            guard let own else {
                refused += 1
                continue
            }
            accepted += 1
            for label in ["a", "b", ""] {
                var token = CK_TOKEN_INFO()
                fill(&token.label, label, 32)
                fill(&token.serialNumber, "1", 32)
                fill(&token.manufacturerID, "", 32)
                fill(&token.model, "m", 32)
                let isMeant = withUnsafePointer(to: token) { p11_kit_uri_match_token_info(peer.uri, $0) == 1 }
                #expect(
                    own.matches(CK_SLOT_INFO(), token) == (isMeant && !names.contains("slot-description=s")), "\(text)")
            }
            var module = CK_INFO()
            module.libraryVersion = CK_VERSION(major: 2, minor: 1)
            let isModule = withUnsafePointer(to: module) { p11_kit_uri_match_module_info(peer.uri, $0) == 1 }
            #expect(own.matches(module) == isModule, "\(text)")
        }
        #expect(accepted > 100 && refused > 100)
    }

    private static func text(upTo size: Int, _ random: inout SystemRandomNumberGenerator) -> String {
        let characters = Array("abcXYZ019 _-.~;=?&%/äß€\"'")
        var text = ""
        while let next = characters.randomElement(using: &random), text.utf8.count + String(next).utf8.count <= size,
            Int.random(in: 0...20, using: &random) > 0
        {
            text.append(next)
        }
        // Blanks at the end are padding.
        while text.last == " " { text.removeLast() }
        return text
    }

    private func fill<Field>(_ field: inout Field, _ text: String, _ padding: UInt8) {
        withUnsafeMutableBytes(of: &field) { bytes in
            for (index, byte) in (Array(text.utf8) + Array(repeating: padding, count: bytes.count)).prefix(bytes.count)
                .enumerated()
            {
                bytes[index] = byte
            }
        }
    }
}

/// p11-kit's own.
private final class P11KitURI {
    let uri: OpaquePointer

    init?() {
        guard let uri = p11_kit_uri_new() else { return nil }
        self.uri = uri
    }

    deinit { p11_kit_uri_free(uri) }

    func set(_ type: CK_ATTRIBUTE_TYPE, _ value: [UInt8]) {
        var value = value
        value.withUnsafeMutableBytes {
            var attribute = CK_ATTRIBUTE(type: type, pValue: $0.baseAddress, ulValueLen: CK_ULONG($0.count))
            _ = p11_kit_uri_set_attribute(uri, &attribute)
        }
    }

    func read(_ text: String) -> Bool {
        p11_kit_uri_parse(text, P11KitUriType(P11_KIT_URI_FOR_ANY.rawValue), uri) == P11_KIT_URI_OK.rawValue
    }

    var text: String? {
        var text: UnsafeMutablePointer<CChar>?
        let kind = P11KitUriType(P11_KIT_URI_FOR_OBJECT_ON_TOKEN.rawValue)
        guard p11_kit_uri_format(uri, kind, &text) == P11_KIT_URI_OK.rawValue, let text else { return nil }
        defer { free(text) }
        return String(cString: text)
    }
}
