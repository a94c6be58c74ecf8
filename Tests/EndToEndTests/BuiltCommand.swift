import Foundation

/// The command that was built together with these tests.
enum BuiltCommand {
    /// Whether tokens and enrolment of the command are plugins (`make test-plugged`).
    static let isPlugged = ProcessInfo.processInfo.environment["CERTPROV_TEST_PLUGGED"] != nil
    static let path = program("certprov")

    /// The path of a program that is built beside the tests, or in the directory that the environment names.
    static func program(_ name: String) -> String {
        if let directory = ProcessInfo.processInfo.environment["CERTPROV_TEST_PROGRAMS"] {
            return "\(directory)/\(name)"
        }
        let own =
            (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? CommandLine.arguments[0]
        return URL(filePath: own).deletingLastPathComponent().appending(path: name).path
    }
}
