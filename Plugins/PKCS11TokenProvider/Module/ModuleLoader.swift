import CP11Kit
import CertificateProviding
import FoundationEssentials
import Glibc

/// Finds the modules that a URI asks for, so that no other is initialised: some take seconds, and some print.
enum ModuleLoader {
    /// Returns the modules, loaded and not yet initialised.
    ///
    /// - Parameters:
    ///   - path: The module's library, or the directory that the URI's `module-name` is in, where the configuration
    ///     names it; otherwise the URI's `module-path`, its `module-name`, or all that p11-kit is configured with.
    ///   - timeout: Of calls.
    /// - Throws: `unavailable` when p11-kit itself fails or has no such module; `fileNotFound`; `configurationInvalid` for a
    ///   directory without a name, and for two names.
    static func modules(
        for uri: PKCS11URI, path: String?, timeout: Duration
    ) throws(ProviderError) -> [ModuleReference] {
        let handles: LoadedModules
        let path = path ?? uri.modulePath
        if let path {
            handles = try load(library(at: path, named: uri.moduleName))
        } else {
            guard let list = p11_kit_modules_load(nil, 0) else {
                throw ProviderError(
                    .unavailable,
                    "p11-kit cannot load its modules: \(message()); check its configuration with: p11-kit list-modules")
            }
            handles = LoadedModules(.list(list))
        }
        func wanted() -> [ModuleReference] {
            handles.functions.compactMap { functions in
                let name = string(p11_kit_module_get_name(functions)) ?? path ?? "unnamed"
                guard isWanted(functions, name, uri) else { return nil }
                return ModuleReference(functions, name: name, owner: handles, timeout: timeout)
            }
        }
        var modules = wanted()
        // p11-kit knows a library by its configured name only while the configuration is loaded.
        if modules.isEmpty, path != nil, uri.moduleName != nil, let list = p11_kit_modules_load(nil, 0) {
            let configured = LoadedModules(.list(list))
            modules = withExtendedLifetime(configured) { wanted() }
        }
        if modules.isEmpty, let name = uri.moduleName.map(DisplayText.visible) {
            if let path = path.map(DisplayText.visible) {
                throw ProviderError(
                    .configurationInvalid,
                    "'module-path' names the PKCS#11 module '\(path)', but 'module-name' in the URI names '\(name)'; "
                        + "remove one of them.")
            }
            throw ProviderError(
                .unavailable,
                "p11-kit has no module '\(name)' configured; 'p11-kit list-modules' shows those that it has."
            )
        }
        return modules
    }

    /// Returns the path of a library, absolute: p11-kit has another idea of what others are relative to.
    ///
    /// - Parameter name: Where the path is a directory, the library that is meant in it (RFC 7512, section 2.4).
    private static func library(at path: String, named name: String?) throws(ProviderError) -> String {
        let shown = DisplayText.visible(path)
        let absolute = path.hasPrefix("/") ? path : FileManager.default.currentDirectoryPath + "/" + path
        var status = stat()
        guard stat(absolute, &status) == 0 else {
            // p11-kit looks for a mere name where its modules are.
            if !path.contains("/") { return path }
            throw ProviderError(
                .fileNotFound, "The PKCS#11 module '\(shown)' does not exist; set 'module-path' to its library.")
        }
        // The loader would wait for the writer of a pipe.
        guard [S_IFREG, S_IFDIR].contains(status.st_mode & S_IFMT) else {
            throw ProviderError(
                .configurationInvalid,
                "'module-path' is '\(shown)', which is a pipe, a socket or a device; set it to a library.")
        }
        guard status.st_mode & S_IFMT == S_IFDIR else { return absolute }
        guard let name else {
            throw ProviderError(
                .configurationInvalid,
                "'module-path' is the directory '\(shown)'; set it to a library, or name one there with 'module-name' in "
                    + "the URI.")
        }
        let files: [String]
        do { files = try FileManager.default.contentsOfDirectory(atPath: absolute) } catch {
            throw ProviderError(
                .unavailable,
                "The directory '\(shown)' of 'module-path' cannot be read; check its permissions, or set 'module-path' to a "
                    + "library.", underlying: error)
        }
        // Several versions may lie beside each other: the name without one is the shortest.
        let found = files.filter { $0.lowercased().contains(".so") && libraryName($0) == libraryName(name) }
            .min { ($0.count, $0) < ($1.count, $1) }
        guard let found else {
            throw ProviderError(
                .fileNotFound,
                "The PKCS#11 module '\(DisplayText.visible(name))' was not found in the directory '\(shown)' of "
                    + "'module-path'; correct one of them.")
        }
        return try library(at: absolute + "/" + found, named: nil)
    }

    private static func load(_ path: String) throws(ProviderError) -> LoadedModules {
        guard let functions = p11_kit_module_load(path, 0) else {
            throw ProviderError(
                .unavailable,
                "The PKCS#11 module '\(DisplayText.visible(path))' cannot be loaded: \(message()); check that it is a PKCS#11 "
                    + "library for this host.")
        }
        return LoadedModules(.single(functions))
    }

    private static func isWanted(
        _ functions: UnsafeMutablePointer<CK_FUNCTION_LIST>, _ name: String, _ uri: PKCS11URI
    ) -> Bool {
        if let wanted = uri.moduleName {
            let file = string(p11_kit_module_get_filename(functions))
            return [name, file ?? name].contains { libraryName($0) == libraryName(wanted) }
        }
        // Trust anchors, which have no keys.
        return string(p11_kit_config_option(functions, "trust-policy")) != "yes"
    }

    /// A library's name without its path, `lib` and its suffix, in small letters: what it is compared by (RFC 7512,
    /// section 2.4).
    private static func libraryName(_ path: String) -> Substring {
        let file = path.lowercased().split(separator: "/").last ?? ""
        let stem = file.split(separator: ".").first ?? file
        return stem.hasPrefix("lib") ? stem.dropFirst(3) : stem
    }

    /// Takes over a string that p11-kit allocated.
    private static func string(_ text: UnsafeMutablePointer<CChar>?) -> String? {
        guard let text else { return nil }
        defer { free(text) }
        return String(cString: text)
    }

    /// Returns p11-kit's message about this thread's last failure.
    private static func message() -> String {
        p11_kit_message().map { String(cString: $0) } ?? "no reason given"
    }
}
