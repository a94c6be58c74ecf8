import Foundation
import TestSupport
import Testing

/// Documentation/Monitoring.md: the checks run, and the tables are those of the documents.
@Suite struct MonitoringPageTests {
    private let sandbox: Sandbox
    private let configuration: String
    private static let page = "Documentation/Monitoring.md"

    init() throws {
        sandbox = try Sandbox()
        configuration = sandbox.path + "/web.properties"
    }

    /// Writes a property file for a fixture, and stores its identity.
    private func configure(_ fixture: String, isStored: Bool = true) throws {
        let file = try sandbox.copy(fixture, to: fixture)
        _ = try sandbox.configure(pkcs12: file, to: configuration)
        if isStored { try #require(try sandbox.certprov("fetch", "--config", configuration).status == 0) }
    }

    private static let hasJQ = ["/usr/bin/jq", "/usr/local/bin/jq"].contains {
        FileManager.default.isExecutableFile(atPath: $0)
    }

    /// Runs a script of the page.
    private func run(_ index: Int, _ arguments: String...) throws -> Output {
        let scripts = try Page(Self.page).blocks("sh")
        try #require(scripts.count == 2 && scripts.allSatisfy { $0.split(separator: "\n").count <= 18 })
        let script = try sandbox.write(scripts[index], to: "check", mode: 0o700)
        try FileManager.default.createDirectory(atPath: sandbox.path + "/bin", withIntermediateDirectories: true)
        symlink(BuiltCommand.path, sandbox.path + "/bin/certprov")
        let path = sandbox.path + "/bin:" + (sandbox.environment["PATH"] ?? "")
        return try sandbox.run(["/bin/sh", script] + arguments, with: ["PATH": path])
    }

    @Test("The check for Nagios is OK, a warning or critical", .enabled(if: hasJQ, "it needs jq"))
    func theNagiosCheckIsTrue() throws {
        try configure("ec.p12")
        var output = try run(0, configuration)
        #expect(output.status == 0 && output.stdout == "OK: \(configuration)\n", "\(output)")
        // Five days are left.
        try configure("soon.p12")
        output = try run(0, configuration)
        #expect(output.status == 2 && output.stdout.hasPrefix("CRITICAL: "), "\(output)")
        #expect(output.stdout.contains("CN=soon"))
        try configure("a.p12", isStored: false)
        chmod(configuration, 0o622)
        output = try run(0, configuration)
        #expect(output.status == 2 && output.stdout.contains("chmod go-w"), "\(output)")
        try sandbox.write("Port = x", to: configuration)
        output = try run(0, configuration)
        #expect(output.status == 2 && output.stdout.contains("web.properties:1"), "\(output)")
        // A secret that all users can read is a warning.
        let copy = try sandbox.copy("a.p12", to: "open.p12")
        chmod(copy, 0o644)
        _ = try sandbox.configure(pkcs12: copy, to: configuration)
        output = try run(0, configuration)
        #expect(output.status == 1 && output.stdout.hasPrefix("WARNING: "), "\(output)")
    }

    private static let python = Page.root.appending(path: ".build/pypi/bin/python3").path

    @Test(
        "One line writes the metrics of ten identities, one of them broken, as Prometheus reads them",
        .enabled(
            if: FileManager.default.fileExists(atPath: python), "prometheus-client: make .build/pypi/bin/pyspdxtools"))
    func thePrometheusMetricsAreTrue() throws {
        let (directory, file) = (sandbox.path + "/properties", sandbox.path + "/certprov.prom")
        mkdir(directory, 0o755)
        for number in 0..<9 {
            let copy = try sandbox.copy("soon.p12", to: "i\(number).p12")
            let name = try sandbox.configure(
                pkcs12: copy, "Files.directory = \(sandbox.path)/files-\(number)",
                to: directory + "/i\(number).properties")
            if number < 8 { try sandbox.certprov("fetch", "--config", name).expect() }
        }
        try sandbox.write("Port = x\n", to: directory + "/broken.properties")
        try FileManager.default.removeItem(atPath: sandbox.path + "/files-7")
        let line = try #require(try Page(Self.page).blocks("sh").last).trimmingCharacters(in: .whitespacesAndNewlines)
        let command = line.replacing("/var/lib/prometheus/node-exporter/certprov.prom", with: file)
        for _ in 1...2 {
            let output = try sandbox.shell(
                #"alias certprov="$CERTPROV"; eval "$1 --directory $2""#, command, directory)
            #expect(
                output.status == 0 && output.stdout.isEmpty && output.stderr.contains("broken.properties:1"),
                "\(output)")
        }
        let list = try sandbox.certprov("list", "--json", "--config", directory + "/i0.properties").document(
            "IdentityList")
        let text = try #require(list["items"].array.first { $0["stored"].bool == true }?["expires"].string)
        let end = Int(try Date(text, strategy: .iso8601).timeIntervalSince1970)
        let script = """
            import sys
            from prometheus_client.parser import text_string_to_metric_families
            for family in text_string_to_metric_families(open(sys.argv[1]).read()):
                for sample in family.samples: print(family.type, sample.name, sample.labels["identity"], int(sample.value))
            """
        let read = String(decoding: try Subprocess.run([Self.python, "-c", script, file]), as: UTF8.self)
            .split(separator: "\n").map(String.init)
        let stored = (0..<8).map { "i\($0)" }
        func values(_ name: String) -> [String] {
            let start = "gauge certprov_\(name) "
            return read.filter { $0.hasPrefix(start) }.map { String($0.dropFirst(start.count)) }
        }
        #expect(values("certificate_expiration_timestamp_seconds") == stored.map { "\($0) \(end)" })
        for name in ["certificate_issue_timestamp_seconds", "renewal_next_attempt_timestamp_seconds"] {
            #expect(values(name).count == 8, "\(read)")
        }
        #expect(values("files_stale") == stored.map { "\($0) \($0 == "i7" ? 1 : 0)" })
        #expect(values("identity_errors") == ["broken 1"] + (0..<9).map { "i\($0) 0" })
    }

    @Test func theTablesHaveTheFieldsOfTheDocuments() throws {
        try configure("ec.p12")
        let fetch = ["fetch", "--json", "--export-key", "--out", sandbox.path + "/out", "--config", configuration]
        var documents = [try sandbox.certprov(fetch).document("Identity")]
        for (command, kind) in [
            ("list", "IdentityList"), ("renew", "Renewal"), ("check", "CheckReport"), ("explain", "Explanation"),
        ] {
            documents.append(try sandbox.certprov(command, "--json", "--config", configuration).document(kind))
        }
        let failed = try sandbox.certprov("fetch", "--json", "--config", sandbox.path + "/no.properties")
        documents.append(try #require(try failed.errorDocuments().first))
        let identity = documents[0]["identity"]
        #expect(try Self.fields("An identity") == identity.paths.sorted())
        for document in documents {
            let kind = try #require(document["kind"].string)
            let known = try Self.fields(kind)
            // Those of an identity and of an error have tables of their own.
            let found = Set(document.paths(except: ["apiVersion", "kind", "warnings"]).map(Self.withoutInner))
            let absent = try Self.absent(kind)
            #expect(found.isSubset(of: known), "\(kind): \(found.subtracting(known))")
            #expect(Set(known).subtracting(found).isSubset(of: absent), "\(kind): \(Set(known).subtracting(found))")
        }
    }

    /// The part of a path before an object that another table has.
    private static func withoutInner(_ path: String) -> String {
        for (inner, rest) in [("identity", "identity"), ("items[]", "items"), ("errors[]", "errors")]
        where path.hasPrefix(inner + ".") && !path.hasPrefix("items[].severity") && path != inner {
            if inner == "items[]",
                ["what", "detail", "code"].contains(path.split(separator: ".").last.map(String.init))
            {
                return path
            }
            return rest
        }
        return path
    }

    private static func section(_ heading: String) throws -> Substring {
        let sections = try Page(page).text.components(separatedBy: "\n### ")
        return try #require(sections.first { $0.hasPrefix(heading + "\n") })[...]
    }

    /// The fields of the table below a heading.
    private static func fields(_ heading: String) throws -> [String] {
        try section(heading).matches(of: #/(?m)^\| (`[^|]+`) \|/#)
            .flatMap { $0.1.matches(of: #/`([^`]+)`/#).map { String($0.1) } }.sorted()
    }

    /// The fields that the table says may be absent.
    private static func absent(_ heading: String) throws -> Set<String> {
        let rows = try section(heading).split(separator: "\n").filter {
            $0.contains("absent") || $0.contains("or null")
        }
        return Set(rows.flatMap { $0.split(separator: "|")[0].matches(of: #/`([^`]+)`/#).map { String($0.1) } })
    }
}

extension JSON {
    /// The paths to its values: `a.b` in objects, `a[].b` in lists of objects.
    fileprivate var paths: [String] { paths(except: []) }

    fileprivate func paths(except left: Set<String>) -> [String] {
        keys.filter { !left.contains($0) }.flatMap { key -> [String] in
            let inner = self[key]
            if !inner.keys.isEmpty { return inner.paths.map { "\(key).\($0)" } }
            let elements = Set(inner.array.flatMap(\.paths))
            return elements.isEmpty ? [key] : elements.map { "\(key)[].\($0)" }
        }
    }
}
