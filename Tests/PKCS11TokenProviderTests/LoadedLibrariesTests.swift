import Glibc
import Testing

@testable import PKCS11TokenProvider

/// What opencryptoki loads in `C_Initialize` crashes threads that end after it is unloaded in `C_Finalize`.
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
