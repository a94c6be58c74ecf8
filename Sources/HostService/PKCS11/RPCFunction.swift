/// A function of PKCS#11 that the socket has, by its number in p11-kit's protocol.
enum RPCFunction: UInt32, CaseIterable {
    case initialize = 1, finalize, getInfo, getSlotList, getSlotInfo, getTokenInfo, getMechanismList, getMechanismInfo
    case openSession = 10, closeSession, closeAllSessions, getSessionInfo
    case login = 18, logout
    case getAttributeValue = 24
    case findObjectsInit = 26, findObjects, findObjectsFinal
    case signInit = 42, sign, signUpdate, signFinal
    case generateRandom = 64, waitForSlotEvent

    /// The types of its arguments and results, as a message names them.
    var signatures: (arguments: String, results: String) {
        switch self {
        case .initialize: ("ayyay", "")
        case .finalize: ("", "")
        case .getInfo: ("", "vsusv")
        case .getSlotList: ("yfu", "au")
        case .getSlotInfo: ("u", "ssuvv")
        case .getTokenInfo: ("u", "ssssuuuuuuuuuuuvvs")
        case .getMechanismList: ("ufu", "au")
        case .getMechanismInfo: ("uu", "uuu")
        case .openSession: ("uu", "u")
        case .closeSession, .closeAllSessions, .logout, .findObjectsFinal: ("u", "")
        case .getSessionInfo: ("u", "uuuu")
        case .login: ("uuay", "")
        case .getAttributeValue: ("uufA", "aAu")
        case .findObjectsInit: ("uaA", "")
        case .findObjects: ("ufu", "au")
        case .signInit: ("uMu", "")
        case .sign: ("uayfy", "ay")
        case .signUpdate: ("uay", "")
        case .signFinal, .generateRandom: ("ufy", "ay")
        case .waitForSlotEvent: ("u", "u")
        }
    }
}
