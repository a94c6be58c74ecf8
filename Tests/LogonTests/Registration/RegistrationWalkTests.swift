import CertificateProviding
import CertificateTLS
import Foundation
import IdentityStore
import Logging
import NIOCore
import ProviderTransport
import Synchronization
import TestSupport
import Testing

@testable import Logon

/// Any order of events, with a server that misbehaves, providers that fail, and other processes: a hundred thousand in
/// `make soak`.
@Suite(.endsHosts, .enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(60))) struct RegistrationWalkTests {
    private static let failures: [ProviderError.Code] = [
        .pinIncorrect, .unavailable, .userCancelled, .pending,
    ]

    private enum Event: CaseIterable {
        case register, request, update, unregister, force, lock, unlock, wrongPasscode, changePasscode, restart, other
    }

    @Test("Random events leave registration, server and provider consistent")
    func aThousandEvents() async throws {
        let host = try await RegistrationHost(settings: ["Passcode.max-attempts": "4"])
        let identity = host.identity
        var passcodes = [SecretBytes(utf8: RegistrationHost.passcode), SecretBytes(utf8: "another good passcode")]
        var manager = host.manager
        let other = try host.restarted()
        var isRegistered = false
        var stored = false
        /// The ids of connections that were left without the server's knowledge.
        var abandoned: Set<String> = []
        var current: String?
        /// Whether the server may have removed the connection in an answer that was lost.
        var mayBeGone = false
        var events: [String] = []
        for _ in 0..<TestLength.rounds(600, soak: 100_000) {
            let event = Event.allCases[Int.random(in: 0..<Event.allCases.count)]
            // The fault of this round.
            let fault: PlatformServer.Fault? =
                switch Int.random(in: 0..<10) {
                case 0: .status([401, 403, 404, 409, 500, 503].randomElement() ?? 500)
                case 1: .noAnswer
                case 2: .ignored
                default: nil
                }
            host.server.state.withLock { state in
                let faults = fault.map { Array(repeating: $0, count: Int.random(in: 1...3)) } ?? []
                // A false answer of the server that the connection is gone is believed.
                let isLie = fault == .status(404)
                state.faults = ["POST": faults, "DELETE": isLie ? [] : faults, "GET": faults]
            }
            let providerFails = Int.random(in: 0..<6) == 0
            let code = Self.failures.randomElement() ?? .pending
            host.provider.get { _ throws(ProviderError) in
                if providerFails { throw ProviderError(code, "As told.") }
                return identity
            }
            let deletionFails = Int.random(in: 0..<8) == 0
            host.provider.deletion(deletionFails ? .failure(ProviderError(.deleteFailed, "As told.")) : .success(()))
            host.provider.stored(.success(stored ? identity : nil))
            _ = host.provider.takeCalls()

            let user = event == .other ? other : manager
            var error: ProviderError?
            do throws(ProviderError) {
                switch event {
                case .register: _ = try await user.register(host.person)
                case .request: _ = try await user.request(HTTPRequest(target: "/hello"))
                case .update: _ = try await user.updateCertificate(host.person)
                case .unregister: try await user.unregister(host.person)
                case .force: try await user.unregisterByForce(host.person)
                case .lock: try await user.lock()
                case .unlock: try await user.unlock(passcode: passcodes[0])
                case .wrongPasscode: try await user.unlock(passcode: SecretBytes(utf8: "wrong"))
                case .changePasscode:
                    try await user.changePasscode(from: passcodes[0], to: passcodes[1])
                    passcodes.reverse()
                case .restart: manager = try host.process()
                case .other: try await user.unlock(passcode: passcodes[0])
                }
            } catch let thrown { error = thrown }
            let calls = host.provider.takeCalls()
            events.append("\(event) \(error?.code.rawValue ?? "") \(calls)")
            let context = "\(events.suffix(12))"

            let legal: [[String]] =
                switch event {
                case .register: [[], ["get"]]
                case .request: [[], ["stored"], ["stored", "get"]]
                case .update: [[], ["delete"], ["delete", "get"]]
                case .unregister: [[], ["stored"], ["stored", "delete"]]
                case .force: [[], ["stored", "delete"], ["delete"]]
                case .unlock, .wrongPasscode, .changePasscode, .other:
                    [error?.code == .vaultDestroyed ? ["delete"] : []]
                case .lock, .restart: [[]]
                }
            #expect(legal.contains(calls), "\(context)")
            #expect(error?.code != .internal, "\(context): \(String(describing: error))")
            if calls.contains("get") && !providerFails { stored = true }
            if calls.contains("delete") && !deletionFails { stored = calls.last == "get" && !providerFails }

            if event == .unregister || event == .force { mayBeGone = error != nil }
            if event == .register && error == nil && !isRegistered { mayBeGone = false }
            let was = isRegistered
            switch event {
            case .register: if error == nil { isRegistered = true }
            case .unregister: if error == nil || error?.code == .deleteFailed { isRegistered = false }
            case .force: if error == nil || error?.code == .deleteFailed { isRegistered = false }
            default: if error?.code == .vaultDestroyed { isRegistered = false }
            }
            let state = try await manager.registrationState()
            #expect((state != .notRegistered) == isRegistered, "\(context)")
            if state == .registeredUnlocked {
                let id = try await manager.registeredConnection().description
                #expect(current == nil || current == id || !was, "\(context)")
                current = id
                #expect(mayBeGone || host.server.connections[id] != nil, "\(context)")
            }
            // The remains of an attempt are forgotten, too.
            if event == .force && !was && error == nil { abandoned.formUnion(host.server.connections.keys) }
            if was && !isRegistered {
                // By force, or by the last attempt, the server may not know.
                if event != .unregister { abandoned.formUnion(host.server.connections.keys) }
                current = nil
            }
            let unknown = Set(host.server.connections.keys).subtracting(abandoned)
            #expect(unknown.count <= 1, "\(context)")
            if let current { #expect(unknown.isSubset(of: [current]), "\(context)") }
            if Int.random(in: 0..<200) == 0, !isRegistered {
                abandoned = []
                // A person cleans up; the id of a lost answer is asked for again.
                if unknown.isEmpty {
                    host.server.state.withLock { $0.connections = [:] }
                } else {
                    abandoned.subtract(unknown)
                }
                abandoned.formUnion(Set(host.server.connections.keys).subtracting(unknown))
            }
        }
        #expect(events.contains { $0.hasPrefix("register  ") } && events.contains { $0.hasPrefix("unregister  ") })
    }
}
