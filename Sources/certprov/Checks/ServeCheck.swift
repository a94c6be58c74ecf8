import CertificateProviding
import HostService
import HostSockets
import Logon

/// Checks the section `Serve.` of the property file.
struct ServeCheck {
    private static let what = "host service"
    let configuration: LogonConfiguration
    let stored: Identity?

    func run() -> [Finding] {
        do throws(ProviderError) {
            let (tunnels, all) = try ServeSection.read(configuration)
            let grants = all.grants
            let handsOutKey = configuration.settings[ServeSection.handsOutKey]
            guard !tunnels.isEmpty || !grants.isEmpty || handsOutKey else { return [] }
            var findings: [Finding] = [
                .ok(
                    Self.what,
                    "tunnels: \(tunnels.map { "\($0.listen)" }.joined(separator: ", ")); grants: \(grants.count)")
            ]
            findings += tunnels.filter { $0.mode == .client && !$0.listen.isUnix }.map {
                .warning(
                    Self.what,
                    "Every user of this host can use the identity at \($0.listen), and every container with its network; use unix:PATH with grants."
                )
            }
            findings += grants.filter(Self.isOfManyUsers).map {
                .warning(
                    Self.what,
                    "\($0.name) (\($0.text)) is a grant to every user that the unit runs programs for; add user:NAME, or another unit."
                )
            }
            findings += handsOutKey ? credentials(grants) : []
            return findings
        } catch { return [.error(Self.what, error)] }
    }

    /// Warns of grants and of a key that give units no credential.
    private func credentials(_ grants: [Grants.Grant]) -> [Finding] {
        var findings = grants.filter { $0.isOfUnit && !$0.selectors.allSatisfy(\.isOfPlace) }.map {
            Finding.warning(
                Self.what,
                "\($0.name) (\($0.text)) gives the unit no credential, which root fetches; name the unit alone.")
        }
        if !grants.contains(where: \.isOfUnit) {
            findings.append(
                .warning(
                    Self.what,
                    "Serve.hand-out-key = true, and no grant names a unit: no unit gets a credential; add Serve.allow.1 = unit:NAME.service."
                ))
        }
        if let stored, stored.key.exporter == nil {
            findings.append(
                .warning(
                    Self.what,
                    "Serve.hand-out-key = true, and the key of '\(stored.certificate.subject)' cannot leave its "
                        + "\(stored.key.location.rawValue): the unit would fail; load NAME.crt, or use the key by PKCS#11."
                ))
        }
        return findings
    }

    /// Units that start programs of their users.
    private static let manyUsers = [
        "anacron", "cron", "crond", "cronie", "atd", "ssh", "sshd", "docker", "containerd", "podman", "crio", "lxc",
        "systemd-nspawn", "apache2", "httpd", "lighttpd", "fcgiwrap", "uwsgi",
    ]

    private static func isOfManyUsers(_ grant: Grants.Grant) -> Bool {
        var (isUnit, hasUser) = (false, false)
        for selector in grant.selectors {
            switch selector {
            case .unit(let place), .cgroup(let place):
                isUnit =
                    isUnit
                    || place.split(separator: "/").contains { part in
                        // A unit of a template: ssh@1.service.
                        manyUsers.contains(String(part.prefix { $0 != "." && $0 != "@" }))
                    }
            case .user: hasUser = true
            case .group: break
            }
        }
        return isUnit && !hasUser
    }
}
