import CertificateProviding
import CertprovComposition
import FoundationEssentials
import Glibc
import IdentityStore
import Logon

/// Checks that the challenges of an enrolment can be answered: by this user, and by the unit that the timer starts, which may do less.
/// Opens no port, and writes nothing.
struct ChallengeCheck {
    private let id: ProviderID
    private let needs: (port: (number: Int, parameter: String, holder: String?)?, documentRoot: String?, hook: String?)
    private let unit: RenewalUnit?

    /// `nil` for a provider without challenges, and for a configuration whose mistakes show elsewhere.
    init?(_ configured: ConfiguredProvider, _ manager: LogonManager) {
        guard let needs = try? BuiltIns.hostNeeds(of: configured, for: manager) else { return nil }
        (id, self.needs) = (configured.id, needs)
        unit = manager.configuration.path.flatMap { RenewalUnit.renewing(Self.absolute($0)) }
    }

    private static func absolute(_ path: String) -> String {
        path.hasPrefix("/") ? path : FileManager.default.currentDirectoryPath + "/" + path
    }

    func run() -> [Finding] {
        var findings: [Finding] = []
        if let (number, parameter, holder) = needs.port { findings += port(number, "\(id) \(parameter)", holder) }
        if let root = needs.documentRoot { findings += documentRoot(root, "\(id) http-root") }
        if let hook = needs.hook { findings += self.hook(hook, "\(id) dns-hook") }
        return findings
    }

    private func failed(_ what: String, _ text: String) -> Finding {
        .error(what, ProviderError(.configurationInvalid, text))
    }

    private func port(_ number: Int, _ what: String, _ holder: String?) -> [Finding] {
        var findings: [Finding] = []
        if let holder {
            findings.append(
                .warning(
                    what,
                    "\(holder) has port \(number), which an enrolment needs while the server looks. For a web server, set "
                        + "'http-root' to its document root."))
        }
        guard number < Self.firstFreePort else { return findings }
        if let unit, case let missing = unit.missingForReservedPort, !missing.isEmpty {
            findings.append(unit.finding(what, "may not open port \(number)", missing, page: "ACME"))
        } else if unit == nil, !Capability.bindReservedPorts.isEffective {
            findings.append(
                .warning(
                    what,
                    "This user may not open port \(number) (CAP_NET_BIND_SERVICE). Set 'http-root', or run the renewal with that right."
                ))
        } else if findings.isEmpty {
            findings.append(.ok(what, "\(unit?.name ?? "this user") may open port \(number)"))
        }
        return findings
    }

    /// Lower ports are for processes with CAP_NET_BIND_SERVICE.
    private static var firstFreePort: Int {
        FileManager.default.contents(atPath: "/proc/sys/net/ipv4/ip_unprivileged_port_start")
            .flatMap { Int(String(decoding: $0, as: UTF8.self).filter(\.isNumber)) } ?? 1024
    }

    private func documentRoot(_ root: String, _ what: String) -> [Finding] {
        let root = Self.absolute(root)
        do throws(SafeDirectory.Refusal) {
            // The deepest of the directories that exists is written to.
            var found: (path: String, directory: ReachedDirectory)?
            for path in [root, root + "/.well-known", root + "/.well-known/acme-challenge"] {
                guard let directory = try ReachedDirectory.open(path) else { break }
                found = (path, directory)
            }
            guard let (path, directory) = found else {
                return [
                    failed(
                        what,
                        "\(root.withVisibleControls) does not exist. Set it to the document root of the web server.")
                ]
            }
            if let unit {
                var status = stat()
                let isKnown = fstat(directory.descriptor, &status) == 0
                let mayWrite = !isKnown || unit.mayWrite(owner: status.st_uid, mode: status.st_mode)
                let missing = unit.missingToWrite(below: path)
                if !missing.isEmpty || !mayWrite {
                    let place =
                        path.withVisibleControls + (mayWrite ? "" : ", which belongs to the user \(status.st_uid)")
                    let step = "install -d -o root " + (root + "/.well-known/acme-challenge").shellQuoted
                    return [
                        unit.finding(
                            what, "may not write to \(place)", missing, page: "ACME",
                            step: mayWrite ? "" : " Run: \(step)")
                    ]
                }
            } else if faccessat(directory.descriptor, ".", W_OK | X_OK, AT_EACCESS) != 0 {
                return [
                    .warning(
                        what,
                        "This user may not write to \(path.withVisibleControls): \(errorText(errno)).")
                ]
            }
            return [.ok(what, "\(unit?.name ?? "this user") may write to \(path.withVisibleControls)")]
        } catch { return [failed(what, "\(error.reason.withVisibleControls).")] }
    }

    private func hook(_ path: String, _ what: String) -> [Finding] {
        guard access(path, X_OK) == 0 else {
            return [
                failed(
                    what,
                    "\(path.withVisibleControls) cannot be executed: \(errorText(errno)). Install the program, or correct the line."
                )
            ]
        }
        do throws(TrustedPath.Refusal) { _ = try TrustedPath.check(Self.absolute(path), .program) } catch {
            return [.warning(what, "\(error.reason.withVisibleControls).")]
        }
        return [.ok(what, path.withVisibleControls)]
    }
}
