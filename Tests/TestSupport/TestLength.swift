import Foundation

/// How long the tests may take, from the environment variable `CERTPROV_TEST_LENGTH`.
public enum TestLength: String, Sendable {
    /// `make check`: tests that take a second or more are skipped.
    case quick
    /// `make test`: loops are short.
    case usual
    /// `make everything`: some loops are longer.
    case full
    /// `make soak`: loops have their full length.
    case soak

    public static let current =
        ProcessInfo.processInfo.environment["CERTPROV_TEST_LENGTH"].flatMap(Self.init) ?? .usual

    /// Whether tests that take a second or more run.
    public static var hasSeconds: Bool { current != .quick }

    /// How often a loop runs that finds more the longer it runs.
    public static func rounds(_ usual: Int, full: Int? = nil, soak: Int) -> Int {
        switch current {
        case .quick, .usual: usual
        case .full: full ?? usual
        case .soak: soak
        }
    }
}
