import Foundation

/// p11-kit's module that passes everything on to a server, which `P11_KIT_SERVER_ADDRESS` names.
public enum P11KitClient {
    /// - Throws: When it is not installed.
    public static func path() throws -> String {
        let folders = try FileManager.default.contentsOfDirectory(atPath: "/usr/lib").map { "/usr/lib/" + $0 }
        let path = folders.map { $0 + "/pkcs11/p11-kit-client.so" }.first { FileManager.default.fileExists(atPath: $0) }
        guard let path else { throw Subprocess.Failure(description: "the package p11-kit-modules is not installed") }
        return path
    }
}
