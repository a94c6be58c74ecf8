import TestSupport
import Testing

/// The tests that run on every module, on opencryptoki: its daemon and state belong to the whole host, so that it runs in
/// namespaces of its own.
@Suite(
    .enabled(
        if: TestModule.canRunOpencryptoki,
        "opencryptoki was not run: its daemon belongs to the whole host, and only root can make namespaces for it"),
    .timeLimit(.minutes(20))) struct OpencryptokiTests
{
    /// Each of the tokens that other modules have at the same time.
    @Test(arguments: TestToken.allCases) func runsTheTestsOfEveryModule(token: TestToken) async throws {
        let tests =
            switch token {
            case .main:
                [
                    "getsItWithThePINOfAFile", "loginAlwaysSignsToo", "withPIN", "eachURIIsOneToConfigure",
                    "theChosenOneIsShownAsStored", "bothSidesHaveATokenIdentity", "aPINInTheURIWorksAndIsReported",
                    "theURIMayNameTheFile", "everySchemeVerifies", "anotherSchemeIsRefused", "manyTasksSignAtOnce",
                ]
            case .closed: ["aPersonMayGiveUp", "loginNeverHasNoKey", "withoutPIN", "loginNeverShowsWhatIsPublic"]
            case .pins: ["aWrongPINIsSentOnce"]
            case .person: ["getsItWithThePINOfAPerson", "aLogoutElsewhereDoesNotStopAService"]
            }
        try await Subprocess.runTests(
            tests, of: "PKCS11TokenProviderTests\\..*/(\(tests.joined(separator: "|")))\\(",
            with: ["CERTPROV_TEST_MODULE=opencryptoki"],
            through: [
                "unshare", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--propagation", "private",
            ])
    }
}
