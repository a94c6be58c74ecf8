import CLinux
import CertificateProviding
import FoundationEssentials
import Glibc

/// The service that the timer `certprov-renew@NAME.timer` starts for a property file, as systemd has it. It may do less than the user of
/// the command.
struct RenewalUnit: Sendable {
    let name: String
    /// Whether the timer starts it.
    let isInUse: Bool
    /// By name, such as `PrivateUsers`.
    private let properties: [String: String]

    private static let shown = [
        "Id", "ActiveState", "ExecStart", "User", "CapabilityBoundingSet", "AmbientCapabilities", "PrivateUsers",
        "ProtectSystem", "ProtectHome", "ReadWritePaths", "SystemCallFilter",
    ]

    /// Asks systemd for the unit that renews a property file; `nil` if there is none, or systemd does not run. Blocks for some seconds at
    /// most.
    static func renewing(_ path: String) -> RenewalUnit? {
        let file = path.split(separator: "/").last ?? ""
        guard access("/run/systemd/system", F_OK) == 0, file.hasSuffix(".properties") else { return nil }
        let instance = file.dropLast(".properties".count)
        // As systemd writes it without escapes; the unit's command has it as it is.
        guard !instance.isEmpty,
            instance.utf8.allSatisfy({ byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"):
                    true
                default: ":-_.".utf8.contains(byte)
                }
            })
        else { return nil }
        let units = ["certprov-renew@\(instance).service", "certprov-renew@\(instance).timer"]
        let command =
            ["/usr/bin/timeout", "10", "/usr/bin/systemctl", "show", "--no-pager"]
            + ["--property=" + shown.joined(separator: ","), "--"] + units
        return output(of: command).flatMap { RenewalUnit($0, renewing: path) }
    }

    /// Reads the output of `systemctl show` about the service and the timer; `nil` if the service does not renew the property file.
    init?(_ output: String, renewing path: String) {
        let units = output.split(separator: "\n\n").map { block in
            Dictionary(
                block.split(separator: "\n").compactMap { line -> (String, String)? in
                    guard let equals = line.firstIndex(of: "=") else { return nil }
                    return (String(line[..<equals]), String(line[line.index(after: equals)...]))
                }
            ) { $1 }
        }
        guard let service = units.first(where: { $0["Id"]?.hasSuffix(".service") == true }), let name = service["Id"],
            let words = service["ExecStart"]?.split(separator: " "), let option = words.firstIndex(of: "--config"),
            option + 1 < words.count, Self.isSame(String(words[option + 1]), path)
        else { return nil }
        (self.name, properties) = (name, service)
        isInUse = units.contains { $0["Id"]?.hasSuffix(".timer") == true && $0["ActiveState"] == "active" }
    }

    private static func isSame(_ one: String, _ other: String) -> Bool {
        var (first, second) = (stat(), stat())
        guard stat(one, &first) == 0, stat(other, &second) == 0 else { return one == other }
        return first.st_dev == second.st_dev && first.st_ino == second.st_ino
    }

    private subscript(name: String) -> String { properties[name] ?? "" }
    private var isOfRoot: Bool { ["", "root", "0"].contains(self["User"]) }
    private var hasPrivateUsers: Bool { !["", "no"].contains(self["PrivateUsers"]) }

    private func has(_ capability: String, in property: String) -> Bool {
        self[property].split(separator: " ").contains { $0 == capability }
    }

    /// The settings that it lacks to open a port of root, for a drop-in.
    var missingForReservedPort: [String] {
        let capability = "cap_net_bind_service"
        var missing: [String] = []
        if !has(capability, in: "CapabilityBoundingSet") {
            missing.append("CapabilityBoundingSet=CAP_NET_BIND_SERVICE")
        }
        if hasPrivateUsers { missing.append("PrivateUsers=no") }
        if !isOfRoot, !has(capability, in: "AmbientCapabilities") {
            missing.append("AmbientCapabilities=CAP_NET_BIND_SERVICE")
        }
        return missing
    }

    /// The settings that it lacks to give files to another user or group, for a drop-in. Of a user that is not root, nothing is known.
    var missingToGiveFiles: [String] {
        guard isOfRoot else { return [] }
        var missing: [String] = []
        if hasPrivateUsers { missing.append("PrivateUsers=no") }
        if !has("cap_chown", in: "CapabilityBoundingSet") {
            missing.append("CapabilityBoundingSet=CAP_CHOWN CAP_FOWNER CAP_DAC_READ_SEARCH")
        }
        // The permitted calls, or behind a tilde the refused ones.
        let filter = self["SystemCallFilter"].split { "~ ".contains($0) }
        if !filter.isEmpty, filter.contains("fchown") == self["SystemCallFilter"].hasPrefix("~") {
            missing.append("SystemCallFilter=@chown")
        }
        return missing
    }

    /// A finding that keeps the timer from renewing. Without a timer that is active, it does no harm yet.
    func finding(_ what: String, _ cannot: String, _ missing: [String], page: String, step: String = "") -> Finding {
        let advice = missing.isEmpty ? "" : " Its drop-in needs: \(missing.joined(separator: ", ")) (the page \(page))."
        let finding = Finding.error(
            what,
            ProviderError(
                .configurationInvalid, "\(name) \(cannot), so that the timer cannot renew.\(advice)\(step)"))
        return isInUse ? finding : finding.asWarning
    }

    /// The settings that it lacks to write below a directory, for a drop-in.
    func missingToWrite(below path: String) -> [String] {
        func isBelow(_ place: String) -> Bool { path == place || path.hasPrefix(place + "/") || place == "/" }
        let writable = self["ReadWritePaths"].split(separator: " ").map { place in
            String(place.drop { "-+".contains($0) })
        }
        if writable.contains(where: isBelow) { return [] }
        var missing: [String] = []
        let isReadOnly =
            switch self["ProtectSystem"] {
            case "strict": !["/dev", "/proc", "/sys"].contains(where: isBelow)
            case "full": ["/usr", "/boot", "/efi", "/etc"].contains(where: isBelow)
            case "yes": ["/usr", "/boot", "/efi"].contains(where: isBelow)
            default: false
            }
        if isReadOnly { missing.append("ReadWritePaths=\(path)") }
        if !["", "no"].contains(self["ProtectHome"]), ["/home", "/root", "/run/user"].contains(where: isBelow) {
            missing.append("ProtectHome=no")
        }
        return missing
    }

    /// Whether the rights of files let its user write to a directory with this owner and mode. Of a user that is not root, nothing is known.
    func mayWrite(owner: UInt32, mode: UInt32) -> Bool {
        !isOfRoot || owner == 0 || mode & 0o002 != 0
            || has("cap_dac_override", in: "CapabilityBoundingSet") && !hasPrivateUsers
    }

    /// Runs a program without variables and open files of this process. Returns its output; `nil` if it fails.
    private static func output(of arguments: [String]) -> String? {
        var pipe: [Int32] = [-1, -1]
        guard certprov_pipe(&pipe) == 0 else { return nil }
        defer { close(pipe[0]) }
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_adddup2(&actions, pipe[1], 1)
        posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0)
        certprov_close_from(&actions, 3)
        var words: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) } + [nil]
        defer { for word in words { free(word) } }
        var variables: [UnsafeMutablePointer<CChar>?] = [nil]
        var pid: pid_t = 0
        let status = posix_spawn(&pid, arguments[0], &actions, nil, &words, &variables)
        close(pipe[1])
        guard status == 0 else { return nil }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4096)
        while case let count = read(pipe[0], &buffer, buffer.count), count > 0 || count < 0 && errno == EINTR {
            bytes += buffer.prefix(max(0, count))
        }
        var end: Int32 = 0
        while waitpid(pid, &end, 0) < 0 && errno == EINTR {}
        return end == 0 ? String(decoding: bytes, as: UTF8.self) : nil
    }
}
