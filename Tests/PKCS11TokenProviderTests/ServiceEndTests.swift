import Foundation
import Glibc
import TestSupport
import Testing

@testable import PKCS11TokenProvider

/// A service that signs on many threads, and is stopped in the middle of it.
///
/// Libraries take apart at the end of the process what threads inside them are using.
@Suite(.serialized, .timeLimit(.minutes(60))) struct ServiceEndTests {
    private static let rounds = TestLength.rounds(8, soak: 200)

    private static var program: String {
        URL(filePath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent()
            .appending(path: "SigningService").path
    }

    @Test(
        .enabled(if: TestModule.installed.contains(.softhsm), "SoftHSM is not installed"),
        arguments: ["shutdown", "exit"])
    func aServiceThatIsStoppedEndsInOrder(way: String) throws {
        let farm = try TokenFarm.shared()
        let module = TestModule.softhsm
        let uri = "pkcs11:token=\(module.label(.main));object=p256"
        for round in 0..<Self.rounds {
            let service = try Subprocess([Self.program, module.library, uri, farm.file("pin"), way])
            try #require(service.readLine() == "ready", "round \(round)")
            service.send(SIGTERM)
            let status = service.wait(seconds: 600)
            try #require(
                status == 0, "round \(round): \(status.map(String.init) ?? "no end"), \(service.readLine() ?? "")")
        }
    }
}

/// The libraries that opencryptoki loads in `C_Initialize` crash threads that end after they are unloaded in `C_Finalize`.
@Suite struct LoadedLibrariesTests {
    private static let library = "libitm.so.1"

    @Test
    func aLibraryOutlastsThoseWhoClosedIt() throws {
        let handle = try #require(dlopen(Self.library, RTLD_LAZY))
        LoadedLibraries.keep()
        dlclose(handle)
        let again = dlopen(Self.library, RTLD_LAZY | RTLD_NOLOAD)
        #expect(again != nil)
        again.map { _ = dlclose($0) }
    }
}
