import Foundation
import Glibc

/// The PKCS#11 module of `Tests/FaultyModule`, which fails as it is told to. It is compiled when a test first asks for
/// it, as no other program is to link it.
public enum FaultyModuleLibrary {
    /// Returns the path of the library, beside this bundle of tests.
    public static func path() throws -> String { try built.get() }

    private static let built = Result { () throws -> String in
        let sources = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .appending(path: "FaultyModule").path
        let files = try FileManager.default.contentsOfDirectory(atPath: sources).map { sources + "/" + $0 }
        let library = URL(filePath: CommandLine.arguments[0]).deletingLastPathComponent()
            .appending(path: "libFaultyModule.so").path
        if let made = modified(library),
            (files + [sources + "/include/control.h"]).allSatisfy({ file in
                modified(file).map { $0 < made } ?? true
            })
        {
            return library
        }
        // Another process of tests may be doing the same.
        let temporary = library + ".\(getpid())"
        try Subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-I", sources + "/include", "-I/usr/include/p11-kit-1", "-o", temporary]
                + files.filter { $0.hasSuffix(".c") } + ["-lcrypto", "-ldl", "-lpthread"])
        guard rename(temporary, library) == 0 else { throw Subprocess.Failure(description: "rename: \(errno)") }
        return library
    }

    private static func modified(_ path: String) -> Date? {
        (try? FileManager.default.attributesOfItem(atPath: path))?[.modificationDate] as? Date
    }
}
