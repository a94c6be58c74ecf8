import CertificateProviding
import Crypto
import FoundationEssentials
import Glibc
import IdentityStore
import SystemPackage

/// The facts of a host that variables of property files name. Each is read when it is asked for.
package struct HostFacts: Sendable {
    /// The greatest length of a value, in bytes.
    static let maximumSize = 256

    /// Returns the name that the kernel has for the host.
    package var nodeName: @Sendable () -> String
    /// Returns a variable of the environment.
    package var environment: @Sendable (String) -> String?
    /// The directory that has `hosts` and `machine-id`.
    package var etc = "/etc"
    /// Directories of keys and secrets, whose files are refused as values.
    package var privateDirectories: [String]

    /// Those of the host on which the process runs.
    package init() {
        nodeName = {
            var names = utsname()
            guard uname(&names) == 0 else { return "" }
            return withUnsafeBytes(of: names.nodename) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
        }
        environment = { name in getenv(name).flatMap { String(validatingCString: $0) } }
        privateDirectories = [
            try? StateDirectory.path(), getenv("CREDENTIALS_DIRECTORY").map { String(cString: $0) }, "/run/credentials",
            "/var/lib/certprov", "/var/lib/private",
        ].compactMap(\.self)
    }

    /// Returns the value of a variable; `nil` for an unknown one.
    func value(of variable: String) throws(HostVariables.Problem) -> String? {
        switch variable {
        case "host": return try host()
        case "fqdn": return try fullName()
        case "machine-id": return try machineID()
        default: break
        }
        if variable.hasPrefix("env:") { return try environmentVariable(String(variable.dropFirst(4))) }
        if variable.hasPrefix("file:") { return try line(of: String(variable.dropFirst(5))) }
        return nil
    }

    // MARK: - Names

    /// The first label of the host's name.
    private func host() throws(HostVariables.Problem) -> String {
        let name = nodeName()
        guard let first = name.split(separator: ".", omittingEmptySubsequences: false).first.map(String.init),
            Self.isHostName(name)
        else {
            throw .init(
                reason: "has the name of this host, which is not a host name (RFC 1123); see hostnamectl(1)")
        }
        guard first.lowercased() != "localhost" else {
            throw .init(reason: "has the name of this host, which has none of its own; see hostnamectl(1)")
        }
        return first
    }

    /// The host's name if it has a domain, else the name with a domain that `/etc/hosts` gives to it. DNS is not asked: what answers there
    /// is not authenticated.
    private func fullName() throws(HostVariables.Problem) -> String {
        let host = try host()
        var name = nodeName()
        if !name.contains("."), let bytes = try? RegularFile.read(etc + "/hosts", atMost: 1 << 20) {
            let lines = String(decoding: bytes, as: UTF8.self).split(whereSeparator: \.isNewline)
            let names = lines.map { line in
                line.prefix { $0 != "#" }.split(whereSeparator: \.isWhitespace).dropFirst().map(String.init)
            }
            name = names.first { $0.contains(host) }?.first { $0.hasPrefix(host + ".") } ?? name
        }
        guard name.contains("."), Self.isHostName(name),
            name.split(separator: ".").last?.contains(where: \.isLetter) == true
        else {
            throw .init(
                reason:
                    "has %{fqdn}, and this host has no name with a domain; set one with hostnamectl(1), or in /etc/hosts"
            )
        }
        return name
    }

    /// Whether it has labels of 1 to 63 letters, digits and hyphens (RFC 1123, section 2.1).
    private static func isHostName(_ name: String) -> Bool {
        name.utf8.count <= 253
            && name.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false).allSatisfy { label in
                let hyphen = UInt8(ascii: "-")
                return (1...63).contains(label.count) && label.first != hyphen && label.last != hyphen
                    && label.allSatisfy { $0.isLetter || $0.isDigit || $0 == hyphen }
            }
    }

    // MARK: - The machine's identifier

    /// certprov's identifier of an application (sd_id128_get_machine_app_specific(3)).
    package static let applicationID: [UInt8] = [
        0x60, 0xe5, 0xea, 0xa2, 0xf7, 0xd3, 0x4e, 0x7a, 0x90, 0x27, 0xa4, 0xa6, 0x3a, 0xc5, 0xbb, 0x73,
    ]

    /// As `systemd-id128 machine-id --app-specific=…` makes it: the identifier itself is confidential.
    private func machineID() throws(HostVariables.Problem) -> String {
        let text = (try? RegularFile.read(etc + "/machine-id", atMost: 64)).map { String(decoding: $0, as: UTF8.self) }
        guard let id = ByteText.bytes(hexadecimal: (text ?? "").trimmed), id.count == 16 else {
            throw .init(
                reason: "has %{machine-id}, and /etc/machine-id has none; see systemd-machine-id-setup(1)")
        }
        var result = Array(
            HMAC<SHA256>.authenticationCode(for: Self.applicationID, using: SymmetricKey(data: id)).prefix(16))
        // Version 4 of RFC 9562.
        result[6] = result[6] & 0x0f | 0x40
        result[8] = result[8] & 0x3f | 0x80
        return DisplayText.hexadecimal(result)
    }

    // MARK: - Environment and files

    private func environmentVariable(_ name: String) throws(HostVariables.Problem) -> String {
        let isName = !name.isEmpty && name.utf8.allSatisfy { $0.isLetter || $0.isDigit || $0 == UInt8(ascii: "_") }
        guard isName else { throw .init(reason: "has %{env:…} with a name that no variable has") }
        guard let value = environment(name) else {
            throw .init(reason: "has %{env:\(name)}, and this variable is not set, or is not UTF-8")
        }
        return value
    }

    /// The line of a file that every user can read.
    private func line(of path: String) throws(HostVariables.Problem) -> String {
        func refusal(_ why: String) -> HostVariables.Problem { .init(reason: "has %{file:…}, and \(why)") }
        guard path.hasPrefix("/") else { throw refusal("its path is not absolute") }
        guard let real = Self.real(path) else { throw refusal("the file does not exist") }
        guard
            !privateDirectories.map({ Self.real($0) ?? $0 }).contains(where: { real == $0 || real.hasPrefix($0 + "/") })
        else { throw refusal("the file is in a directory of keys or secrets") }
        let content: [UInt8]
        do {
            let file = try FileDescriptor.open(
                FilePath(real), .readOnly, options: [.closeOnExec, .nonBlocking, .noFollow])
            defer { try? file.close() }
            guard try file.stat().permissions.contains(.otherRead) else {
                throw refusal("not every user can read the file")
            }
            // Files of the kernel say that they have 4096 bytes.
            content = try RegularFile.read(file, atMost: 4096)
        } catch let problem as HostVariables.Problem {
            throw problem
        } catch {
            throw refusal("the file cannot be read: \(error)")
        }
        guard let text = String(validating: content, as: UTF8.self) else { throw refusal("the file is not UTF-8") }
        return text.hasSuffix("\n") ? String(text.dropLast()).trimmed : text.trimmed
    }

    private static func real(_ path: String) -> String? {
        guard !path.utf8.contains(0), let real = realpath(path, nil) else { return nil }
        defer { free(real) }
        return String(cString: real)
    }
}
