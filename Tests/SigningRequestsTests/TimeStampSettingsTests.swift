import CertificateProviding
import Signing
import SigningRequests
import Testing

@Suite struct TimeStampSettingsTests {
    @Test("A program that does not declare the section gets an error, and no signature without its time stamp")
    func theSectionMustBeDeclared() throws {
        let error = try #require(throws: ProviderError.self) { try TimeStampServer.configured(by: Parameters()) }
        #expect(error.code == .internal && error.message.contains("SettingsSection.signingRequests"))
        let declared = try Parameters(
            ProviderParameters(), of: SettingsSection.signingRequests.settings.filter { !$0.isOfGroup }, .propertyFile,
            keyStores: .none)
        #expect(try TimeStampServer.configured(by: declared) == nil)
    }
}
