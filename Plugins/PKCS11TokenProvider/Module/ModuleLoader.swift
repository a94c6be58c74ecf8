import CP11Kit
import CertificateProviding
import Glibc

/// Finds the modules that a URI asks for, so that no other is initialised: some take seconds, and some print.
enum ModuleLoader {
    /// Returns the modules, loaded and not yet initialised.
    ///
    /// - Parameters:
    ///   - path: The module's library, where the configuration names it; otherwise the URI's `module-path`, its
    ///     `module-name`, or all that p11-kit is configured with.
    ///   - timeout: Of calls.
    /// - Throws: `unavailable` when p11-kit itself fails or no such module is configured; `fileNotFound`.
    static func modules(
        for uri: TokenURI, path: String?, timeout: Duration
    ) throws(CertificateProviderError) -> [WantedModule] {
        let handles: ModuleHandles
        if let path = path ?? uri.modulePath {
            handles = try load(path)
        } else {
            guard let list = p11_kit_modules_load(nil, 0) else {
                throw CertificateProviderError(.unavailable, "p11-kit cannot load its modules: \(message()).")
            }
            handles = ModuleHandles(.list(list))
        }
        var modules: [WantedModule] = []
        for functions in handles.functions {
            let name = string(p11_kit_module_get_name(functions)) ?? path ?? uri.modulePath ?? "unnamed"
            guard isWanted(functions, name, uri) else { continue }
            modules.append(WantedModule(functions, name: name, owner: handles, timeout: timeout))
        }
        if modules.isEmpty, let name = uri.moduleName {
            throw CertificateProviderError(
                .unavailable,
                "p11-kit is configured with no module '\(name.withVisibleControls)'; 'p11-kit list-modules' shows which."
            )
        }
        return modules
    }

    private static func load(_ path: String) throws(CertificateProviderError) -> ModuleHandles {
        guard access(path, F_OK) == 0 || !path.contains("/") else {
            throw CertificateProviderError(
                .fileNotFound,
                "There is no PKCS#11 module '\(path.withVisibleControls)'; set 'module-path' to its library.")
        }
        guard let functions = p11_kit_module_load(path, 0) else {
            throw CertificateProviderError(
                .unavailable, "The PKCS#11 module '\(path.withVisibleControls)' cannot be loaded: \(message()).")
        }
        return ModuleHandles(.single(functions))
    }

    private static func isWanted(
        _ functions: UnsafeMutablePointer<CK_FUNCTION_LIST>, _ name: String, _ uri: TokenURI
    ) -> Bool {
        if let wanted = uri.moduleName {
            let file = string(p11_kit_module_get_filename(functions))
            return name == wanted || [name, file ?? name].contains { libraryName($0) == libraryName(wanted) }
        }
        // Trust anchors, which have no keys.
        return string(p11_kit_config_option(functions, "trust-policy")) != "yes"
    }

    /// A library's name without its path, its suffix and `lib` (RFC 7512, section 2.3).
    private static func libraryName(_ path: String) -> Substring {
        let file = path.split(separator: "/").last ?? ""
        let stem = file.split(separator: ".").first ?? file
        return stem.hasPrefix("lib") ? stem.dropFirst(3) : stem
    }

    /// Takes over a string that p11-kit allocated.
    private static func string(_ text: UnsafeMutablePointer<CChar>?) -> String? {
        guard let text else { return nil }
        defer { free(text) }
        return String(cString: text)
    }

    /// What p11-kit says of this thread's last failure.
    private static func message() -> String {
        p11_kit_message().map { String(cString: $0) } ?? "no reason given"
    }
}
