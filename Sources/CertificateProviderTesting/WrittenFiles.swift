import CertificateProviding
import FoundationEssentials
import Glibc

/// The files that a plugin writes while it is checked: at the paths that its configuration names.
package struct WrittenFiles: Sendable {
    static let demand =
        "The files that a plugin writes are for its user alone, and in its directories, whatever the label and the URI of a key are."

    private let roots: [String]
    private let before: [String: FileStamp]
    /// The beginning of the names that the labels lead to.
    private let name: String

    /// Notes the files that there are.
    ///
    /// - Parameter paths: Files and directories that the plugin may write, absolute.
    package init(_ paths: [String]) {
        roots = paths
        name = "certprov-conformance-\(UInt32.random(in: .min ... .max))"
        before = Self.files(in: paths).reduce(into: [:]) { $0[$1] = FileStamp(of: $1) }
    }

    /// Labels that lead out of a directory in which they become the name of a file.
    var labels: [String] { ["../\(name)", "../../\(name)"] + above.map { "\($0)/\(name)" } }

    /// The directories above those of the plugin.
    private var above: [String] {
        roots.flatMap { root in
            let parent = URL(filePath: root).deletingLastPathComponent()
            return [parent.path, parent.deletingLastPathComponent().path]
        }
    }

    /// Copies the new files of the plugin to places above its directories, and returns these with a URI that leads there from `uri`, where
    /// that is the name of a file.
    func copiesOutside(of uri: String) -> [(uri: String, path: String)] {
        roots.flatMap { root in
            Self.files(in: [root]).filter { before[$0] == nil && $0 != root }.compactMap { file in
                let last = String(file.split(separator: "/").last ?? "")
                let stem = last.contains(".") ? String(last.prefix { $0 != "." }) : last
                let depth = file.dropFirst(root.count).split(separator: "/").count
                guard !stem.isEmpty, uri.contains(stem) else { return nil }
                let path =
                    "\(URL(filePath: root).deletingLastPathComponent().path)/\(name)\(last.dropFirst(stem.count))"
                guard (try? FileManager.default.copyItem(atPath: file, toPath: path)) != nil else { return nil }
                let outside = String(repeating: "../", count: depth) + name
                return (uri.replacing(stem, with: outside), path)
            }
        }
    }

    /// Why a file is not as it must be; `nil` if all are. Removes those outside of the plugin's directories.
    func fault() -> String? {
        for directory in above {
            for file in (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
            where file.hasPrefix(name) && !roots.contains("\(directory)/\(file)") {
                let path = "\(directory)/\(file)"
                try? FileManager.default.removeItem(atPath: path)
                return
                    "The label of a key has led to a file outside of the plugin's directories: \(path.withVisibleControls). Do not use a "
                    + "label in a path."
            }
        }
        for path in Self.files(in: roots) {
            var status = stat()
            guard lstat(path, &status) == 0, status.st_mode & S_IFMT != S_IFLNK else { continue }
            let isDirectory = status.st_mode & S_IFMT == S_IFDIR
            // A file that is written in a directory changes the directory.
            let isWritten = isDirectory ? before[path] == nil : before[path] != FileStamp(of: path)
            guard isWritten, status.st_mode & 0o077 != 0 else { continue }
            return
                "\(path.withVisibleControls) has the mode \(String(status.st_mode & 0o7777, radix: 8)), so that others may use it. Make it "
                + "with \(isDirectory ? "700" : "600")."
        }
        return nil
    }

    /// The paths, and all that is in directories.
    private static func files(in roots: [String]) -> [String] {
        roots.flatMap { root in
            [root] + ((try? FileManager.default.subpathsOfDirectory(atPath: root)) ?? []).map { "\(root)/\($0)" }
        }
    }
}
