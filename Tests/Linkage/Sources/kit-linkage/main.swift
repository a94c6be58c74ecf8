import CertprovKit

let logon = try CertprovLogon(configuredBy: CommandLine.arguments[1])
print(try await logon.tls().identity.certificate.subject)
