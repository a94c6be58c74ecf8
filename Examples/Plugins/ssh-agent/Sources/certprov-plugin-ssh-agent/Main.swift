import CertificateProviding
import PluginKit
import SSHAgentKeyStore

@main struct Main {
    static func main() async {
        await Plugin(id: ProviderID("ssh-agent"), keyStores: [SSHAgentKeyStore.descriptor]).run()
    }
}
