import CertificateProviding
import CertprovComposition
import IdentityFiles
import Logon
import Synchronization
import TestSupport
import Testing

@testable import HostService

@Suite struct UnitNoticesTests {
    private let log = TestLog()
    /// Without a pause.
    private let pace = UnitPace(settling: .zero, interval: .zero)
    private let settings: Parameters
    private let identities: [Identity]

    init() throws {
        let directory = try TemporaryDirectory()
        let file = try directory.write(
            "Serve.reload = a.service\nServe.restart = b.service c.service".utf8, to: "a.properties")
        let registry = try ProviderRegistry([], sections: [ServeSection.settings])
        settings = try LogonConfiguration.load(path: file, registry: registry).settings
        let authority = try TestAuthority()
        identities = try (0..<3).map { try authority.issue("\($0)") }
    }

    @Test(arguments: ["Serve.reload", "Serve.restart"])
    func theServiceItselfIsNoSuchUnit(setting: String) throws {
        let directory = try TemporaryDirectory()
        let file = try directory.write("\(setting) = a.service certprov-serve.service".utf8, to: "a.properties")
        let registry = try ProviderRegistry([], sections: [ServeSection.settings])
        let error = #expect(throws: ProviderError.self) {
            _ = try LogonConfiguration.load(path: file, registry: registry)
        }
        #expect(error?.code == .configurationInvalid && error?.message.hasPrefix("\(file):1: ") == true)
    }

    @Test("Units are told of each new certificate but the first, and of none that is the same")
    func newOnes() async {
        let jobs = Mutex<[UnitJob]>([])
        let notices = UnitNotices("web", logger: log.logger, sleep: { _ in }, pace: pace) { job in
            jobs.withLock { $0.append(job) }
        }
        let (updates, next) = AsyncStream<Identity>.makeStream()
        for index in [0, 0, 1, 1, 2] { next.yield(identities[index]) }
        next.finish()
        await notices.follow(updates, isCurrent: { _ in true }) { [settings] in settings }
        let once = [UnitJob(.reload, "a.service"), UnitJob(.restart, "b.service"), UnitJob(.restart, "c.service")]
        #expect(jobs.withLock(\.self) == once + once)
        #expect(notices.failures.isEmpty)
    }

    @Test(
        "A unit that cannot be told is shown, and told again until it is, or there is a newer identity",
        arguments: [true, false])
    func again(isCurrent: Bool) async {
        let jobs = Mutex<[String]>([])
        let shown = Mutex(0)
        let pauses = Mutex(0)
        let notices = Mutex<UnitNotices?>(nil)
        let new = UnitNotices(
            "web", logger: log.logger,
            sleep: { duration in
                guard duration > .zero else { return }
                #expect(duration == .seconds(60))
                pauses.withLock { $0 += 1 }
                shown.withLock { $0 += notices.withLock(\.self)?.failures.count ?? 0 }
            },
            pace: pace
        ) { job throws(ProviderError) in
            let count = jobs.withLock { jobs in
                jobs.append(job.unit)
                return jobs.count
            }
            if job.unit == "b.service", count < 5 { throw ProviderError(.unavailable, "systemd says no.") }
        }
        notices.withLock { $0 = new }
        let (updates, next) = AsyncStream<Identity>.makeStream()
        for index in 0..<2 { next.yield(identities[index]) }
        next.finish()
        await new.follow(updates, isCurrent: { _ in isCurrent }) { [settings] in settings }
        let first = ["a.service", "b.service", "c.service"]
        #expect(jobs.withLock(\.self) == first + (isCurrent ? ["b.service", "b.service"] : []))
        #expect(shown.withLock(\.self) == (isCurrent ? 2 : 1) && pauses.withLock(\.self) == (isCurrent ? 2 : 1))
        #expect(new.failures.isEmpty == isCurrent)
        #expect(log.warnings.count == 1, "\(log.text)")
        notices.withLock { $0 = nil }
    }

    @Test("Identities that are renewed together tell a unit once, and it is left in peace for ten seconds then")
    func together() {
        let time = Mutex(ContinuousClock.now)
        let pace = UnitPace { time.withLock(\.self) }
        let (job, other) = (UnitJob(.restart, "b.service"), UnitJob(.reload, "b.service"))
        #expect(pace.pause(before: job) == .seconds(2))
        #expect(pace.pause(before: job) == nil && pace.pause(before: other) == .seconds(2))
        time.withLock { $0 += .seconds(3) }
        #expect(pace.pause(before: job) == .seconds(9))
        #expect(pace.pause(before: job) == nil)
        time.withLock { $0 += .seconds(60) }
        #expect(pace.pause(before: job) == .seconds(2))
    }
}
