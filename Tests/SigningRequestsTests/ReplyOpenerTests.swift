import CertificateProviding
import Foundation
import SigningRequests
import TestSupport
import Testing

/// The way of a reply to the application, by xdg-open.
@Suite struct ReplyOpenerTests {
    /// The folder with the application, in a process of its own.
    private static let home = ProcessInfo.processInfo.environment["CERTPROV_TEST_APPLICATIONS"]
    private static let isAlone = home != nil

    @Test(
        "A reply reaches the application of its scheme: with a display, and without a display server",
        .enabled(if: !isAlone),
        arguments: ["reaches", "longest", "noApplication", "stays", "noOpener"])
    func inASession(test: String) async throws {
        let directory = try TemporaryDirectory()
        try FileManager.default.createDirectory(atPath: directory["applications"], withIntermediateDirectories: true)
        let program = try directory.install(
            "application",
            Array(
                """
                #!/bin/sh
                printf '%s\\n' "$#" "$1" >"\(directory["got.new"])"
                mv "\(directory["got.new"])" "\(directory["got"])"
                while [ -e "\(directory["stays"])" ]; do sleep 0.1; done

                """.utf8))
        try directory.write(
            """
            [Desktop Entry]
            Type=Application
            Name=Caller
            Exec=\(program) %u
            NoDisplay=true
            MimeType=x-scheme-handler/caller;

            """.utf8, to: "applications/caller.desktop")
        try directory.write(
            "[Default Applications]\nx-scheme-handler/caller=caller.desktop\n".utf8, to: "mimeapps.list")
        if test == "stays" { try directory.write([], to: "stays") }
        let variables = [
            "CERTPROV_TEST_APPLICATIONS=\(directory.path)", "HOME=\(directory.path)", "DISPLAY=:99",
            "XDG_DATA_HOME=\(directory.path)", "XDG_CONFIG_HOME=\(directory.path)", "XDG_CURRENT_DESKTOP=",
        ]
        try await Subprocess.runTests([test], of: "ReplyOpenerTests/\(test)", with: variables)
    }

    private func url(_ scheme: String, _ value: String) -> RequestURL {
        RequestURL(scheme: scheme, host: "sign-pdf", items: [.init("status", "success"), .init("document", value)])
    }

    /// The URL that the application has got.
    private func got() throws -> String {
        let home = try #require(Self.home)
        while !FileManager.default.fileExists(atPath: home + "/got") { usleep(1000) }
        let lines = try String(contentsOfFile: home + "/got", encoding: .utf8).split(separator: "\n")
        try #require(lines.count == 2 && lines[0] == "1")
        return String(lines[1])
    }

    @Test(.enabled(if: isAlone)) func reaches() async throws {
        let reply = url("caller", "$(touch /tmp/no) `id` ; ' \" & ü")
        try await ReplyOpener.open(reply, within: .seconds(600))
        #expect(try RequestURL(Array(got().utf8)) == reply)
    }

    @Test(.enabled(if: isAlone)) func longest() async throws {
        var reply = url("caller", "")
        let room = ReplyOpener.longestURL - reply.text.utf8.count
        reply = url("caller", String(repeating: "A", count: room))
        try await ReplyOpener.open(reply, within: .seconds(600))
        #expect(try got() == reply.text)
        reply = url("caller", String(repeating: "A", count: room + 1))
        let error = try await #require(throws: ProviderError.self) { try await ReplyOpener.open(reply) }
        #expect(error.code == .operationNotAllowed)
    }

    @Test(.enabled(if: isAlone)) func noApplication() async throws {
        let error = try await #require(throws: ProviderError.self) {
            try await ReplyOpener.open(url("nowhere", "A"), within: .seconds(600))
        }
        #expect(error.code == .unavailable && error.message.contains("x-scheme-handler/nowhere"), "\(error)")
    }

    /// The end of an application is not waited for.
    @Test(.enabled(if: isAlone)) func stays() async throws {
        try await ReplyOpener.open(url("caller", "A"), within: .milliseconds(1))
        #expect(try got().hasPrefix("caller://"))
    }

    @Test(.enabled(if: isAlone)) func noOpener() async throws {
        setenv("PATH", "/nowhere", 1)
        let error = try await #require(throws: ProviderError.self) {
            try await ReplyOpener.open(url("caller", "A"))
        }
        #expect(error.code == .unavailable && error.message.contains("xdg-utils"), "\(error)")
    }
}
