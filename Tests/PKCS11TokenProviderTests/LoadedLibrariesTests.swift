import Glibc
import Testing

@testable import PKCS11TokenProvider

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
