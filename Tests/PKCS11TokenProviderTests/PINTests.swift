import CertificateProviding
import Foundation
import PKCS11TokenProvider
import TestSupport
import Testing

/// The possible sources of the PIN.
@Suite(.timeLimit(.minutes(20))) struct PINTests {
    @Test(arguments: TestModule.installed) func aPINInTheURIWorksAndIsReported(module: TestModule) async throws {
        var setup = try TokenSetup(module, pin: .none)
        setup.uri += "&pin-value=" + TokenFarm.pin
        try await setup.identity().verifyPossession()
        let list = await (try setup.provider()).listIdentities()
        #expect(list.identities.count == 1 && list.failures.isEmpty)
        #expect(list.remarks.contains { $0.contains("'pin-value'") && $0.contains("'pin-source'") }, "\(list.remarks)")
        #expect(setup.log.text.contains("pin-value"))
        #expect(!"\(list.remarks) \(list.identities) \(setup.log.text)".contains(TokenFarm.pin))
    }

    /// A configuration with a login by hand gets one.
    @Test func theParameterGoesBeforeAPINInTheURI() async throws {
        var setup = try TokenSetup(.softhsm, pin: .none).with("pin-source", "prompt")
        setup.uri += "&pin-value=" + TokenFarm.pin
        #expect(
            await failure { try await setup.provider().getCertificate(NoUserInteraction()) }?.code
                == .interactionRequired)
    }

    /// A listing does without a PIN if none is configured. A configured one that cannot be read is an error.
    @Test(arguments: ["env:NOWHERE", "open"]) func aListingSaysWhatIsWrongWithThePINsSource(source: String) async throws
    {
        let folder = try TemporaryDirectory()
        let file = try folder.write("1234".utf8, to: "pin", mode: 0o644)
        let setup = try TokenSetup(.softhsm, pin: .none).with("pin-source", source == "open" ? "file:\(file)" : source)
        let list = await (try setup.provider()).listIdentities()
        #expect(list.failures.map(\.code) == [.configurationInvalid], "\(list)")
    }

    @Test(arguments: TestModule.installed) func theURIMayNameTheFile(module: TestModule) async throws {
        let file = try TokenFarm.shared().file("pin")
        let encoded = file.replacingOccurrences(of: "pin", with: "p%2569n")
        for source in [file, "file:\(file)", "file://\(file)", "file://localhost\(file)", "file://\(encoded)"] {
            var setup = try TokenSetup(module, pin: .none)
            setup.uri += "&pin-source=" + source
            try await setup.identity().verifyPossession()
        }
    }

    /// A vendor's attributes mean something to the vendor.
    @Test(arguments: [
        "pkcs11:token=a;", "pkcs11:token=a;?pin-source=/tmp/pin", "pkcs11:token=a?pin-source=/tmp/pin&vendor-bbb=b",
        "pkcs11:token=a?module-path=/opt/a;b.so", "pkcs11:", "pkcs11:?module-name=softhsm2",
    ])
    func aURIThatIsTaken(uri: String) throws {
        var setup = try TokenSetup(.softhsm, pin: .none)
        setup.uri = uri
        _ = try setup.provider()
    }

    @Test(arguments: [
        "pkcs11:?pin-source=|/bin/echo%201234", "pkcs11:?pin-source=%7c/bin/echo", "pkcs11:?pin-source=relative",
        "1234", "pkcs11:slot-id=0", "pkcs11:token=a;pin-value=1234", "pkcs11:token=a;unknown=1", "pkcs11:token=%zz",
        "http://a",
        "pkcs11:token=a;pin- value=1234", "pkcs11:token=a;pin%2Dvalue=1234", "pkcs11:token=a;PIN-VALUE=1234",
        "pkcs11:token=a&pin-value=1234", "pkcs11:token=a;token=b", "pkcs11:id=%01;object=a;id=%01",
        "pkcs11:token=a?pin-source=/tmp/pin&pin-value=1234", "pkcs11:token=a;type=data", "pkcs11:type=secret-key",
        "pkcs11:token=a;type=public", "pkcs11:?pin-source=file://elsewhere/pin", "pkcs11:?pin-source=file:pin",
        "pkcs11:?pin-source=file:///%25zz", "pkcs11:;token=a", "pkcs11:manufacturer=m;;token=a", "pkcs11:?token=a",
        "pkcs11:token=a?pin-souce=/tmp/pin", "pkcs11:token=a?module-path=/a&id=%01", "pkcs11:token=a?pin=1234",
    ])
    func aURIThatIsRefused(uri: String) throws {
        var setup = try TokenSetup(.softhsm, pin: .none)
        setup.uri = uri
        let error = #expect(throws: ProviderError.self) { try setup.provider() }
        #expect(
            error?.code == .configurationInvalid && error?.message.contains("1234") == false,
            "\(String(describing: error))")
    }

    @Test(arguments: [("login", "perhaps"), ("timeout", "0"), ("delete-objects", "2"), ("pin-source", "1234")])
    func aParameterThatIsRefused(name: String, value: String) throws {
        let error = failure { try TokenSetup(.softhsm, pin: .none).with(name, value).provider() }
        #expect(error?.code == .configurationInvalid && error?.message.contains("1234") == false)
    }
}
