import CertificateProviding
package import Glibc
package import Logging

/// A condition of a grant for a caller.
package enum Selector: Sendable, Hashable {
    case user(uid_t)
    /// The primary group, or a supplementary one.
    case group(gid_t)
    /// A unit of the service manager.
    case unit(String)
    /// A control group, or one below it.
    case cgroup(String)

    /// Returns why it does not match: a clause; `nil` if it matches.
    func mismatch(_ caller: Caller) -> String? {
        switch (self, caller.place) {
        case (.user(let user), _):
            caller.user == user
                ? nil : caller.user.map { "its user is \($0)" } ?? "its user has changed since it connected"
        case (.group(let group), _): caller.groups.contains(group) ? nil : "it is not in group \(group)"
        case (_, .failure(let obstacle)): obstacle.reason
        case (.unit(let unit), .success(let place)):
            place.unit.utf8.elementsEqual(unit.utf8) ? nil : "its unit is \(place.unit.withVisibleControls)"
        case (.cgroup(let path), .success(let place)):
            // Not its own one: users can make ever new control groups, and each would be another reason in the log.
            place.isWithin(path) ? nil : "its control group is not within \(path)"
        }
    }

    /// Whether it says where a process runs, which a number of a user does not.
    package var isOfPlace: Bool {
        switch self {
        case .unit, .cgroup: true
        case .user, .group: false
        }
    }
}

/// Which callers may use an identity. Without a grant there is none.
package struct Grants: Sendable, Equatable {
    /// Selectors that must all match.
    package struct Grant: Sendable, Equatable {
        /// The setting that it is from, for messages.
        package let name: String
        package let selectors: Set<Selector>
        /// As they are configured.
        package let text: String

        package init(name: String, _ selectors: Set<Selector>, text: String) {
            (self.name, self.selectors, self.text) = (name, selectors, text)
        }

        /// Returns why the caller does not have it, and nothing for a caller who has it.
        package func mismatches(_ caller: Caller) -> [String] {
            if let obstacle = caller.obstacle { return [obstacle] }
            var reasons = selectors.compactMap { $0.mismatch(caller) }
            if !selectors.contains(where: \.isOfPlace), let isolation = caller.isolation { reasons.append(isolation) }
            if selectors.isEmpty { reasons.append("it has no selector") }
            return Set(reasons).sorted()
        }

        /// Returns why it gives the unit of a process no credential (systemd.exec(5)), and nothing if it does. The service manager fetches
        /// credentials as root, whatever the user of the unit is.
        package func mismatchesForCredentials(_ caller: Caller) -> [String] {
            if let obstacle = caller.obstacle { return [obstacle] }
            guard !selectors.contains(where: { !$0.isOfPlace }) else {
                return ["it names a user or group, and credentials are fetched by root"]
            }
            guard isOfUnit else { return ["it names no unit"] }
            return Set(selectors.compactMap { $0.mismatch(caller) }).sorted()
        }

        /// Whether it names a unit.
        package var isOfUnit: Bool { selectors.contains { if case .unit = $0 { true } else { false } } }
    }

    package var grants: [Grant]

    package init(_ grants: [Grant] = []) { self.grants = grants }

    /// Returns those that others have, too.
    package func limited(to others: Grants) -> Grants {
        Grants(grants.filter { grant in others.grants.contains { $0.selectors == grant.selectors } })
    }

    /// Returns why a caller is refused: a clause for each grant. `nil` if one of them matches.
    package func refusal(of caller: Caller) -> String? {
        if grants.contains(where: { $0.mismatches(caller).isEmpty }) { return nil }
        return Self.text(grants.map { ($0, $0.mismatches(caller)) })
    }

    /// Why a caller gets nothing: a clause.
    package struct Refusal: Error {
        package let reason: String

        package init(_ reason: String) { self.reason = reason }
    }

    /// Returns the grant by which the unit of a caller gets credentials.
    ///
    /// - Throws: A clause for each grant, if there is none.
    package func forCredentials(_ caller: Caller) throws(Refusal) -> Grant {
        let found = grants.map { ($0, $0.mismatchesForCredentials(caller)) }
        guard let grant = found.first(where: \.1.isEmpty)?.0 else { throw Refusal(Self.text(found)) }
        return grant
    }

    private static func text(_ found: [(Grant, [String])]) -> String {
        if found.isEmpty { return "there is no grant" }
        return found.map { "\($0.0.name) (\($0.0.text)): \($0.1.joined(separator: ", "))" }.joined(separator: "; ")
    }

    /// Returns why a caller may not use an identity, and logs it: each reason of a user once a minute, with its count.
    ///
    /// - Parameter identity: `nil` if `lines` and `logger` are of one identity.
    package func refusal(
        of caller: Caller, for identity: String? = nil, _ lines: RepeatedLines, _ logger: Logger
    ) -> String? {
        guard let refusal = refusal(of: caller) else { return nil }
        if let count = lines.note("\(caller.connectedUser) \(identity ?? "") \(refusal)") {
            var metadata: Logger.Metadata = [
                "caller": "\(caller)", "reason": "\(refusal)", "count": "\(count)",
            ]
            if let identity { metadata["identity"] = "\(identity)" }
            logger.warning("caller refused", metadata: metadata)
        }
        return refusal
    }
}
