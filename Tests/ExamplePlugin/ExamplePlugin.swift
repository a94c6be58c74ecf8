import PKCS12FileProvider
import PluginKit

@main struct Main {
    static func main() async { await Plugin(.pkcs12).run() }
}
