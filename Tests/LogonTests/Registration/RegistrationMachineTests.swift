import Foundation
import Testing

@testable import Logon

/// The picture of a registration's states. `StateTableTests` shows the machine from outside.
@Suite struct RegistrationMachineTests {
    typealias Machine = RegistrationMachine

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
