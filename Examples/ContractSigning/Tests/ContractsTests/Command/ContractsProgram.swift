import Foundation
import Glibc
import Subprocess
import Testing

/// The built program `contracts`, with a home, a property file and an opener of a test's own.
final class ContractsProgram: Sendable {
    struct Output: Sendable, CustomStringConvertible {
        var status: Int32
        var stdout: String
        var stderr: String

        var description: String { "status \(status)\nstdout: \(stdout)\nstderr: \(stderr)" }

        /// The JSON object of stdout, or of the last line of stderr.
        func json(_ isError: Bool = false) throws -> [String: Any] {
            let text = isError ? stderr.split(separator: "\n").last.map(String.init) ?? "" : stdout
            return try #require(
                try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any], "\(self)")
        }
    }

    let folder: CallFolder

    /// - Parameter settings: Lines of the property file, beside the opener and its scheme `myapp`.
    init(_ settings: String = "") async throws {
        // A program that ends before it has read its input must not end the tests.
        signal(SIGPIPE, SIG_IGN)
        folder = try CallFolder()
        let opener = try await folder.opener()
        try folder.write(
            "Contracts.callback-schemes = myapp\nContracts.url-opener = \(opener)\n\(settings)\n", to: "host.properties"
        )
        for name in ["home", "state", "data", "config"] {
            try FileManager.default.createDirectory(atPath: folder[name], withIntermediateDirectories: true)
        }
    }

    /// Makes an identity in PEM files, and returns the lines of a property file for it. Its CA is `ca.pem`.
    func identity(_ name: String) async throws -> String {
        let script = """
            set -eu
            cd "$1"
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout ca.key -out ca.pem -days 2 \
            -subj '/O=Example/CN=Example CA'
            openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout own.key -out own.csr -subj "/CN=$2"
            printf 'keyUsage=critical,digitalSignature,nonRepudiation\\nextendedKeyUsage=clientAuth,emailProtection\\n' >extensions
            openssl x509 -req -in own.csr -CA ca.pem -CAkey ca.key -days 1 -out own.pem -extfile extensions
            chmod 600 own.key
            """
        let output = try await run(["sh", "-c", script, "sh", folder.path, name])
        try #require(output.status == 0, "\(output)")
        return """
            CertificateProvider = pem
            CertificateProvider.pem.certificate = \(folder["own.pem"])
            CertificateProvider.pem.key = \(folder["own.key"])
            CertificateProvider.pem.trust-bundle = \(folder["ca.pem"])
            CertificateProvider.pem.usage = signature

            """
    }

    /// The path of a program that is built beside the tests.
    static func path(_ name: String = "contracts") -> String {
        let own =
            (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? CommandLine.arguments[0]
        let beside = URL(filePath: own).deletingLastPathComponent().appending(path: name).path
        if FileManager.default.fileExists(atPath: beside) { return beside }
        // The tests are a library that another program has loaded.
        let arguments = CommandLine.arguments.filter { $0.contains(".xctest") }
        let bundle = arguments.first.map { String($0[..<($0.range(of: ".xctest")?.lowerBound ?? $0.endIndex)]) } ?? own
        return URL(filePath: bundle).deletingLastPathComponent().appending(path: name).path
    }

    var environment: [Environment.Key: String] {
        [
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C.UTF-8", "HOME": folder["home"],
            "XDG_STATE_HOME": folder["state"], "XDG_DATA_HOME": folder["data"], "XDG_CONFIG_HOME": folder["config"],
            "CERTPROV_CONFIG": folder["host.properties"], "SOFTHSM2_CONF": folder["softhsm2.conf"],
        ]
    }

    /// Runs `contracts` to its end, without a terminal.
    func callAsFunction(
        _ arguments: String..., input: [UInt8] = [], with variables: [Environment.Key: String] = [:]
    ) async throws -> Output {
        try await run([Self.path()] + arguments, input: input, with: variables)
    }

    /// Runs a program to its end, in a session of its own.
    func run(
        _ arguments: [String], input: [UInt8] = [], with variables: [Environment.Key: String] = [:]
    ) async throws -> Output {
        var options = PlatformOptions()
        options.createSession = true
        let configuration = Configuration(
            executable: .name("env"), arguments: Arguments(arguments),
            environment: .custom(environment.merging(variables) { $1 }), platformOptions: options)
        let result = try await Subprocess.run(
            configuration, input: .array(input), output: .bytes(limit: 64 << 20), error: .bytes(limit: 64 << 20))
        let status: Int32 =
            switch result.terminationStatus {
            case .exited(let code): code
            case .signaled(let number): -number
            }
        return Output(
            status: status, stdout: String(decoding: result.standardOutput, as: UTF8.self),
            stderr: String(decoding: result.standardError, as: UTF8.self))
    }

    /// Runs `contracts`, and kills it when something holds.
    func killed(_ arguments: String..., when holds: @escaping @Sendable () throws -> Bool) async throws {
        try await killed(running: [Self.path()] + arguments, toProcessGroup: false, when: holds)
    }

    /// Runs a program, and kills it, with what it has started, when something holds.
    func killed(
        running arguments: [String], toProcessGroup: Bool = true, when holds: @escaping @Sendable () throws -> Bool
    ) async throws {
        var options = PlatformOptions()
        options.createSession = true
        let configuration = Configuration(
            executable: .name("env"), arguments: Arguments(arguments),
            environment: .custom(environment.merging(["CONTRACTS": Self.path()]) { $1 }), platformOptions: options)
        _ = try await Subprocess.run(configuration, input: .none, output: .discarded, error: .discarded) { execution in
            let result: Result<Void, any Error>
            do { result = .success(try await until("the moment of the kill", holds)) } catch {
                result = .failure(error)
            }
            try execution.send(signal: .kill, toProcessGroup: toProcessGroup)
            try result.get()
        }
    }

    /// Runs a shell command at a terminal, and types each line of a text when the next question is there: earlier characters are dropped.
    ///
    /// - Returns: What was on the terminal, in `stdout`.
    func atTerminal(_ command: String, typing text: String = "") async throws -> Output {
        let typing = #"""
            screen=$(mktemp -p "$3"); seen=0
            while IFS= read -r line; do
                until [ "$(wc -c <"$screen")" -gt "$seen" ] && tail -c 2 "$screen" | grep -q '^[]:] $'; do
                    [ -e "$screen.end" ] && exit; sleep 0.02
                done
                seen=$(wc -c <"$screen"); printf '%s\n' "$line"
            done <<EOF | { script -qef -E always -c "$1" "$screen"; status=$?; : >"$screen.end"; exit $status; }
            $2
            EOF
            """#
        let lines = text.hasSuffix("\n") ? String(text.dropLast()) : text
        return try await run(
            ["sh", "-c", typing, "sh", command, lines, folder.path], with: ["CONTRACTS": Self.path()])
    }

    /// Takes a file in, and returns the id.
    func open(_ file: String) async throws -> String {
        let output = try await self("open", "--json", file)
        #expect(output.status == 0, "\(output)")
        let contract = try #require(try output.json()["contract"] as? [String: Any])
        return try #require(contract["id"] as? String)
    }
}

/// Files of contracts, made at run time.
enum CallFile {
    /// - Parameters:
    ///   - lastName: None makes the contract incomplete.
    ///   - more: Members at the top, with a comma after each.
    static func json(
        lastName: String? = "Dupont", number: String = "C1", mode: Int = 2, id: Int = -1, name: String = "contract.pdf",
        more: String = "", callbacks: Bool = true
    ) -> String {
        let last = lastName.map { #", {"key": "lastname", "value": "\#($0)"}"# } ?? ""
        let urls =
            callbacks
            ? #", "success_callback_url": "myapp://done?x=1", "error_callback_url": "myapp://error?x=1""# : ""
        return """
            {\(more)"customer": {"number": "\(number)", "mode": \(mode), "contractor_id": -1, "fields": [
                {"key": "firstname", "value": "Jean"}\(last)]}, "contractors": [],
            "contract": {"contract_definition_id": 1, "contract_id": \(id), "pdf_file_name": "\(name)",
                "pdf_file_path": "data:application/pdf;base64,\(Data(pdf).base64EncodedString())"},
            "contract_properties": [], "files": [], "options": []\(urls)}
            """
    }

    /// One empty page.
    static var pdf: [UInt8] {
        let objects = [
            "<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Kids[3 0 R]/Count 1>>",
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]>>",
        ]
        var text = "%PDF-1.7\n"
        var table = "xref\n0 4\n0000000000 65535 f \n"
        for (index, object) in objects.enumerated() {
            table += String(format: "%010d 00000 n \n", text.utf8.count)
            text += "\(index + 1) 0 obj\n\(object)\nendobj\n"
        }
        return Array("\(text)\(table)trailer\n<</Size 4/Root 1 0 R>>\nstartxref\n\(text.utf8.count)\n%%EOF\n".utf8)
    }
}
