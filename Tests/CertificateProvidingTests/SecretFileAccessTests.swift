import Glibc
import TestSupport
import Testing

@testable import CertificateProviding

/// Decision 003, as a table.
@Suite struct SecretFileAccessTests {
    /// A list as the kernel has it: of tag, rights and number.
    private static func list(_ entries: (tag: UInt8, rights: UInt8, number: UInt32)...) -> AccessList {
        AccessList(
            [2, 0, 0, 0]
                + entries.flatMap { entry -> [UInt8] in
                    let number: [UInt8] = (0..<4).map { UInt8(truncatingIfNeeded: entry.number >> (8 * $0)) }
                    return [entry.tag, 0, entry.rights, 0] + number
                })
    }

    private static let (user, ownGroup, group) = (UInt8(2), UInt8(4), UInt8(8))
    private static let own = UInt32(geteuid())
    /// A user and a group that this process has nothing to do with.
    private static let (other, foreign) = (UInt32(4712), UInt32(4711))

    struct Case: Sendable {
        var mode: UInt32
        var owner: UInt32
        var group: UInt32 = foreign
        var list: AccessList?
        /// Words of the warning; `nil` for none.
        var warning: String?
        /// Words of the refusal; `nil` if the file is used.
        var refusal: String?
    }

    private static let cases: [Case] = [
        Case(mode: 0o600, owner: 0), Case(mode: 0o400, owner: own), Case(mode: 0o700, owner: own),
        Case(mode: 0o640, owner: 0, warning: "by every member of the group 4711."),
        Case(mode: 0o640, owner: 0, group: UInt32(getegid()), warning: "by every member of the group \(getegid())."),
        Case(mode: 0o600, owner: other, warning: "belongs to another user (uid 4712), who can read and replace it."),
        Case(mode: 0o640, owner: other, refusal: "mode 640, group 4711)"),
        Case(
            mode: 0o440, owner: other, group: UInt32(getegid()),
            warning: "replace it. key.pem can be read by every member of the group \(getegid())."),
        // The user of this process alone.
        Case(mode: 0o640, owner: 0, list: list((user, 4, own), (ownGroup, 0, 0))),
        Case(mode: 0o640, owner: 0, list: list((user, 6, own), (ownGroup, 0, 0))),
        Case(
            mode: 0o640, owner: 0, list: list((user, 4, other), (ownGroup, 0, 0), (group, 4, foreign)),
            warning: "by every member of the group 4711, and by the user 4712 of its access control list."),
        // The bound takes the list's rights away.
        Case(mode: 0o600, owner: 0, list: list((user, 4, other), (ownGroup, 4, 0))),
        Case(mode: 0o660, owner: 0, list: list((user, 6, other), (ownGroup, 0, 0)), refusal: "with an access control"),
        Case(mode: 0o640, owner: other, list: list((user, 4, 4713), (ownGroup, 0, 0)), refusal: "with an access"),
        Case(mode: 0o644, owner: 0, refusal: "mode 644"), Case(mode: 0o604, owner: 0, refusal: "mode 604"),
        Case(mode: 0o601, owner: 0, refusal: "mode 601"), Case(mode: 0o660, owner: 0, refusal: "mode 660"),
        Case(mode: 0o620, owner: 0, refusal: "mode 620"), Case(mode: 0o650, owner: 0, refusal: "mode 650"),
    ]

    @Test(arguments: cases) func theTable(_ row: Case) {
        let access = SecretFileAccess(mode: row.mode, owner: row.owner, group: row.group, list: row.list)
        let (refusal, warning) = (access.refusal("key.pem", path: "/key.pem"), access.warning(about: "key.pem"))
        #expect((refusal != nil) == (row.refusal != nil), "\(refusal ?? "")")
        #expect((warning != nil) == (row.warning != nil), "\(warning ?? "")")
        if let words = row.refusal { #expect(refusal?.contains(words) == true, "\(refusal ?? "")") }
        if let words = row.warning { #expect(warning?.contains(words) == true, "\(warning ?? "")") }
    }
}
