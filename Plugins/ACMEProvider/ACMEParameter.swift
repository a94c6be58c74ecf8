import CertificateProviding
import ProviderTransport

/// The parameters of the provider.
enum ACMEParameter {
    static let directory = Parameter<ServerURL>(
        "directory", .serverURL, absent: nil,
        summary: "URL of the server's directory, https:; http: only for a server on this host."
    ) { text, _ throws(ParameterProblem) in
        guard let server = ServerURL(text) else {
            throw .expected("must be an https: URL with a host, and without a user or a fragment")
        }
        guard server.isSecure || server.isLoopback else {
            throw .expected("must begin with https: (RFC 8555, section 6.1)")
        }
        return server
    }
    static let trustAnchors = ServerParameter.trustAnchors(
        "trust-anchors", .trustAnchors,
        summary:
            "PEM file with the CA of the server's certificate, or system for the system trust store. This, ca-fingerprint or "
            + "pin must be set for an https: server.")
    static let caFingerprint = Parameter<[UInt8]?>(
        "ca-fingerprint", .string, refusesBlank: true, excludes: ["trust-anchors"],
        summary: "SHA-256 hash of a CA certificate that the server presents in the TLS handshake, in hexadecimal."
    ) { text, _ throws(ParameterProblem) in
        let digits = text.filter { $0 != ":" && !$0.isWhitespace }
        guard let bytes = ByteText.bytes(hexadecimal: digits), bytes.count == 32 else {
            throw .expected(
                "must be the SHA-256 hash of a certificate, which 'openssl x509 -noout -fingerprint -sha256' prints")
        }
        return bytes
    }
    static let pin = ServerParameter.pins()
    static let pinMode = Parameter<Bool>.pinOnly()
    static let contact = Parameter<[String]>(
        "contact", .string, absent: [],
        summary: "Mail addresses, or URLs such as tel:, of the account's contact, separated by commas."
    ) { text, _ throws(ParameterProblem) in
        let members = text.split(separator: ",").map { String($0.trimming) }
        guard
            members.allSatisfy({
                $0.utf8.allSatisfy { (0x21...0x7e).contains($0) } && $0.contains { ":@".contains($0) }
            })
        else { throw .expected("must be mail addresses or URLs, separated by commas") }
        return members.map { $0.contains(":") ? $0 : "mailto:\($0)" }
    }
    static let agreeTerms = Parameter.string(
        "agree-terms", defaultValue: "fetch asks on the terminal",
        summary: "URL of the terms of service that you agree to, or true for whatever terms the server has.")
    static let eabKeyID = Parameter.string(
        "eab-kid", needs: [.given("eab-key-source")],
        summary: "External account: the identifier that the CA gave you.")
    static let eabKeySource = Parameter.secretSource(
        "eab-key-source", needs: [.given("eab-kid")],
        summary: "External account: secret source of the key that the CA gave you, base64url.")
    static let eabAlgorithm = Parameter<EABAlgorithm>.choice(
        "eab-algorithm", default: .hs256, needs: [.given("eab-kid")],
        summary: "External account: the algorithm that the CA expects.")
    static let accountKey = Parameter<any KeyStore>.keyStore(
        "account-key", default: "store:",
        summary: "Key store of the account's key, which is P-256 if the store makes such keys.")
    static let identifiers = Parameter<[ACMEIdentifier]>(
        "identifiers", .names, absent: nil,
        summary: "dns:, ip:, permanent-identifier: and hardware-module: names to request, separated by commas."
    ) { text, _ throws(ParameterProblem) in
        do throws(ProviderError) { return try ACMEIdentifier.list(text) } catch { throw .error(error) }
    }
    static let subject = Parameter<String>(
        "subject", .distinguishedName, absent: "", defaultValue: "empty",
        summary: "Subject of the certificate request (RFC 4514). Many servers replace it: see names."
    ) { text, _ in text }
    static let names = Parameter<NameRule>.choice(
        "names", default: .requested,
        summary: "requested: the certificate must have the subject; server: the server decides on the subject.")
    static let challenge = Parameter<ChallengeKind>.choice(
        "challenge", default: .http,
        summary:
            "How this host proves that the names are its own: http-01, tls-alpn-01, dns-01, device-attest-01 by a key that proves "
            + "where it lives, or none for a server that has authorised the account already.")
    static let httpListen = Parameter<ListenAddress>(
        "http-listen", .string, absent: .port(80), defaultValue: "80, on all addresses",
        needs: [.value("challenge", "http-01")], excludes: ["http-root"],
        summary: "http-01: PORT or ADDRESS:PORT to listen on while the server looks. It looks at port 80."
    ) { text, _ throws(ParameterProblem) in try ListenAddress(text) }
    static let httpRoot = Parameter.string(
        "http-root", .path, needs: [.value("challenge", "http-01")],
        summary: "http-01: document root of a web server that runs on port 80 already.")
    static let tlsListen = Parameter<ListenAddress>(
        "tls-listen", .string, absent: .port(443), defaultValue: "443, on all addresses",
        needs: [.value("challenge", "tls-alpn-01")],
        summary: "tls-alpn-01: PORT or ADDRESS:PORT to listen on while the server looks. It looks at port 443."
    ) { text, _ throws(ParameterProblem) in try ListenAddress(text) }
    static let dnsHook = Parameter<String?>(
        "dns-hook", .path, needs: [.value("challenge", "dns-01")],
        summary:
            "dns-01: program that is run with 'add NAME VALUE' and 'remove NAME VALUE', and returns once the TXT record is "
            + "published."
    ) { text, _ throws(ParameterProblem) in
        guard text.hasPrefix("/") else { throw .expected("must be the absolute path of a program") }
        return text
    }
    static let profile = Parameter.string("profile", summary: "Name of the server's certificate profile.")
    static let preferredChain = Parameter.string(
        "preferred-chain", defaultValue: "the server's default",
        summary: "Subject, or common name, of the root whose chain is preferred.")
    static let keyType = Parameter<KeyType>.choice("key-type", default: .p256, summary: "Type of the private key.")
    static let key = Parameter<any KeyStore>.keyStore(
        "key", default: "store:", summary: "Key store of the private key: store:, or a token's RFC 7512 URI.")
    static let timeout = Parameter<Duration>.seconds(
        "timeout", default: 180, in: 1...86_400,
        summary: "Seconds that the server may take for a whole enrolment, and as many again while the order is pending."
    )

    enum EABAlgorithm: String, CaseIterable { case hs256 = "HS256", hs384 = "HS384", hs512 = "HS512" }
    enum NameRule: String, CaseIterable { case requested, server }

    /// In the order of the documentation.
    static let all: [ParameterDescriptor] = [
        directory.descriptor, trustAnchors.descriptor, caFingerprint.descriptor, pin.descriptor, pinMode.descriptor,
        contact.descriptor, agreeTerms.descriptor, eabKeyID.descriptor, eabKeySource.descriptor,
        eabAlgorithm.descriptor, accountKey.descriptor, identifiers.descriptor, subject.descriptor, names.descriptor,
        challenge.descriptor, httpListen.descriptor, httpRoot.descriptor, tlsListen.descriptor, dnsHook.descriptor,
        profile.descriptor, preferredChain.descriptor, IdentityUsage.parameter.descriptor, keyType.descriptor,
        key.descriptor, ServerParameter.proxy.descriptor, ServerParameter.proxyUsername.descriptor,
        ServerParameter.proxyPasswordSource.descriptor, timeout.descriptor,
    ]
}

/// A kind of challenge, by its name in the protocol.
enum ChallengeKind: String, CaseIterable {
    case http = "http-01"
    case tlsALPN = "tls-alpn-01"
    case dns = "dns-01"
    case deviceAttest = "device-attest-01"
    case none
}

/// An address to listen on.
struct ListenAddress: Sendable, Equatable {
    /// An IP address; `nil` for all addresses.
    let host: String?
    let port: Int

    static func port(_ port: Int) -> Self { Self(host: nil, port: port) }

    /// As a parameter has it.
    var text: String { host.map { $0.contains(":") ? "[\($0)]:\(port)" : "\($0):\(port)" } ?? "\(port)" }

    private init(host: String?, port: Int) { (self.host, self.port) = (host, port) }

    private static let forms = "must be PORT, ADDRESS:PORT or [IPV6-ADDRESS]:PORT, with an IP address of this host"

    init(_ text: String) throws(ParameterProblem) {
        let colon = text.lastIndex(of: ":")
        let digits = colon.map { text[text.index(after: $0)...] } ?? text[...]
        var host = colon.map { String(text[..<$0]) } ?? ""
        if host.hasPrefix("["), host.hasSuffix("]") { host = String(host.dropFirst().dropLast()) }
        guard digits.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let port = Int(digits),
            (1...65535).contains(port)
        else { throw .expected(Self.forms) }
        if host.isEmpty || host == "*" {
            self.init(host: nil, port: port)
        } else {
            guard (try? AlternativeName("ip:\(host)")) != nil else { throw .expected(Self.forms) }
            self.init(host: host, port: port)
        }
    }
}

extension StringProtocol {
    /// Without white space at both ends.
    var trimming: SubSequence {
        guard let first = firstIndex(where: { !$0.isWhitespace }), let last = lastIndex(where: { !$0.isWhitespace })
        else { return prefix(0) }
        return self[first...last]
    }
}
