import Foundation
import Glibc
import Synchronization
import TestSupport
import Testing

/// Services that sign on sixty-four tasks with one token while it is taken out, its PIN changed, its module ended and they
/// themselves are stopped: they go on by themselves, and nothing fails that was not disturbed.
@Suite(.serialized, .timeLimit(.minutes(90))) struct TokenSoakTests {
    /// In seconds; each disturbance happens once at least.
    private static let length = TestLength.rounds(0, soak: 3600)

    @Test func servicesOutliveWhatHappensToTheirToken() throws {
        let soak = try Soak()
        let start = ContinuousClock.now
        soak.settle()
        let atFirst = soak.services.map(\.status)
        var rounds = 0
        repeat {
            try soak.takeTokenAway()
            try soak.endModules()
            try soak.changePIN()
            // The first two run from the beginning to the end, and show what grows.
            try soak.stopService(2 + rounds % 2)
            rounds += 1
        } while start.duration(to: .now) < .seconds(Self.length)

        #expect(soak.host.logins.rejected == rounds)
        #expect(try soak.host.contents(logsIn: false).flags.isEmpty)
        for (service, before) in zip(soak.services, atFirst).prefix(2) {
            #expect(service.status.descriptors <= before.descriptors + 4, "\(before), \(service.status)")
            // Growth under a sanitizer is the sanitizer's.
            guard ProcessInfo.processInfo.environment["TSAN_OPTIONS"] == nil else { continue }
            #expect(service.status.kilobytes <= before.kilobytes * 3 / 2, "\(before), \(service.status)")
        }
        for service in soak.services { #expect(service.stop() == 0) }
    }
}

/// A token, and the services that use it: half of them through a module in another process.
private final class Soak {
    let host: TokenHost
    private(set) var services: [Service] = []
    private var pins = 0
    private static let library = "/usr/lib/softhsm/libsofthsm2.so"

    init() throws {
        host = try TokenHost(.softhsm, behind: .faults)
        try host.sandbox.shell(
            """
            set -eu
            cd "$HOME"
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -subj /CN=soak -keyout key.pem \
                -outform der -out certificate.der
            openssl pkcs8 -topk8 -nocrypt -in key.pem -out key.p8
            object="--label soak --id 01 --pin $(cat "$1")"
            softhsm2-util --import key.p8 --token host $object
            pkcs11-tool --module "$2" --token-label host --login --type cert --write-object certificate.der $object
            """, host.pin, Self.library, with: host.variables
        ).require()
        let library = host.sandbox.path + "/token/login-faults.so"
        try host.sandbox.write("remote: |p11-kit remote \(library)\n", to: "token/modules/remote.module")
        for module in ["token", "remote", "token", "remote"] { services.append(try Service(host, module)) }
    }

    /// While its directory goes, SoftHSM may read a token without its user PIN, and says that none is set.
    func takeTokenAway() throws {
        try disturb(["tokenNotPresent", "rejected"]) {
            let putBack = try removeToken()
            usleep(.random(in: 0...2_000_000))
            putBack()
        }
    }

    /// The module's process ends in the middle of calls, which fail: at most one of each caller.
    func endModules() throws {
        try disturb(["tokenNotPresent", "unavailable"]) {
            for pid in services.flatMap(\.process.children) { kill(pid, SIGKILL) }
        }
    }

    /// The token has another PIN before the services' file has it, and they have to log in in between.
    func changePIN() throws {
        pins += 1
        let pin = "pin-\(pins)"
        try disturb(["tokenNotPresent", "pinIncorrect", "rejected"]) {
            let former = try String(contentsOfFile: host.pin, encoding: .utf8).trimmingCharacters(in: .newlines)
            try host.sandbox.run(
                [
                    "pkcs11-tool", "--module", Self.library, "--token-label", "host", "--login",
                    "--pin", former, "--change-pin", "--new-pin", pin,
                ], with: host.variables
            ).require()
            let rejected = host.logins.rejected
            let putBack = try removeToken()
            usleep(300_000)
            putBack()
            let end = ContinuousClock.now + .seconds(60)
            while host.logins.rejected == rejected, .now < end { usleep(10_000) }
            usleep(.random(in: 0...1_000_000))
            try host.sandbox.write(pin + "\n", to: "token/new-pin")
            try #require(rename(host.sandbox.path + "/token/new-pin", host.pin) == 0)
        }
    }

    func stopService(_ index: Int) throws {
        try disturb([]) {
            #expect(services[index].stop() == 0)
            services[index] = try Service(host, services[index].module)
        }
    }

    /// Lets something happen that may make calls fail with `codes`, and waits until all services sign again.
    private func disturb(_ codes: Set<String>, _ body: () throws -> Void) throws {
        try body()
        settle(codes)
        // Nothing fails where nothing happens.
        usleep(500_000)
        for service in services { service.takeFailures(allowing: []) }
    }

    func settle(_ codes: Set<String> = []) {
        for service in services {
            let end = ContinuousClock.now + .seconds(60)
            var failures = service.failures.count
            var signatures = service.status.signatures
            var quiet = 0
            // It signs, five times in a row, and nothing fails.
            while quiet < 5, .now < end {
                usleep(250_000)
                let status = service.status
                if service.failures.count > failures { quiet = 0 } else if status.signatures > signatures { quiet += 1 }
                (failures, signatures) = (service.failures.count, status.signatures)
            }
            #expect(quiet == 5, "\(service.module) does not sign any more: \(service.failures.last ?? "")")
            service.takeFailures(allowing: codes)
        }
    }

    /// - Returns: How to put it back.
    private func removeToken() throws -> () -> Void {
        let tokens = host.sandbox.path + "/token/tokens"
        let token = try #require(try FileManager.default.contentsOfDirectory(atPath: tokens).first)
        let (place, away) = ("\(tokens)/\(token)", host.sandbox.path + "/token/away")
        try #require(rename(place, away) == 0)
        return { #expect(rename(away, place) == 0) }
    }
}

/// A ``SigningService`` that soaks.
private final class Service: Sendable {
    struct Status: CustomStringConvertible {
        var signatures = 0, descriptors = 0, kilobytes = 0
        var description: String { "\(signatures) signatures, \(descriptors) descriptors, \(kilobytes) KiB" }
    }

    /// Milliseconds between two signatures of a task. At full length there are none, and the processors are always busy.
    private static let pause = String(TestLength.rounds(200, soak: 0))

    let module: String
    let process: Subprocess
    private let state: Lines

    private final class Lines: Sendable {
        let status = Mutex(Status())
        let failures = Mutex<[String]>([])
    }

    init(_ host: TokenHost, _ module: String) throws {
        let program = URL(filePath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent()
            .appending(path: "SigningService").path
        var variables = host.sandbox.environment.merging(host.variables) { $1 }
        // A sanitizer's.
        let preloaded = ProcessInfo.processInfo.environment["LD_PRELOAD"]
        variables["LD_PRELOAD"] = [preloaded, variables["LD_PRELOAD"]].compactMap(\.self).joined(separator: ":")
        let uri = "pkcs11:token=host;object=soak?module-name=\(module)"
        let process = try Subprocess(
            variables.map { "\($0)=\($1)" } + [program, "soak", uri, host.pin, host.sandbox.store, Self.pause])
        let state = Lines()
        (self.module, self.process, self.state) = (module, process, state)
        try #require(process.readLine() == "ready")
        Thread.detachNewThread {
            while let line = process.readLine() {
                let words = line.split(separator: " ")
                if words.first == "status", words.count == 4 {
                    let numbers = words.dropFirst().compactMap { Int($0) }
                    state.status.withLock {
                        $0 = Status(signatures: numbers[0], descriptors: numbers[1], kilobytes: numbers[2])
                    }
                } else {
                    state.failures.withLock { $0.append(line) }
                }
            }
            let status = process.wait(seconds: 1).map(String.init)
            state.failures.withLock { $0.append("service ended with status \(status ?? "none")") }
        }
    }

    var status: Status { state.status.withLock { $0 } }
    var failures: [String] { state.failures.withLock { $0 } }

    /// Expects that no others than these have come.
    func takeFailures(allowing codes: Set<String>) {
        let failures = state.failures.withLock { failures in
            defer { failures = [] }
            return failures
        }
        let others = failures.filter { !codes.contains(String($0.split(separator: " ").dropFirst().first ?? "")) }
        #expect(others.isEmpty, "\(module): \(others.count) of \(failures.count): \(others.first ?? "")")
    }

    /// - Returns: Its status.
    func stop() -> Int32? {
        process.send(SIGTERM)
        return process.wait(seconds: 30)
    }
}
