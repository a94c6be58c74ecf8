package import CertificateProviding
package import HostSockets
package import IdentityFiles
package import Logon

/// The settings of a host service that belong to an identity: the section `Serve.` of its property file.
package enum ServeSection {
    static let allow = Parameter<String>(
        "Serve.allow.<number>", .string, absent: "", defaultValue: "none",
        summary:
            "A grant: callers that may use the identity through this host's sockets. Selectors separated by blanks, which must all "
            + "match: uid:NUMBER, user:NAME, gid:NUMBER, group:NAME, unit:NAME.service, cgroup:/PATH. One of several grants is enough."
    ) { text, _ in text }

    package static let handsOutKey = Parameter.flag(
        "Serve.hand-out-key",
        summary: "Whether systemd credentials of the credential socket may hold the private key: NAME.pem, NAME.key.")
    private static let reload = units(
        "Serve.reload", "reloaded", "for programs that hold a handle of the key")
    private static let restart = units(
        "Serve.restart", "restarted", "for units that load it as a credential")

    private static let ownUnit = "certprov-serve.service"

    private static func units(_ name: String, _ verb: String, _ reason: String) -> Parameter<[String]> {
        Parameter(
            name, .string, absent: [], defaultValue: "none",
            summary: "systemd units that are \(verb) right after a renewal, separated by blanks: \(reason)."
        ) { text, _ throws(ParameterProblem) in
            guard let units = UnitJob.units(text) else {
                throw .expected("must be names of systemd units, such as nginx.service, separated by blanks")
            }
            guard !units.contains(ownUnit) else {
                throw .expected("must not name \(ownUnit), which would end at each renewal")
            }
            return units
        }
    }

    /// Returns the tunnels and grants of a property file, checked, or throws an error of it.
    package typealias Reading =
        @Sendable (LogonConfiguration) throws(ProviderError) -> (tunnels: [TunnelSettings], grants: Grants)

    package static let settings = SettingsSection(
        title: "Host service", namespaces: ["Serve."],
        [allow.descriptor, handsOutKey.descriptor, reload.descriptor, restart.descriptor] + TunnelSettings.parameters)

    /// Returns what systemd is to do after a renewal.
    package static func jobs(_ settings: Parameters) -> [UnitJob] {
        settings[reload].map { UnitJob(.reload, $0) } + settings[restart].map { UnitJob(.restart, $0) }
    }

    /// Returns what a property file has for callers, checked with all that it needs. Blocks on the databases of users and groups.
    ///
    /// - Throws: `configurationInvalid`, with file and line.
    package static func read(
        _ configuration: LogonConfiguration
    ) throws(ProviderError) -> (tunnels: [TunnelSettings], grants: Grants) {
        let grants = try grants(configuration.settings)
        let tunnels = try tunnels(configuration.settings)
        for tunnel in tunnels { try tunnel.check(configuration, grants, configuration.settings) }
        return (tunnels, grants)
    }

    /// Returns the tunnels, in the order of their numbers.
    ///
    /// - Throws: `configurationInvalid`.
    private static func tunnels(_ settings: Parameters) throws(ProviderError) -> [TunnelSettings] {
        var tunnels: [TunnelSettings] = []
        for number in settings.members(of: TunnelSettings.listen) {
            let new = try TunnelSettings(number, settings)
            if let other = tunnels.first(where: { $0.listen.port != 0 && $0.listen.covers(new.listen) }) {
                throw settings.invalid(
                    TunnelSettings.listen.of(number),
                    "is the address of tunnel \(other.number), too; give each one of its own")
            }
            tunnels.append(new)
        }
        return tunnels
    }

    /// Returns the grants. Blocks on the databases of users and groups.
    ///
    /// - Throws: `configurationInvalid`, also for an unknown user or group.
    package static func grants(_ settings: Parameters) throws(ProviderError) -> Grants {
        var grants: [Grants.Grant] = []
        for number in settings.members(of: allow) {
            let setting = allow.of(number)
            let text = settings[setting]
            let selectors = try settings.reading(setting) { () throws(ProviderError) -> Set<Selector> in
                try self.selectors(text)
            }
            if let same = grants.first(where: { $0.selectors == selectors }) {
                throw settings.invalid(setting, "is the same grant as \(same.name); remove one")
            }
            grants.append(Grants.Grant(name: setting.name, selectors, text: text))
        }
        return Grants(grants)
    }

    /// The user and the group that stand for those that a namespace does not have.
    private static let overflow: UInt32 = 65_534
    private static let kinds = "uid:NUMBER, user:NAME, gid:NUMBER, group:NAME, unit:NAME.service or cgroup:/PATH"

    private static func selectors(_ text: String) throws(ProviderError) -> Set<Selector> {
        func invalid(_ reason: String) -> ProviderError { ProviderError(.configurationInvalid, "A grant \(reason).") }
        let words = text.split(separator: " ").map(String.init)
        guard !words.isEmpty else { throw invalid("has no selector, and there is no wildcard; write \(kinds)") }
        var selectors: Set<Selector> = []
        for word in words {
            let value = String(word.drop { $0 != ":" }.dropFirst())
            let name = "'\(word.withVisibleControls)'"
            func number(_ value: String) throws(ProviderError) -> UInt32 {
                guard let number = UInt32(value), String(number) == value, number != .max, number != overflow else {
                    throw invalid(
                        "has \(name), which is not the number of a user or group; 65534 and 4294967295 stand for unknown ones"
                    )
                }
                return number
            }
            /// Numbers have selectors of their own: a name may consist of digits.
            func named(_ found: UInt32?, _ what: String) throws(ProviderError) -> UInt32 {
                guard UInt32(value) == nil, let found else {
                    throw invalid("has \(name), and this host has no \(what) with that name")
                }
                return try number("\(found)")
            }
            let new: Selector
            switch word.prefix(while: { $0 != ":" }) {
            case "uid": new = .user(try number(value))
            case "gid": new = .group(try number(value))
            case "user": new = .user(try named(FilePermissions.user(value), "user"))
            case "group": new = .group(try named(FilePermissions.group(value), "group"))
            case "unit":
                guard value.hasSuffix(".service") || value.hasSuffix(".scope"), !value.hasPrefix("."),
                    !value.hasPrefix("user@"), isPlain(value), !value.contains("/")
                else {
                    throw invalid(
                        "has \(name), which is not a unit of the system's service manager; write NAME.service, or uid: for a user's units"
                    )
                }
                new = .unit(value)
            case "cgroup":
                let parts = value.split(separator: "/", omittingEmptySubsequences: false).dropFirst()
                guard value.hasPrefix("/"), isPlain(value), !parts.contains(where: { ["", ".", ".."].contains($0) })
                else {
                    throw invalid("has \(name), which is not an absolute path of a control group below the root")
                }
                new = .cgroup(value)
            default: throw invalid("has \(name), which is not a selector; write \(kinds)")
            }
            guard selectors.insert(new).inserted else { throw invalid("has \(name) twice, perhaps by another name") }
            if case .user = new, selectors.contains(where: { if case .user = $0 { $0 != new } else { false } }) {
                throw invalid("has two users, and all selectors must match; write a grant for each")
            }
            if case .unit = new, selectors.contains(where: { if case .unit = $0 { $0 != new } else { false } }) {
                throw invalid("has two units, and all selectors must match; write a grant for each")
            }
        }
        return selectors
    }

    private static func isPlain(_ text: String) -> Bool { text.utf8.allSatisfy { (0x21...0x7e).contains($0) } }
}
