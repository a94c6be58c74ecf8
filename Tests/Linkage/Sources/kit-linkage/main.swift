import CertprovKit

let logon = try CertprovLogon(configuredBy: CommandLine.arguments[1])
print(try await logon.credentials().current.identity.certificate.subject)
