import CertificateProviding
import Glibc
import ProviderTransport

/// The parameters of the key store, checked.
struct TPMSettings: Sendable {
    let tcti: String
    let parent: TPMParent
    let ownerSource: SecretSource?
    let timeout: Duration
    /// The CA for attestation keys, and the file with its trust anchors; `nil` if keys do not attest.
    let attestation: (url: ServerURL, trustAnchors: String)?

    init(_ parameters: Parameters) {
        tcti = parameters[Self.tctiParameter]
        parent = parameters[Self.parentParameter]
        ownerSource = parameters[Self.ownerParameter]
        timeout = parameters[Self.timeoutParameter]
        if let url = parameters[Self.attestationParameter], let anchors = parameters[Self.anchorsParameter] {
            attestation = (url, anchors)
        } else {
            attestation = nil
        }
    }

    /// The TPM in messages.
    var displayName: String { "The TPM at \(tcti)" }

    /// The path of a device; `nil` for a TPM behind a program.
    private static func device(_ tcti: String) -> Substring? {
        tcti.hasPrefix("device:") ? tcti.dropFirst("device:".count) : nil
    }

    /// Refuses a device that is not there, that this process may not open, or that is a file: libtss2 has one error for the first two,
    /// and writes into the last.
    ///
    /// - Throws: `tokenNotPresent`.
    func checkDevice() throws(ProviderError) {
        guard let device = Self.device(tcti).map(String.init) else { return }
        let isOpen = faccessat(AT_FDCWD, device, R_OK | W_OK, AT_EACCESS) == 0
        let reason = errno
        var status = stat()
        if isOpen {
            guard stat(device, &status) == 0, status.st_mode & S_IFMT == S_IFCHR else {
                throw ProviderError(.tokenNotPresent, "\(device) is not the device of a TPM; set KeyStore.tpm.tcti.")
            }
            return
        }
        guard reason == EACCES || reason == EPERM, stat(device, &status) == 0 else {
            throw ProviderError(
                .tokenNotPresent,
                "This host has no TPM at \(device): \(String(cString: strerror(reason))). Enable it in the firmware, or set "
                    + "KeyStore.tpm.tcti.", nativeCode: Int(reason))
        }
        let group = getgrgid(status.st_gid).map { String(cString: $0.pointee.gr_name) } ?? String(status.st_gid)
        let user = getpwuid(geteuid()).map { String(cString: $0.pointee.pw_name) } ?? String(geteuid())
        throw ProviderError(
            .tokenNotPresent,
            "The user '\(user)' may not open the TPM at \(device), which is for the group '\(group)'. Add the user, and log in "
                + "or start the service again: usermod --append --groups \(group) \(user)", nativeCode: Int(reason))
    }

    // MARK: - Parameters

    private static let tctiParameter = Parameter<String>(
        "tcti", .string, absent: "device:/dev/tpmrm0", defaultValue: "device:/dev/tpmrm0",
        summary: "How to reach the TPM: device:PATH, tabrmd:, or swtpm:path=PATH for a software TPM."
    ) { text, _ throws(ParameterProblem) in
        // libtss2 loads a library by the name before the colon, and 'cmd:' runs a program.
        guard text.hasPrefix("device:/") || text.hasPrefix("tabrmd:") || text.hasPrefix("swtpm:") else {
            throw .expected("must be device:PATH with an absolute path, tabrmd: or swtpm:path=PATH")
        }
        if let device = device(text), device.hasPrefix("/dev/tpm"), Int(device.dropFirst("/dev/tpm".count)) != nil {
            throw .expected(
                "is a device without a resource manager, which programs cannot share; use device:/dev/tpmrm0, or tabrmd:"
            )
        }
        return text
    }
    private static let parentParameter = Parameter<TPMParent>(
        "parent", .string, absent: .owner, defaultValue: "the owner's P-256 storage key",
        summary: "The handle of a persistent storage key for new keys, such as 0x81000001."
    ) { text, _ throws(ParameterProblem) in
        guard text.hasPrefix("0x"), let handle = UInt32(text.dropFirst(2), radix: 16),
            let parent = TPMParent(handle: handle)
        else { throw .expected("must be the handle of a persistent key, from 0x81000000 to 0x81ffffff") }
        return parent
    }
    private static let ownerParameter = Parameter<SecretSource?>.secretSource(
        "owner-source", defaultValue: "none",
        summary: "The secret source of the owner authorisation, if the TPM has one.")
    private static let timeoutParameter = Parameter<Duration>.seconds(
        "timeout", default: 60, in: 1...300,
        summary: "How many seconds a caller waits for the TPM. Some take half a minute to make an RSA key.")
    private static let attestationParameter = Parameter<ServerURL?>(
        "attestation-url", .serverURL, defaultValue: "keys do not attest", needs: [.given("attestation-trust-anchors")],
        summary: "URL of the CA that certifies the TPM's attestation key: https:, without 'attest' and 'secret'."
    ) { text, _ throws(ParameterProblem) in
        // The endorsement key is unique to the machine.
        guard let url = ServerURL(text), url.isSecure, url.query == nil else {
            throw .expected("must be an https: URL with a host, and without a user, a query or a fragment")
        }
        return url
    }
    private static let anchorsParameter = ServerParameter.trustAnchors(
        "attestation-trust-anchors", needs: [.given("attestation-url")],
        summary: "PEM file with the CA of that server's TLS certificate.")

    static var parameters: [ParameterDescriptor] {
        [
            tctiParameter.descriptor, parentParameter.descriptor, ownerParameter.descriptor,
            timeoutParameter.descriptor, attestationParameter.descriptor, anchorsParameter.descriptor,
        ]
    }
}
