import CertificateProviding
import Enrolment
import IdentityStore
import ProgramRun
import Logging

/// The files and DNS records of challenges, which outlast this process. Each is written down before it is made, so that the next run
/// removes what a killed one has left.
struct ChallengeJournal: Sendable {
    enum Remains: Codable, Sendable, Equatable {
        case file(String)
        case record(hook: String, name: String, value: String)
    }

    private let environment: ProviderEnvironment
    private let recordName: String
    /// The configured program, which removes what an earlier one has left.
    private let hook: String?

    init(_ settings: ACMESettings, _ environment: ProviderEnvironment) {
        (self.environment, hook) = (environment, settings.dnsHook)
        recordName = "challenges-\(settings.plan.storageName)"
    }

    private struct Contents: Codable {
        static let format = VersionedRecord<Self>(
            of: "challenges in the store", ifDamaged: "remove what a hook has published")
        var remains: [Remains]
    }

    /// Writes down files and records before they are made. Blocks.
    func note(_ new: [Remains]) throws(ProviderError) {
        let known = try remains()
        try store(known + new.filter { !known.contains($0) })
    }

    /// Removes all files and records that are written down. One that cannot be removed stays written down. Blocks, also on programs.
    ///
    /// - Parameter warns: As for ``ChallengeResponder/cleanUp(warns:)``.
    func cleanUp(warns: Bool = true) throws(ProviderError) {
        let before = try remains()
        guard !before.isEmpty else { return }
        let level: Logger.Level = warns ? .warning : .debug
        let left = before.filter { !remove($0, level) }
        if left != before { try store(left) }
    }

    /// - Throws: `storeReadFailed` for a record that a newer version has written. A damaged one names nothing.
    private func remains() throws(ProviderError) -> [Remains] {
        guard let record = try environment.storage.record(named: recordName) else { return [] }
        return try Contents.format.undamagedContent(of: record)?.remains ?? []
    }

    private func store(_ remains: [Remains]) throws(ProviderError) {
        let encoded =
            remains.isEmpty ? SecretBytes(copying: []) : try Contents.format.record(of: Contents(remains: remains))
        try environment.storage.updateRecord(named: recordName) { _ in encoded }
    }

    /// Whether nothing is left of it.
    private func remove(_ one: Remains, _ level: Logger.Level) -> Bool {
        switch one {
        case .file(let path):
            do throws(ProviderError) { try PublishedFile(path: path)?.remove() } catch {
                environment.logger.log(
                    level: level, "the file of a challenge could not be removed; the next run tries again",
                    metadata: [
                        "file": "\(DisplayText.visible(path))", "reason": "\(error.message)",
                    ])
                return false
            }
            return true
        case .record(let noted, let name, let value):
            do throws(ProviderError) { try DNSHook(hook ?? noted).run("remove", name, value) } catch {
                // No configured program will ever remove it.
                let isGivenUp = hook == nil && level == .warning
                environment.logger.log(
                    level: level,
                    """
                    the DNS record of a challenge could not be removed; \
                    \(isGivenUp ? "remove it from its zone yourself" : "the next run tries again")
                    """, metadata: ["record": "\(DisplayText.visible(name))", "reason": "\(error.message)"])
                return isGivenUp
            }
            return true
        }
    }
}

/// The program that publishes DNS records.
struct DNSHook: Sendable {
    /// Name servers take their time, and the program waits for them.
    private static let limit = Duration.seconds(300)
    private let path: String

    init(_ path: String) { self.path = path }

    /// Runs the program. Blocks.
    ///
    /// - Throws: `unavailable` if it cannot be started or fails, with the end of its output; `timedOut`.
    func run(_ verb: String, _ name: String, _ value: String) throws(ProviderError) {
        do throws(ProgramRun.Failure) { try ProgramRun([path, verb, name, value], atMost: Self.limit).run() } catch {
            throw ProviderError(
                error.isTimeout ? .timedOut : .unavailable,
                """
                The program of 'dns-hook', '\(DisplayText.visible(path)) \(verb) \(DisplayText.visible(name)) …', \(error.reason).
                """)
        }
    }
}
