import CLinux

/// An access control list (acl(5)), as the kernel has it in `system.posix_acl_access`: a version, and entries of a tag, rights and a
/// number. With one, the group's part of the mode is the most that the list gives.
package struct AccessList: Equatable, Sendable {
    package private(set) var bytes: [UInt8]
    private static let (header, entry) = (4, 8)

    private enum Tag: UInt8 { case user = 2, ownGroup = 4, group = 8 }

    package init(_ bytes: [UInt8]) { self.bytes = bytes }

    /// Returns the list of an open file; `nil` if the mode says it all. Does not block.
    package init?(of descriptor: Int32) {
        // The kernel's limit for a value.
        var bytes = [UInt8](repeating: 0, count: 65_536)
        let count = certprov_access_list(descriptor, &bytes, bytes.count)
        guard count > 0 else { return nil }
        self.init(Array(bytes[..<count]))
    }

    /// The rights of the file's group, as the three bits of a mode.
    package var groupRights: UInt32? {
        get { rights(.ownGroup).first?.rights }
        set {
            guard let newValue, let place = places(.ownGroup).first else { return }
            bytes[place + 2] = UInt8(newValue & 7)
        }
    }

    /// The rights of users and of groups that the list names, without its bound.
    package var users: [(number: UInt32, rights: UInt32)] { rights(.user) }
    package var groups: [(number: UInt32, rights: UInt32)] { rights(.group) }

    private func rights(_ tag: Tag) -> [(number: UInt32, rights: UInt32)] {
        places(tag).map { place in
            (bytes[place + 4..<place + 8].reversed().reduce(0) { $0 << 8 | UInt32($1) }, UInt32(bytes[place + 2]))
        }
    }

    /// The beginnings of the entries with this tag.
    private func places(_ tag: Tag) -> [Int] {
        stride(from: Self.header, to: bytes.count - Self.entry + 1, by: Self.entry)
            .filter { bytes[$0] == tag.rawValue && bytes[$0 + 1] == 0 }
    }
}
