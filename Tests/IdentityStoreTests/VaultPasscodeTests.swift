import CertificateProviding
import Foundation
import Glibc
import TestSupport
import Testing

@testable import IdentityStore

/// Which passcodes open a vault, and how often one may try.
@Suite struct VaultPasscodeTests: VaultTesting {
    let directory: TemporaryDirectory
    let disk = FaultyDisk()

    init() throws { directory = try TemporaryDirectory() }

    @Test func wrongPasscodesCountUntilTheyDestroy() throws {
        let vault = try vault { $0.maximumAttempts = 3 }
        try vault.create(passcode: passcode)
        try vault.storage(for: test).setEntry(try Samples.stored("app"), named: "entry")
        let copies = try copy()
        vault.lock()
        let first = try error { try vault.unlock(wrong) }
        #expect(first.code == .wrongPassword && first.message.contains("2 more wrong ones"), "\(first)")
        #expect(try vault.attemptsLeft() == 2)
        #expect(try error { try vault.unlock(wrong) }.message.contains("1 more wrong one."))
        // The right one begins anew.
        try vault.unlock(passcode)
        #expect(try vault.attemptsLeft() == 3)
        vault.lock()
        #expect(try code { try vault.unlock(nil) } == .vaultLocked, "Nothing is tried.")
        for code in [ProviderError.Code.wrongPassword, .wrongPassword, .vaultDestroyed] {
            #expect(try self.code { try vault.unlock(wrong) } == code)
        }
        #expect(try vault.state() == .none && vault.attemptsLeft() == 3)
        #expect(
            directory.contents() == [
                "state", "state/applications", "state/applications/app", "state/applications/app/.lock",
            ])
        #expect(try code { try vault.unlock(passcode) } == .notFound)
        #expect(!copies.isEmpty)
        // A new vault has another key.
        try vault.create(passcode: passcode)
        #expect(try vault.storage(for: test).entry(named: "entry") == nil)
    }

    /// Passcodes that were wrong under another policy do not destroy: one attempt is left at least.
    @Test(arguments: [0, -1, 20]) func aLimitThatIsLoweredLeavesAnAttempt(former: Int) throws {
        let vault = try vault { $0.maximumAttempts = former }
        try vault.create(passcode: passcode)
        vault.lock()
        for _ in 0..<12 { #expect(try code { try vault.unlock(wrong) } == .wrongPassword) }
        try self.vault().unlock(passcode)
        for _ in 0..<12 { #expect(try code { try vault.unlock(wrong) } == .wrongPassword) }
        #expect(try code { try self.vault().unlock(wrong) } == .vaultDestroyed)
    }

    /// With the right passcode, a disk that fails afterwards does not matter.
    @Test func aSuccessIsOneWhateverFailsAfterwards() throws {
        let vault = try vault()
        try vault.create(passcode: passcode)
        for position in 1..<6 {
            vault.lock()
            disk.fail(.synchronize, at: position, with: EIO)
            var failure: ProviderError?
            do throws(ProviderError) { try vault.unlock(passcode) } catch { failure = error }
            disk.repair()
            // The first is that of the counter before the attempt.
            #expect((failure != nil) == (position <= 1), "at \(position): \(String(describing: failure))")
            try vault.unlock(passcode)
            #expect(try vault.attemptsLeft() == 10)
        }
    }

    @Test func theLimitMayBeOff() throws {
        let vault = try vault { $0.maximumAttempts = 0 }
        try vault.create(passcode: passcode)
        vault.lock()
        for _ in 0..<30 { #expect(try code { try vault.unlock(wrong) } == .wrongPassword) }
        #expect(try vault.attemptsLeft() == nil)
        try vault.unlock(passcode)
    }

    @Test func aPasscodeIsChanged() throws {
        let (vault, new) = (try vault(), SecretBytes(utf8: "battery staple"))
        try vault.create(passcode: passcode)
        try vault.setValue(passcode, named: "value")
        #expect(try code { try vault.changePasscode(from: wrong, to: new) } == .wrongPassword)
        #expect(try vault.attemptsLeft() == 9)
        #expect(
            try code { try vault.changePasscode(from: passcode, to: SecretBytes(utf8: "short")) }
                == .configurationInvalid)
        #expect(try vault.attemptsLeft() == 9, "Nothing is tried.")
        let other = try self.vault()
        try other.unlock(passcode)
        try vault.changePasscode(from: passcode, to: new)
        // It has the same key.
        #expect(try other.state() == .unlocked && other.value(named: "value") == passcode)
        let later = try self.vault()
        #expect(try code { try later.unlock(passcode) } == .wrongPassword)
        try later.unlock(new)
        #expect(try later.value(named: "value") == passcode)
    }

    @Test func aPasscodeExpires() throws {
        let (set, days) = (Date(timeIntervalSince1970: 1e9), 30.0 * 86400)
        try vault(now: set).create(passcode: passcode)
        #expect(try !vault(now: set + days) { $0.validDays = 30 }.isPasscodeExpired())
        let late = try vault(now: set + days + 1) { $0.validDays = 30 }
        #expect(try late.isPasscodeExpired())
        // A service comes back all the same.
        try late.unlock(passcode)
        try late.changePasscode(from: passcode, to: SecretBytes(utf8: "battery staple"))
        #expect(try !late.isPasscodeExpired())
        // The clock was wrong when it was set.
        #expect(try vault(now: set - 2 * 86400) { $0.validDays = 30 }.isPasscodeExpired())
    }

    @Test func aVaultMayHaveNoPasscodeWhereThePolicyPermitsIt() throws {
        #expect(try code { try self.vault().create(passcode: nil) } == .configurationInvalid)
        let vault = try self.vault { $0.allowsDefault = true }
        try vault.create(passcode: nil)
        try vault.setValue(passcode, named: "value")
        let later = try self.vault()
        #expect(try later.hasNoPasscode() && later.state() == .locked)
        #expect(try code { try later.unlock(passcode) } == .operationNotAllowed)
        try later.unlock(nil)
        #expect(try later.value(named: "value") == passcode && later.attemptsLeft() == 10)
        try later.changePasscode(from: nil, to: passcode)
        #expect(try code { try self.vault().unlock(nil) } == .vaultLocked)
    }

    @Test("An empty passcode costs no attempt")
    func anEmptyPasscodeCostsNoAttempt() throws {
        let (vault, empty) = (try vault(), SecretBytes(utf8: ""))
        try vault.create(passcode: passcode)
        vault.lock()
        for isAutomatic in [false, true] {
            let error = try error { try vault.unlock(empty, isAutomatic: isAutomatic) }
            #expect(error.code == .wrongPassword && error.message.contains("costs no attempt"), "\(error)")
        }
        #expect(try code { try vault.changePasscode(from: empty, to: passcode) } == .wrongPassword)
        #expect(try vault.attemptsLeft() == 10)
    }

    @Test("A least length of 0 admits no empty passcode, unless there may be none")
    func noLeastLengthAdmitsNoEmptyPasscode() throws {
        let empty = SecretBytes(utf8: "")
        let error = try error { try self.vault { $0.minimumLength = 0 }.create(passcode: empty) }
        #expect(error.code == .configurationInvalid && error.message.contains("1 character."), "\(error)")
        try vault { $0.minimumLength = 0 }.create(passcode: SecretBytes(utf8: "x"))
        let open = try vault("open") { ($0.minimumLength, $0.allowsDefault) = (0, true) }
        try open.create(passcode: empty)
        open.lock()
        try open.unlock(empty)
        // A length that is demanded later does not lock it out.
        let later = try vault("open") { $0.minimumLength = 8 }
        #expect(try code { try later.unlock(wrong) } == .wrongPassword)
        try later.unlock(empty)
        #expect(try later.attemptsLeft() == 10)
    }

    /// The passcode is known only then.
    @Test func weakParametersAreRaisedAtTheNextUnlock() throws {
        let stronger = ScryptParameters(logarithmOfCost: 4, blockSize: 2, parallelism: 1)
        let set = Date(timeIntervalSince1970: 1e9)
        try vault(now: set).create(passcode: passcode)
        #expect(try code { try vault(parameters: stronger).unlock(wrong) } == .wrongPassword)
        #expect(try storedKey().parameters == Self.cheap)
        try vault(now: set + 5, parameters: stronger).unlock(passcode)
        #expect(try storedKey().parameters == stronger && storedKey().passcodeSetAt == set)
        // Not lowered.
        try vault().unlock(passcode)
        #expect(try storedKey().parameters == stronger)
    }

    /// Each command unlocks it.
    @Test func withoutAPasscodeNoTimeIsSpentOnGuessing() throws {
        let costly = ScryptParameters(logarithmOfCost: 4, blockSize: 2, parallelism: 1)
        func vault() throws -> DataVault { try self.vault(parameters: costly) { $0.allowsDefault = true } }
        try vault().create(passcode: nil)
        for _ in 0..<2 {
            #expect(try storedKey().parameters == Self.cheap)
            try vault().unlock(nil)
        }
        try vault().changePasscode(from: nil, to: passcode)
        #expect(try storedKey().parameters == costly)
        try vault().changePasscode(from: passcode, to: nil)
        #expect(try storedKey().parameters == Self.cheap)
    }

    @Test func demandsTighten() throws {
        var demands = PasscodeDemands()
        (demands.minimumLength, demands.needsDigit, demands.maximumAttempts) = (12, true, 2)
        func create(_ vault: DataVault, _ text: String?) throws {
            try vault.create(
                passcode: text.map { SecretBytes(utf8: $0) }, records: [:], of: test,
                terms: VaultTerms(demands: demands))
        }
        let vault = try vault()
        let weak = try error { try create(vault, "correct horse") }
        #expect(weak.code == .configurationInvalid && weak.message.contains("a digit"), "\(weak)")
        #expect(weak.message.contains("platform server") && !weak.message.contains("12 characters"), "\(weak)")
        let own = try error { try create(vault, "short") }
        #expect(own.message.contains("8 characters") && !own.message.contains("platform server"), "\(own)")
        #expect(try vault.state() == .none)
        try create(vault, "correct horse 1")
        #expect(try vault.attemptsLeft() == 2)
        #expect(
            try code { try vault.changePasscode(from: SecretBytes(utf8: "correct horse 1"), to: passcode) }
                == .configurationInvalid)
        #expect(try vault.attemptsLeft() == 2)
        try vault.changePasscode(from: SecretBytes(utf8: "correct horse 1"), to: SecretBytes(utf8: "correct horse 2"))
        vault.lock()
        #expect(try code { try vault.unlock(wrong) } == .wrongPassword)
        #expect(try code { try self.vault().unlock(wrong) } == .vaultDestroyed)
    }

    @Test func demandsNeverLoosen() {
        var (policy, demands) = (PasscodePolicy(), PasscodeDemands())
        policy.needsSpecial = true
        (policy.validDays, policy.maximumAttempts) = (30, 5)
        #expect(policy.tightened(by: nil) == policy && policy.tightened(by: demands) == policy)
        (demands.minimumLength, demands.minimumUniqueCharacters) = (1, 0)
        (demands.needsSpecial, demands.needsDigit, demands.allowsDefault) = (false, false, true)
        (demands.validDays, demands.maximumAttempts) = (0, 0)
        #expect(policy.tightened(by: demands) == policy)
        (demands.validDays, demands.maximumAttempts) = (60, 10)
        #expect(policy.tightened(by: demands) == policy)
        (demands.validDays, demands.maximumAttempts) = (7, 3)
        let tightened = policy.tightened(by: demands)
        #expect(tightened.validDays == 7 && tightened.maximumAttempts == 3)
        (policy.validDays, policy.maximumAttempts, policy.allowsDefault) = (0, 0, true)
        demands.allowsDefault = false
        let limited = policy.tightened(by: demands)
        #expect(limited.validDays == 7 && limited.maximumAttempts == 3 && !limited.allowsDefault)
    }

    @Test func theFactorIsNeededBesidesThePasscode() throws {
        let factor = SecretBytes(copying: Array(0..<32))
        let key = KeyReference(publicKey: try Samples.identity("app").key.publicKey, uri: "test:key")
        let terms = VaultTerms(
            wrapping: VaultKeyWrapping(factor, key: key, scheme: "test", ciphertext: [1, 2, 3]))
        let vault = try vault { $0.maximumAttempts = 2 }
        try vault.create(passcode: passcode, records: [:], of: test, terms: terms, factor: factor)
        #expect(try vault.terms()?.wrapping?.key.uri == "test:key")
        vault.lock()
        // Without the right factor no attempt is made.
        for _ in 0..<4 {
            let missing = try error { try vault.unlock(passcode) }
            #expect(missing.code == .vaultLocked && missing.message.contains("test:key"), "\(missing)")
            #expect(try code { try vault.unlock(passcode, factor: passcode, isAutomatic: false) } == .storeReadFailed)
        }
        #expect(try vault.attemptsLeft() == 2)
        try vault.unlock(passcode, factor: factor, isAutomatic: false)
        let new = SecretBytes(utf8: "another horse")
        try vault.changePasscode(from: passcode, to: new, factor: factor, isAutomatic: false)
        vault.lock()
        #expect(try code { try vault.unlock(new) } == .vaultLocked)
        try vault.unlock(new, factor: factor, isAutomatic: true)
        vault.lock()
        #expect(try code { try vault.unlock(wrong, factor: factor, isAutomatic: false) } == .wrongPassword)
        #expect(try code { try vault.unlock(wrong, factor: factor, isAutomatic: false) } == .vaultDestroyed)
    }
}
