import CertprovSigning

// One import has the kit, the signer, the named key pairs and the requests.
let logon = try CertprovLogon(configuredBy: CommandLine.arguments[1], sections: [.signingRequests])
let identity = try await logon.manager.identity(NoUserInteraction())
let signer = try Signer(
    identity, timeStamps: try TimeStampServer.configured(by: logon.manager.configuration.settings))
print(try await signer.signedPDF(of: []).count, try await logon.namedKeys().list().map(\.name))
