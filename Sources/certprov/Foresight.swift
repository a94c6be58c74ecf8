import CertificateProviding
import CertprovCommand
import Glibc
import RemoteMDMParameters

extension FullCommand {
    /// Whether the command line or the property file speaks of the provider that only that program has.
    ///
    /// A guess, so that neither is parsed here and then there again. A wrong one does no harm: that program does all
    /// that this one does, and this one hands over anyway when it comes to a provider that it lacks.
    static var isForeseen: Bool {
        let words = CommandLine.arguments.dropFirst()
        guard let command = words.first, ["fetch", "renew", "list", "check", "explain", "delete"].contains(command)
        else { return false }
        let id = RemoteMDMParameters.id.rawValue
        if let provider = value(of: "--provider", in: words) { return provider == id }
        let path = ConfigurationLookup.path(named: value(of: "--config", in: words)) { name in
            getenv(name).map { String(cString: $0) }
        }
        return path.map { file($0, hasLineWith: "CertificateProvider.\(id).") } ?? false
    }

    private static func value(of option: String, in words: ArraySlice<String>) -> String? {
        guard let place = words.firstIndex(where: { $0 == option || $0.hasPrefix(option + "=") }) else { return nil }
        let word = words[place]
        return word == option
            ? words.dropFirst(place - words.startIndex + 1).first : String(word.dropFirst(option.count + 1))
    }

    /// Looks at a regular file only: what is in a pipe can be read but once, and to open and close one ends its writer.
    private static func file(_ path: String, hasLineWith text: String) -> Bool {
        var status = stat()
        guard stat(path, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return false }
        let descriptor = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        var bytes = [UInt8](repeating: 0, count: 1 << 16)
        let count = read(descriptor, &bytes, bytes.count)
        return bytes.prefix(max(0, count)).split(separator: 0x0a).contains { $0.starts(with: text.utf8) }
    }
}
