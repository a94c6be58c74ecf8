package import CertificateProviding
import Glibc
import ProgramRun

/// A job of systemd: a unit takes a new identity.
package struct UnitJob: Sendable, Hashable, CustomStringConvertible {
    /// Nothing is done with a unit that does not run: it takes the identity when it starts.
    package enum Verb: String, Sendable {
        case reload = "try-reload-or-restart"
        case restart = "try-restart"
    }

    package let verb: Verb
    package let unit: String

    package init(_ verb: Verb, _ unit: String) { (self.verb, self.unit) = (verb, unit) }

    /// Reads the names of units, separated by blanks; `nil` unless there are some, and each is one.
    package static func units(_ text: String) -> [String]? {
        let units = text.split(whereSeparator: \.isWhitespace).map(String.init)
        return !units.isEmpty && units.allSatisfy(isUnit) ? units : nil
    }

    /// The name of a unit (systemd.unit(5)).
    private static func isUnit(_ name: String) -> Bool {
        guard let dot = name.lastIndex(of: "."), dot > name.startIndex, name.utf8.count < 256 else { return false }
        return name.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"):
                true
            default: ":-_.\\@".utf8.contains(byte)
            }
        } && ["service", "socket", "target"].contains(name[name.index(after: dot)...])
    }

    static func command(_ verb: Verb, _ units: [String], _ options: String...) -> [String] {
        // Those of a user are its own manager's.
        let manager = geteuid() == 0 ? [] : ["--user"]
        return ["/usr/bin/systemctl"] + manager + options + [verb.rawValue, "--"] + units
    }

    /// Has systemd begin, without a wait for the unit: one that is ordered after this process would wait for this process. systemd has
    /// one job for a unit at a time, and begins it anew where it is under way. Blocks for half a minute at most.
    ///
    /// - Throws: `unavailable` if systemd refuses, such as for an unknown unit; `timedOut`.
    package func begin() throws(ProviderError) {
        let arguments = Self.command(verb, [unit], "--no-block")
        do throws(ProgramRun.Failure) { try ProgramRun(arguments, atMost: .seconds(30)).run() } catch {
            throw ProviderError(
                error.isTimeout ? .timedOut : .unavailable,
                "'\(arguments.joined(separator: " ").withVisibleControls)' \(error.reason). The unit still has the identity of before; "
                    + "the service tries again.")
        }
    }

    package var description: String { "\(verb.rawValue) \(unit)" }
}
