import CertificateProviding
import PluginKit
import TPMKeyStore

@main struct Main {
    static func main() async { await Plugin(id: ProviderID("tpm"), keyStores: [.tpm]).run() }
}
