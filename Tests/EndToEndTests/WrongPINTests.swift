import Foundation
import TestSupport
import Testing

/// A wrong PIN in a configuration costs a token one try, however many processes are started with it.
@Suite(.timeLimit(.minutes(20))) struct WrongPINTests {
    @Test(arguments: [.softhsm, .nss, .remote, .tpm, .tabrmd] as [TokenHost.Module])
    func tenProcessesAtOnceSendAWrongPINOnce(module: TokenHost.Module) throws { try sendAtOnce(module) }

    @Test(.enabled(if: TokenHost.runsOpencryptoki, TokenHost.whyNoOpencryptoki))
    func tenProcessesAtOnceSendAWrongPINOnceToOpencryptoki() throws { try sendAtOnce(.opencryptoki) }

    private func sendAtOnce(_ module: TokenHost.Module) throws {
        let host = try TokenHost(module, behind: .spy)
        let keygen = ["keygen", "--label", "x", "--json", "--key-type", module == .opencryptoki ? "rsa2048" : "p256"]
        let wrong = keygen + host.options(pin: host.wrongPIN)
        for output in try host.certprov(wrong, times: 10) {
            try output.expectFailure("pinIncorrect", status: 77)
        }
        #expect(try host.calls(of: "C_Login") == 1)
        // The count of the token itself, if it shows one: NSS counts nothing, and a TPM has no flags. opencryptoki loses its
        // count now and then if another program starts at that moment.
        let expected: [String] = module == .nss || module.isTPM ? [] : ["COUNT_LOW"]
        let flags = try host.contents(logsIn: false).flags
        #expect(flags == expected || module == .opencryptoki && flags.isEmpty)
        if let counter = try host.lockoutCounter() { #expect(counter == 1) }

        // The right one works, and the wrong one is not sent after it either.
        try host.certprov(keygen + host.options(pin: host.pin)).expect()
        try host.certprov(wrong).expectFailure("pinIncorrect", status: 77)
        #expect(try host.calls(of: "C_Login") == 2)
        #expect(try host.contents(logsIn: false).flags.isEmpty)
    }
}
