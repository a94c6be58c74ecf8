import Glibc

/// The shared libraries of the process.
enum LoadedLibraries {
    /// Keeps all libraries that are loaded now until the process ends. Call it before a module is finalised.
    ///
    /// Some libraries leave destructors for thread-specific data behind when they are unloaded: libitm, which
    /// opencryptoki loads in `C_Initialize` and unloads in `C_Finalize`, crashes each thread that has called it and ends
    /// later.
    static func keep() {
        for path in paths {
            // RTLD_NODELETE holds after the handle is closed, too (dlopen(3)).
            if let handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) { dlclose(handle) }
        }
    }

    /// The files whose code is mapped, as proc(5) lists them; empty without a `/proc`.
    private static var paths: Set<String> {
        guard let file = fopen("/proc/self/maps", "re") else { return [] }
        defer { fclose(file) }
        var line: UnsafeMutablePointer<CChar>?
        var capacity = 0
        defer { free(line) }
        var paths: Set<String> = []
        while getline(&line, &capacity, file) > 0, let line {
            // Fields: addresses, permissions such as r-xp, offset, device, inode, and the path after spaces. A process may have
            // thousands of these lines, so most are skipped before they are made into a String.
            guard let permissions = strchr(line, 0x20), strncmp(permissions, " r-x", 4) == 0,
                let path = strchr(line, 0x2F)
            else { continue }
            paths.insert(String(String(cString: path).dropLast()))
        }
        return paths
    }
}
