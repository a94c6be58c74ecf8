/// The control group of a process, and the unit of the service manager that it is in.
struct ControlGroup: Equatable {
    let path: String
    /// The first unit below the slices: the rest of the path is the claim of a user's service manager, or of a container.
    let unit: String

    /// Why a control group does not count: a clause.
    struct Obstacle: Error { let reason: String }

    private static let unitTypes = [".service", ".scope", ".socket", ".mount", ".swap"]

    /// Reads `/proc/PID/cgroup` (cgroups(7)): the line of version 2, or the service manager's own where there is none.
    ///
    /// By bytes: a combining character hides a slash from Character.
    init(_ content: [UInt8]) throws(Obstacle) {
        let lines = content.split(separator: UInt8(ascii: "\n")).map {
            $0.split(separator: UInt8(ascii: ":"), maxSplits: 2, omittingEmptySubsequences: false)
        }.filter { $0.count == 3 }
        guard
            let line = lines.first(where: { $0[0].elementsEqual("0".utf8) && $0[1].isEmpty })
                ?? lines.first(where: { $0[1].elementsEqual("name=systemd".utf8) })
        else { throw Obstacle(reason: "its control group cannot be read") }
        path = String(decoding: line[2], as: UTF8.self)
        let parts = line[2].split(separator: UInt8(ascii: "/")).map { String(decoding: $0, as: UTF8.self) }
        guard !parts.contains(where: { $0.utf8.elementsEqual("..".utf8) }) else {
            throw Obstacle(reason: "its control group is outside of the cgroup namespace of this service")
        }
        guard !path.utf8.reversed().starts(with: " (deleted)".utf8.reversed()) else {
            throw Obstacle(reason: "its control group was removed")
        }
        func ends(_ part: String, _ suffix: String) -> Bool {
            part.utf8.count > suffix.utf8.count && part.utf8.reversed().starts(with: suffix.utf8.reversed())
        }
        guard let unit = parts.first(where: { !ends($0, ".slice") }),
            Self.unitTypes.contains(where: { ends(unit, $0) })
        else { throw Obstacle(reason: "it is in no unit of the service manager") }
        // systemd puts `_` before names that the kernel could have, such as memory.service, and before those that begin with `_` or `.`.
        self.unit = unit.utf8.first == UInt8(ascii: "_") ? String(unit.dropFirst()) : unit
    }

    /// Whether it is this one, or below it.
    func isWithin(_ other: String) -> Bool {
        path.utf8.elementsEqual(other.utf8) || path.utf8.starts(with: (other + "/").utf8)
    }
}
