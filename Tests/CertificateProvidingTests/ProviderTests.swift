import Synchronization
import TestSupport
import Testing

@testable import CertificateProviding

@Suite struct ProviderIDTests {
    @Test(
        "A valid provider ID is accepted",
        arguments: ["a", "pkcs12", "remote-mdm", "a_b", "a0-", String(repeating: "a", count: 64)])
    func isPermitted(text: String) throws {
        let id = try #require(ProviderID(rawValue: text))
        #expect(id.description == text && id == ProviderID(rawValue: text))
    }

    @Test(
        "An invalid provider ID is refused",
        arguments: [
            "", "A", "0a", "-a", "_a", "a.b", "a/b", "a b", "ä", "a\0", "..", "a\n", String(repeating: "a", count: 65),
        ])
    func isNotPermitted(text: String) {
        #expect(ProviderID(rawValue: text) == nil)
    }

    @Test("Provider IDs are ordered by their text")
    func isOrdered() { #expect([ProviderID("b"), ProviderID("a")].sorted().map(\.rawValue) == ["a", "b"]) }
}

@Suite struct DisplayTextTests {
    @Test("Control characters are escaped in displayed text")
    func controlsAreVisible() {
        #expect(DisplayText.visible("plain ä") == "plain ä")
        #expect(DisplayText.visible("a\u{1b}[2Jb\n\u{202e}c") == "a\\1b[2Jb\\0a\\e280aec")
    }

    @Test("Characters without width, tags, and separators of lines are escaped in text and in JSON")
    func invisibleCharactersAreVisible() {
        for (character, visible, escaped) in [
            ("\u{200b}", "\\e2808b", "\\u200b"), ("\u{200f}", "\\e2808f", "\\u200f"), ("\u{61c}", "\\d89c", "\\u061c"),
            ("\u{2028}", "\\e280a8", "\\u2028"), ("\u{2029}", "\\e280a9", "\\u2029"),
            ("\u{feff}", "\\efbbbf", "\\ufeff"), ("\u{9b}", "\\c29b", "\\u009b"),
            ("\u{e0041}", "\\f3a08181", "\\udb40\\udc41"), ("\u{3164}", "\\e385a4", "\\u3164"),
            ("\u{115f}", "\\e1859f", "\\u115f"), ("\u{2800}", "\\e2a080", "\\u2800"),
            ("\u{34f}", "\\cd8f", "\\u034f"), ("\u{fe0f}", "\\efb88f", "\\ufe0f"),
            ("\u{17b4}", "\\e19eb4", "\\u17b4"), ("\u{e0100}", "\\f3a08480", "\\udb40\\udd00"),
        ] {
            #expect(DisplayText.visible("a\(character)b") == "a\(visible)b")
            #expect("\"a\(character)b\"".withEscapedControls == "\"a\(escaped)b\"")
        }
        #expect(DisplayText.visible("é e\u{301} 漢 🙂") == "é e\u{301} 漢 🙂")
    }

    @Test(
        "A claim has no accent apart from its letter, no mark without one, and one space at a time",
        arguments: [
            ("Müller & Söhne, Łódź", "Müller & Söhne, Łódź"), ("Mu\u{308}ller", "Müller"),
            ("\u{3b1}\u{301}", "\u{3ac}"), ("a\u{301}\u{301}", "a\\cc81\\cc81"), ("a\u{336}b", "a\\ccb6b"),
            ("\u{301}a", "\\cc81a"), ("1\u{20e3}", "1\\e283a3"), ("हिन्दी", "हिन्दी"), ("ที่", "ที่"),
            (" \u{e31}", "\\20\\e0b8b1"),
            ("\u{e01}\u{e31}\u{e31}\u{e31}", "\u{e01}\u{e31}\u{e31}\\e0b8b1"), ("\u{200b}\u{e31}", "\\e2808b\\e0b8b1"),
            ("a b", "a b"), ("a   b", "a \\20\\20b"), (" a", "\\20a"), ("a\u{2003}b\u{a0}c", "a\\e28083b\\c2a0c"),
            ("\u{3164}\u{2800}", "\\e385a4\\e2a080"), ("a\u{1b}[2J", "a\\1b[2J"), ("漢 🙂", "漢 🙂"), ("", ""),
        ])
    func claims(text: String, shown: String) {
        #expect(
            DisplayText.claim(text).unicodeScalars.elementsEqual(shown.unicodeScalars), "\(DisplayText.claim(text))")
        #expect(DisplayText.claim(shown).unicodeScalars.elementsEqual(shown.unicodeScalars), "it is safe already")
    }

    @Test("A claim is cut visibly, whatever its size", arguments: ["x", "\u{301}", "漢", "\u{1b}", "🙂", " "])
    func claimsAreCut(unit: String) {
        let text = String(repeating: unit, count: 100_000)
        for limit in [16, 128] {
            let shown = DisplayText.claim(text, limit: limit)
            #expect(shown.unicodeScalars.count == limit && shown.hasSuffix("…"), "\(shown)")
            #expect(DisplayText.claim(shown, limit: limit) == shown)
        }
        let whole = String(repeating: "x", count: 128)
        #expect(DisplayText.claim(whole) == whole)
    }

    @Test func bytesAreHexadecimal() {
        #expect(DisplayText.hexadecimal([]) == "" && DisplayText.hexadecimal([0, 0x0f, 0xa0] as [UInt8]) == "000fa0")
    }
}

@Suite struct ConsentTextTests {
    private static let consent = ConsentText(
        sentence: "Sign it as Alice?", facts: [.init("SHA-256", String(repeating: "0f", count: 32))],
        heading: "The file says, unverified:", claims: [.init("Title", "Loans")])

    @Test("Facts are first, and claims stand under their heading, indented")
    func order() {
        #expect(
            Self.consent.lines() == [
                "Sign it as Alice?", "SHA-256: \(String(repeating: "0f", count: 32))", "The file says, unverified:",
                "  Title: Loans",
            ])
        var facts = Self.consent
        facts.claims = []
        #expect(facts.lines().count == 2)
    }

    @Test(
        "No line of a claim begins like a fact, at any width",
        arguments: [
            "Loans" + String(repeating: " ", count: 62) + "SHA-256: 00",
            "x" + String(repeating: "\u{2003}", count: 60) + "SHA-256: 00",
            String(repeating: "SHA-256: 00 ", count: 20), "a\nSHA-256: 00", "a\u{2028}SHA-256: 00",
            String(repeating: "漢", count: 128),
            String(repeating: "x", count: 500), "", " ",
        ])
    func claims(text: String) {
        for columns in [32, 40, 79, 80, 200] {
            var consent = Self.consent
            consent.claims = [.init(text, "value"), .init("Title", text), .init("Last", "end")]
            let lines = consent.lines(columns: columns)
            let heading = lines.firstIndex(of: "The file says, unverified:")
            let (head, rest) = (lines[...(heading ?? 0)], lines[((heading ?? 0) + 1)...])
            #expect(head.allSatisfy { !$0.hasPrefix("  ") || columns < 74 })
            #expect(
                rest.allSatisfy { $0.hasPrefix("  ") && $0.split(whereSeparator: \.isNewline).count == 1 }, "\(rest)")
            #expect(rest.filter { !$0.hasPrefix("      ") }.count == 3, "\(rest)")
            let widths = rest.map { $0.unicodeScalars.reduce(0) { $0 + ($1.isASCII ? 1 : 2) } }
            #expect(widths.allSatisfy { $0 <= columns }, "\(columns): \(rest)")
        }
    }

    @Test("A word of a fact is never cut: a path can be copied")
    func facts() {
        var consent = Self.consent
        let path = "/" + String(repeating: "directory/", count: 20) + "document.pdf"
        consent.facts = [
            .init("Copy", path), .init("Peer", "a process that has a long name \u{1b}[2J with many words"),
        ]
        let lines = consent.lines(columns: 40)
        #expect(lines.contains("    " + path), "\(lines)")
        #expect(consent.lines(columns: 0).contains("    " + path))
        #expect(
            lines.filter { !$0.hasPrefix("    ") }.count == 5 && lines.contains { $0.contains("\\1b[2J") }, "\(lines)")
    }
}

@Suite struct ProviderParametersTests {
    private let provider = ProviderID("test")

    @Test("An empty parameter counts as absent, one with a space does not")
    func aBlankValueIsNone() throws {
        let parameters = ProviderParameters(["a": .init(""), "b": .init(" "), "c": .init("x")])
        #expect(parameters.string("a") == nil && parameters.string("b") == " " && parameters.string("d") == nil)
        #expect(parameters.names == ["a", "b", "c"])
    }

    @Test("Parameter values do not appear in descriptions or errors")
    func valuesAppearNowhere() {
        let parameters = ProviderParameters(["pin": .init("s3cret", origin: "file:3")])
        var text = "\(parameters) \(String(reflecting: parameters))"
        dump(parameters, to: &text)
        let value = parameters["pin"]
        text += "\(value as Any) \(String(reflecting: value)) \([value])"
        dump(value, to: &text)
        #expect(!text.contains("s3cret") && text.contains("pin=<redacted>"))
        let errors = [
            parameters.invalid("pin", "is odd", of: .provider(provider)),
            failure {
                try parameters.refuseUnknown(knowing: [], of: .provider(provider))
            },
        ]
        for error in errors {
            #expect(error?.message.hasPrefix("file:3: ") == true && error?.message.contains("s3cret") == false)
        }
    }

    @Test("An unknown parameter is refused")
    func unknownOnesAreRefused() throws {
        let known = [Parameter.string("path", .path, summary: "").descriptor]
        try ProviderParameters(["path": .init("x")]).refuseUnknown(knowing: known, of: .provider(provider))
        let error = failure {
            try ProviderParameters(["pa\u{1b}th": .init("x")]).refuseUnknown(knowing: known, of: .provider(provider))
        }
        #expect(error?.code == .unsupportedParameter && error?.provider == provider)
        #expect(error?.message.contains("'pa\\1bth'; it takes path.") == true)
    }
}

/// Parameters that are declared once.
@Suite struct ParametersTests {
    private enum Color: String, CaseIterable { case red, green, blue }

    private enum Declared {
        static let path = Parameter.required("path", .path, summary: "")
        static let alias = Parameter.string("alias", summary: "")
        static let color = Parameter<Color>.choice("color", default: .red, summary: "")
        static let timeout = Parameter.seconds("timeout", default: 20, in: 1...60, summary: "")
        static let isQuiet = Parameter.flag("quiet", excludes: ["alias"], summary: "")
        static let user = Parameter.string("user", refusesBlank: true, summary: "")
        static let password = Parameter.secretSource("password-source", needs: [.given("user")], summary: "")
        static let shade = Parameter.string("shade", needs: [.value("color", "red")], summary: "")
        static let all = [
            path.descriptor, alias.descriptor, color.descriptor, timeout.descriptor, isQuiet.descriptor,
            user.descriptor, password.descriptor, shade.descriptor,
        ]
    }

    private func parameters(_ texts: [String: String]) throws(ProviderError) -> Parameters {
        try Parameters(
            ProviderParameters(texts.mapValues { .init($0, origin: "file:1") }), of: Declared.all,
            owner: ProviderID("test"), keyStores: .none)
    }

    @Test("Absent parameters have their defaults")
    func absentOnesHaveTheirDefaults() throws {
        let parameters = try parameters(["path": "/x", "alias": " "])
        #expect(parameters[Declared.path] == "/x" && parameters[Declared.color] == .red)
        #expect(parameters[Declared.timeout] == .seconds(20) && !parameters[Declared.isQuiet])
        #expect(parameters[Declared.user] == nil && parameters[Declared.password] == nil)
        #expect(!parameters.isGiven(Declared.color) && parameters.text(Declared.path) == "/x")
    }

    @Test("Given parameters are parsed by their types")
    func givenOnesAreParsed() throws {
        let parameters = try parameters([
            "path": "/x", "color": "blue", "timeout": "60", "quiet": "TRUE", "user": "me", "password-source": "env:P",
        ])
        #expect(parameters[Declared.color] == .blue && parameters[Declared.timeout] == .seconds(60))
        #expect(parameters[Declared.isQuiet] && parameters[Declared.user] == "me")
        #expect(parameters[Declared.password] == .environment("P"))
    }

    @Test(
        "A parameter error names the parameter but does not show the value",
        arguments: [
            ([:], "The parameter 'path' is missing"),
            (["path": "/x", "color": "s3cret"], "file:1: The parameter 'color' must be red, green or blue."),
            (
                ["path": "/x", "timeout": "s3cret"],
                "file:1: The parameter 'timeout' must be a number of seconds from 1 to 60."
            ),
            (
                ["path": "/x", "timeout": "61"],
                "file:1: The parameter 'timeout' must be a number of seconds from 1 to 60."
            ),
            (["path": "/x", "quiet": "s3cret"], "file:1: The parameter 'quiet' must be true or false."),
            (
                ["path": "/x", "quiet": "true", "alias": "a"],
                "file:1: The parameter 'quiet' and 'alias' exclude each other."
            ),
            (["path": "/x", "user": ""], "file:1: The parameter 'user' must not be empty."),
            (
                ["path": "/x", "user": "me", "password-source": "s3cret"],
                "file:1: The parameter 'password-source' must be"
            ),
            (["path": "/x", "password-source": "env:P"], "file:1: The parameter 'password-source' needs a 'user'."),
            (["path": "/x", "color": "blue", "shade": "x"], "file:1: The parameter 'shade' belongs to color=red."),
        ])
    func mistakesAreNamedAndNotShown(texts: [String: String], message: String) {
        let error = failure { try parameters(texts) }
        #expect(error?.code == .configurationInvalid && error?.message.hasPrefix(message) == true, "\(error as Any)")
        #expect(error?.message.contains("s3cret") == false)
    }

    /// The other's default counts.
    @Test("The default of another parameter can meet a parameter's condition")
    func aConditionHoldsByDefault() throws {
        #expect(try parameters(["path": "/x", "shade": "dark"])[Declared.shade] == "dark")
    }

    @Test func aDescriptorSaysWhichParametersDistinguish() {
        let parameters = [
            Parameter.required("role", summary: "").descriptor, Parameter.string("path", .path, summary: "").descriptor,
            Parameter.secretSource("pin-source", summary: "").descriptor,
            Parameter.flag("force", summary: "").descriptor,
            Parameter.string("trust-anchors", .certificateFile, summary: "").descriptor,
            Parameter.string("ca", .trustAnchors, summary: "").descriptor,
            Parameter.seconds("timeout", default: 1, in: 1...2, summary: "").descriptor,
            Parameter.seconds("idle-timeout", default: 1, in: 1...2, summary: "").descriptor,
            IdentityUsage.parameter.descriptor,
        ]
        func distinguishing(_ names: [String]?) -> [String] {
            ProviderDescriptor(
                id: ProviderID("test"), displayName: "", summary: "", parameters: parameters, distinguishedBy: names
            ) { _, _ in preconditionFailure("unused") }.parameters.filter(\.distinguishes).map(\.name)
        }
        #expect(distinguishing(nil) == ["role", "path", "force"])
        #expect(distinguishing(["path", "usage", "pin-source"]) == ["path", "usage"])
        #expect(distinguishing([]) == [])
    }

    @Test func aKeyStoreNeedsItsScheme() throws {
        let key = Parameter<any KeyStore>.keyStore("key", default: "store:", summary: "")
        let descriptor = ProviderDescriptor(
            id: ProviderID("test"), displayName: "", summary: "", parameters: [key.descriptor]
        ) { _, _ in preconditionFailure("unused") }
        #expect(descriptor.parameters.map(\.name) == ["key", "key-pin-source"])
        for uri in ["vault:x", "no uri", "1a:x"] {
            let error = failure {
                try Parameters(
                    ProviderParameters(["key": .init(uri)]), of: descriptor.parameters, owner: ProviderID("test"),
                    keyStores: KeyStores(schemes: ["store", "pkcs11"]) { _ in nil })
            }
            #expect(error?.message.hasSuffix("it must begin with store: or pkcs11:.") == true)
        }
    }
}

@Suite struct ProviderRegistryTests {
    private func descriptor(_ id: ProviderID) -> ProviderDescriptor {
        ProviderDescriptor(id: id, displayName: "", summary: "", parameters: []) { _, _ in preconditionFailure("unused")
        }
    }

    @Test("The registry sorts providers by ID and refuses a second one with the same ID")
    func isSortedAndUnique() throws {
        var registry = try ProviderRegistry([descriptor(ProviderID("b")), descriptor(ProviderID("a"))])
        #expect(registry.descriptors.map(\.id.rawValue) == ["a", "b"])
        #expect(try registry.provider(ProviderID("a")) != nil && registry.provider(ProviderID("c")) == nil)
        #expect(failure { try registry.register(descriptor(ProviderID("a"))) }?.code == .configurationInvalid)
        #expect(registry.descriptors.count == 2)
    }
}

@Suite struct ProviderErrorTests {
    @Test("An error is attributed to the first provider only")
    func isAttributedOnce() {
        let error = ProviderError(.notFound, "Nothing.")
        let attributed = error.attributed(to: ProviderID("a"))
        #expect(attributed.provider == ProviderID("a") && error.provider == nil)
        #expect(attributed.attributed(to: ProviderID("b")).provider == ProviderID("a"))
        #expect("\(attributed)" == "a: Nothing. [notFound]" && "\(error)" == "Nothing. [notFound]")
        #expect(error.location.hasPrefix("CertificateProvidingTests/ProviderTests.swift:"))
    }

    @Test("Error codes that the framework does not define are permitted")
    func itsCodesAreOpen() {
        #expect(ProviderError.Code(rawValue: "notFound") == .notFound)
        #expect(ProviderError.Code(rawValue: "of-a-plugin") != .notFound)
    }
}

@Suite struct IdentityTests {
    @Test(
        "A key that signs with another private key or not at all fails the possession check",
        arguments: TestAuthority.KeyKind.allCases)
    func aLyingKeyIsFoundOut(kind: TestAuthority.KeyKind) async throws {
        let authority = try TestAuthority()
        let (mine, other) = (try authority.issue("mine", kind: kind), try authority.issue("other", kind: kind))
        for (signer, schemes, code) in [
            (other.key, mine.key.signatureSchemes, .keyMismatch), (mine.key, [], .unsupportedAlgorithm),
        ] as [(any IdentityKey, [SignatureScheme], ProviderError.Code)] {
            let liar = try mine.with(TestKey(signer, publicKey: mine.key.publicKey, signatureSchemes: schemes))
            #expect(await failure { try await liar.verifyPossession() }?.code == code)
        }
        try await mine.verifyPossession()
    }

    @Test("An identity without a certificate is refused")
    func needsACertificate() throws {
        let identity = try TestAuthority().issue("x")
        #expect(
            failure { try Identity(certificateChain: [], key: identity.key, provenance: identity.provenance) }?.code
                == .notFound)
    }
}

@Suite struct BlockingExecutorTests {
    @Test("The executor passes on results and errors")
    func returnsAndThrows() async throws {
        let executor = BlockingExecutor.threads()
        #expect(try await executor.run { 7 } == 7)
        let late = await code {
            try await executor.run { () throws(ProviderError) in throw ProviderError(.timedOut, "Late.") }
        }
        #expect(late == .timedOut)
    }

    @Test("The executor runs its jobs with the given function")
    func usesWhatItIsGiven() async throws {
        let count = Mutex(0)
        let jobs = BlockingExecutor { job in job() }
        for _ in 1...3 { try await jobs.run { count.withLock { $0 += 1 } } }
        #expect(count.withLock { $0 } == 3)
    }
}
