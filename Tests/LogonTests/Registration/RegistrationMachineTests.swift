import Foundation
import Testing

@testable import Logon

/// Every event in every state.
@Suite struct RegistrationMachineTests {
    typealias Machine = RegistrationMachine

    /// The result of a step's effect leads on, and no other event does; a command is always answered.
    @Test("Each state accepts the possible events and no others")
    func everyEventInEveryState() {
        for state in Machine.State.allCases {
            for event in Machine.Event.all {
                let next = Machine.next(state, event)
                let isPossible =
                    switch event {
                    case .command: true
                    case .done, .failed: !state.isAtRest
                    case .destroyed: [.unlocking, .changing, .changingLocked].contains(state)
                    }
                #expect((next != nil) == isPossible, "\(state) \(event)")
                guard let next else { continue }
                if case .command = event, !state.isAtRest {
                    #expect(next == .init(state: state, outcome: .refused(.busy)))
                    continue
                }
                // At rest with an outcome, or in a step with an effect.
                #expect((next.effect == nil) == next.state.isAtRest, "\(state) \(event)")
                #expect((next.outcome == nil) != next.state.isAtRest, "\(state) \(event)")
                if case .refused = next.outcome { #expect(next.state == state, "\(state) \(event)") }
                if event == .failed, let outcome = next.outcome { #expect(outcome == .failure, "\(state)") }
            }
        }
    }

    /// Whatever happens in which order: from each step, every end is reached, and each ends.
    @Test func everyOperationComesToRest() {
        func ends(_ state: Machine.State, _ depth: Int) -> Bool {
            if state.isAtRest { return true }
            guard depth < 8 else { return false }
            return [Machine.Event.done, .failed, .destroyed].allSatisfy { event in
                Machine.next(state, event).map { ends($0.state, depth + 1) } ?? true
            }
        }
        for state in Machine.State.allCases { #expect(ends(state, 0), "\(state)") }
    }

    /// No state is there for nothing.
    @Test func everyStateIsReached() {
        var reached: Set<Machine.State> = [.notRegistered, .locked]
        while true {
            let next = Set(
                reached.flatMap { state in Machine.Event.all.compactMap { Machine.next(state, $0)?.state } })
            if next.isSubset(of: reached) { break }
            reached.formUnion(next)
        }
        #expect(reached == Set(Machine.State.allCases))
    }

    /// The orders of effects of the table in the documentation.
    @Test(
        "Each command has its documented effects in order",
        arguments: [
            (
                Machine.State.notRegistered, Machine.Command.register, Machine.Situation.certificate,
                [Machine.Effect.getCertificate, .writeConnection, .post, .createVault], Machine.State.unlocked
            ),
            (.notRegistered, .register, .password, [.writeConnection, .post, .createVault], .unlocked),
            (.unlocked, .update, .certificate, [.deleteStoredCertificate, .getCertificate], .unlocked),
            (
                .unlocked, .unregister, .certificate,
                [.getStoredCertificate, .delete, .deleteStoredCertificate, .destroyVault], .notRegistered
            ),
            (.unlocked, .unregister, .password, [.delete, .destroyVault], .notRegistered),
            (
                .unlocked, .unregisterByForce, .certificate,
                [.getStoredCertificate, .delete, .deleteStoredCertificate, .destroyVault], .notRegistered
            ),
            (.unlocked, .unregisterByForce, .changed, [.destroyVault], .notRegistered),
            (.locked, .unregisterByForce, .certificate, [.destroyVault, .deleteStoredCertificates], .notRegistered),
            (.locked, .unlock, .certificate, [.unlockVault], .unlocked),
            (.unlocked, .lock, .certificate, [.lockVault], .locked),
        ])
    func effects(
        _ start: Machine.State, _ command: Machine.Command, _ situation: Machine.Situation, _ effects: [Machine.Effect],
        _ end: Machine.State
    ) {
        var (state, event, seen) = (start, Machine.Event.command(command, situation), [Machine.Effect]())
        while let next = Machine.next(state, event) {
            state = next.state
            guard let effect = next.effect else {
                #expect(next.outcome == .success)
                break
            }
            seen.append(effect)
            event = .done
        }
        #expect(seen == effects && state == end)
    }

    @Test func thePictureIsThatOfTheDocumentation() throws {
        let file = URL(filePath: #filePath).deletingLastPathComponent().appending(
            path: "../../../Documentation/Registration.dot")
        // Write it anew: CERTPROV_TEST_PAGES=write.
        if ProcessInfo.processInfo.environment["CERTPROV_TEST_PAGES"] == "write" {
            try Machine.picture.write(to: file, atomically: true, encoding: .utf8)
        }
        #expect(try String(contentsOf: file, encoding: .utf8) == Machine.picture)
    }
}
