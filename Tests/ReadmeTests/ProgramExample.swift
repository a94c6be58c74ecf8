import CertprovKit
import Terminal

let courierServer = Parameter<String?>.string("Courier.server", summary: "The server of the parcels.")
let courierSettings = SettingsSection(title: "Courier", namespaces: ["Courier."], [courierServer.descriptor])

func deliver(configuredBy file: String?) async -> ExitStatus {
    do throws(ProviderError) {
        let logon = try CertprovLogon(configuredBy: PropertyFile.path(named: file), sections: [courierSettings])
        let terminal = TerminalInteraction()
        let identity = try await logon.manager.identity(terminal)
        let server = logon.manager.configuration.settings[courierServer] ?? "localhost"
        guard try await terminal.confirm("Deliver to \(server) as \(identity.certificate.subject)?") else { return .no }

        let own = try logon.manager.environment(of: ProviderID("courier_"))
        try own.storage.updateRecord(named: "last") { _ in SecretBytes(utf8: server) }
        await logon.manager.shutdown()
        return .done
    } catch {
        Console.report(error, of: "courier", json: false)
        return ExitStatus(error.code)
    }
}
