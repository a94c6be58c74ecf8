package import CertificateProviding
import FoundationEssentials

/// The applications that may ask for signatures, and how requests are approved: the section `Signing.` of the property file.
package struct RequestRegistry: Sendable {
    /// An application that may ask.
    package struct Client: Sendable {
        package var number: UInt32
        /// The name that the person sees.
        package var name: String
        package var key: SecretBytes
        package var operations: Set<SigningOperation>
        /// The schemes, in lower case, that the URL handler opens.
        package var returnSchemes: Set<String>
        /// The operations that need no person.
        package var unattended: Set<SigningOperation>
        package var unattendedPerHour: Int

        package init(
            number: UInt32, name: String, key: SecretBytes, operations: Set<SigningOperation>,
            returnSchemes: Set<String> = [], unattended: Set<SigningOperation> = [], unattendedPerHour: Int = 60
        ) {
            self.number = number
            self.name = name
            self.key = key
            self.operations = operations
            self.returnSchemes = returnSchemes
            self.unattended = unattended
            self.unattendedPerHour = unattendedPerHour
        }
    }

    package var clients: [UInt32: Client] = [:]
    /// The maximum size of a document, in bytes.
    package var maximumDocument = 32 << 20
    /// The person's code; `nil` for the serial number of the certificate's subject.
    package var userCode: String?
    package var approvalTimeout = Duration.seconds(120)
    /// Whether signatures of documents get a time stamp.
    package var hasTimeStamp = false

    /// The operations that any client may ask for.
    package var operations: Set<SigningOperation> { clients.values.reduce(into: []) { $0.formUnion($1.operations) } }

    /// Whether a request needs a person.
    package var asksPerson: Bool { clients.values.contains { !$0.operations.isSubset(of: $0.unattended) } }

    package init(_ clients: [Client] = []) {
        for client in clients { self.clients[client.number] = client }
    }
}

extension RequestRegistry {
    /// Reads the section, and the keys of the clients.
    ///
    /// - Parameter path: The property file, which others must not be able to change if it permits unattended approval.
    /// - Throws: `configurationInvalid`, and errors of the keys' sources.
    package init(_ settings: Parameters, secrets: SecretReader, path: String?) throws(ProviderError) {
        maximumDocument = settings[RequestSettings.maximumDocument]
        userCode = settings[RequestSettings.userCode]
        approvalTimeout = settings[RequestSettings.approvalTimeout]
        hasTimeStamp = settings[RequestSettings.timeStampURL].map { $0 != RequestSettings.noTimeStamp } ?? false
        for member in settings.members(of: RequestSettings.name) {
            guard let number = UInt32(exactly: member) else {
                throw settings.invalid(
                    RequestSettings.name.of(member), "has a number over 4294967295, the highest of a client")
            }
            let operations = settings[RequestSettings.operations.of(member)]
            if operations.contains(.signPDF), settings[RequestSettings.timeStampURL] == nil {
                throw settings.invalid(
                    RequestSettings.operations.of(member),
                    "has sign-pdf, which needs Signing.time-stamp-url: a server, or none")
            }
            let keySource = RequestSettings.keySource.of(member)
            let key = try settings.reading(keySource) { () throws(ProviderError) in
                try secrets.read(settings[keySource])
            }
            guard key.count > 0 else { throw settings.invalid(keySource, "names an empty key") }
            let unattended = settings[RequestSettings.approval.of(member)].intersection(operations)
            if !unattended.isEmpty, let reason = path.flatMap(Self.mistrust) {
                throw settings.invalid(
                    RequestSettings.approval.of(member),
                    "permits signatures without a person, and \(reason.withVisibleControls); or use ask")
            }
            clients[number] = Client(
                number: number, name: settings[RequestSettings.name.of(member)], key: key, operations: operations,
                returnSchemes: settings[RequestSettings.returnSchemes.of(member)], unattended: unattended,
                unattendedPerHour: settings[RequestSettings.unattendedPerHour.of(member)])
        }
    }

    /// Why users other than this one and root may change a file, or put another one in its place: a clause with the next step. `nil` if
    /// they may not.
    private static func mistrust(_ path: String) -> String? {
        let path = path.hasPrefix("/") ? path : FileManager.default.currentDirectoryPath + "/" + path
        do throws(TrustedPath.Refusal) {
            return try TrustedPath.check(path, .file) ? nil : "\(path) does not exist"
        } catch { return error.reason }
    }
}
