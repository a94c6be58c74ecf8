import Foundation
import Glibc

/// A directory that goes when its last user does.
public final class TemporaryDirectory: Sendable {
    public let path: String

    public init() throws {
        Surroundings.makeUsual()
        path = "/tmp/certprov-tests-\(UUID().uuidString)"
        guard mkdir(path, 0o700) == 0 else { throw Failure(description: "\(path) cannot be made") }
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    struct Failure: Error, CustomStringConvertible { var description: String }

    /// The path of something in the directory.
    public subscript(name: String) -> String { path + "/" + name }

    @discardableResult
    public func write(_ bytes: some Sequence<UInt8>, to name: String, mode: UInt32 = 0o600) throws -> String {
        let file = self[name]
        try Data(bytes).write(to: URL(filePath: file))
        guard chmod(file, mode) == 0 else { throw Failure(description: "chmod of \(file) failed") }
        return file
    }

    /// Writes a program, and returns its path. Another process does so: a file that this one has open for writing, a child that
    /// another test starts at that time has open too, and the program is busy for as long as that runs.
    @discardableResult
    public func install(_ name: String, _ bytes: some Sequence<UInt8>) throws -> String {
        let source = try write(bytes, to: name + ".source")
        return try install(name, copying: source)
    }

    /// Copies a program as ``install(_:_:)`` does.
    @discardableResult
    public func install(_ name: String, copying source: String) throws -> String {
        try Subprocess.run(["install", "-m", "700", source, self[name] + ".new"])
        guard rename(self[name] + ".new", self[name]) == 0 else {
            throw Failure(description: "\(self[name]) cannot be installed")
        }
        return self[name]
    }

    /// Writes a file in one step, so that no reader meets half of it, and returns its path.
    public func replace(_ name: String, with bytes: some Sequence<UInt8>, modifiedAt seconds: Int) throws -> String {
        let new = try write(bytes, to: "new")
        guard setModificationTime(of: new, to: seconds), rename(new, self[name]) == 0 else {
            throw Failure(description: "\(self[name]) cannot be replaced")
        }
        return self[name]
    }

    public func read(_ name: String) throws -> [UInt8] { Array(try Data(contentsOf: URL(filePath: self[name]))) }

    /// Everything in the directory, hidden files too, relative to it and sorted.
    public func contents() -> [String] {
        (FileManager.default.enumerator(atPath: path)?.compactMap { $0 as? String } ?? []).sorted()
    }
}
