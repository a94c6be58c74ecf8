import CP11Kit
import CertificateProviding

/// A token in a slot of a module, as it was when it was looked at.
///
/// The slot's number means this token only for now: numbers shift, and tokens are swapped.
struct Slot: Sendable {
    let module: Module
    let id: CK_SLOT_ID
    let token: CK_TOKEN_INFO

    /// The fields that tell a token from every other one. Labels are not unique, and some vendors leave serial numbers empty.
    struct Identity: Hashable, Sendable {
        let manufacturer, model, serial, label: String
    }

    var identity: Identity {
        Identity(
            manufacturer: text(token.manufacturerID), model: text(token.model), serial: text(token.serialNumber),
            label: label)
    }

    var label: String { text(token.label) }

    /// The name of the token in a message.
    var displayName: String { DisplayText.visible(label.isEmpty ? text(token.serialNumber) : label) }

    func has(_ flag: UInt) -> Bool { token.flags & flag != 0 }

    /// The slot as it is now. Blocks.
    func lookedAtAgain() throws(CryptokiError) -> Slot {
        try module.control("C_GetTokenInfo") { () throws(CryptokiError) in
            var now = CK_TOKEN_INFO()
            try module.call("C_GetTokenInfo") { $0.C_GetTokenInfo?(id, &now) }
            return Slot(module: module, id: id, token: now)
        }
    }

    /// Throws where the token is in the slot no more.
    func requirePresence() throws(CryptokiError) {
        let now = try lookedAtAgain()
        guard now.has(UInt(CKF_TOKEN_INITIALIZED)), now.identity == identity else {
            throw CryptokiError(function: "C_GetTokenInfo", code: CKR_TOKEN_NOT_PRESENT)
        }
    }

    /// The slot of a token that demands a login if it has a PIN. Some tokens show all or part of their objects without one.
    var demandingLogin: Slot {
        guard has(UInt(CKF_USER_PIN_INITIALIZED)) else { return self }
        var token = token
        token.flags |= CK_FLAGS(CKF_LOGIN_REQUIRED)
        return Slot(module: module, id: id, token: token)
    }
}

extension ProviderError {
    /// Says of a token that is away what may keep its module from seeing it: one that is not started again, since
    /// others are in use.
    func naming(_ others: [Slot]) -> Self {
        guard !others.isEmpty else { return self }
        var copy = self
        copy.message +=
            " If it is inserted, its module may find it only after a restart of the module, which is not done during "
            + "a login to "
            + others.map { "'\($0.displayName)'" }.joined(separator: ", ") + ": log out there, or restart this program."
        return copy
    }
}
