/// The faults of a responder, by the label of a path: `fault-NAME+NAME`. A name may begin with the operation that it is for,
/// else it is for enrolment, and may end with `*N` for the first N requests only. A request that is refused for its
/// credentials meets no fault, but `close-after-answer`.
struct ESTFault {
    enum Name: String, CaseIterable {
        // Nothing is issued. `status-NNN`, `pending-N` and `429` may end with `-retry-5`, `-retry-date-5` or
        // `-retry-absent`. `redirect-NNN-` ends with `same` (to the path without the fault), `other` (the same server by its
        // other name, which is another origin), `http` or `loop`. `hang` sends no answer.
        case status, tooMany = "429", redirect, hang, halfClose = "half-close"
        case closeAfterRequest = "close-after-request", pending
        // It is issued, but: it is the client's own certificate, or the last one for the subject; for another party; with
        // the subject as PrintableString and one more alternative name; without the subject; for servers alone, whatever was
        // asked; by another root; by the new root, which `cacerts`
        // then has with the links; a minute ago, in an hour (`-SECONDS` for another time); the answer has none, a second
        // one for another party, the leaf alone.
        case oldCertificate = "old-certificate", otherKey = "other-key", otherKind = "other-kind"
        case otherNames = "other-names", wrongSubject = "wrong-subject", untrusted, expired
        case noSubject = "no-subject", serverOnly = "server-only"
        case notYetValid = "not-yet-valid", rollover, emptyBag = "empty-bag", twoLeaves = "two-leaves"
        case noIntermediate = "no-intermediate"
        // It is issued, and the answer cannot be read, is written otherwise, has odd headers, is the last one (announced, or
        // not), ends after N octets (`cut-N`), comes slowly (`drip-MS`, `slow-body-MS`), without a body, or never ends.
        case garbage, notBase64 = "not-base64", rawDER = "raw-der", pem, unwrapped, crlf
        case trailingNUL = "trailing-nul", created, emptyBody = "empty-body", wrongType = "wrong-type"
        case noSMIMEType = "no-smime-type", encoding = "cte", duplicateStatusHeader = "duplicate-status-header"
        case noKeepAlive = "no-keep-alive", closeAfterAnswer = "close-after-answer", cut, drip
        case slowBody = "slow-body", hangBody = "hang-body", endless, endlessHeaders = "headers-endless", chunked
        case noLength = "no-length"
    }

    let name: Name
    /// The text after the name.
    let argument: String
    let operation: ESTOperation?
    let times: Int?

    /// - Returns: `nil` if a name is none.
    static func all(in label: String) -> [ESTFault]? {
        guard label.hasPrefix("fault-") else { return [] }
        var faults: [ESTFault] = []
        for text in label.dropFirst("fault-".count).split(separator: "+") {
            guard let fault = ESTFault(text) else { return nil }
            faults.append(fault)
        }
        return faults
    }

    private init?(_ text: Substring) {
        let parts = text.split(separator: "*")
        guard parts.count == 1 || parts.count == 2 && Int(parts[1]) != nil else { return nil }
        times = parts.count == 2 ? Int(parts[1]) : nil
        var rest = parts[0]
        operation = [.cacerts, .csrattrs].first { rest.hasPrefix("\($0.rawValue)-") }
        if let operation { rest = rest.dropFirst(operation.rawValue.count + 1) }
        let names = Name.allCases.filter { rest == $0.rawValue || rest.hasPrefix("\($0.rawValue)-") }
        guard let name = names.max(by: { $0.rawValue.count < $1.rawValue.count }) else { return nil }
        self.name = name
        argument = String(rest.dropFirst(name.rawValue.count + 1))
    }

    /// `120` of `-retry-120`, `date-5`, `absent`.
    static func retryAfter(in argument: String) -> String? {
        let parts = argument.split(separator: "-").map(String.init)
        guard let start = parts.firstIndex(of: "retry") else { return nil }
        return parts[(start + 1)...].joined(separator: "-")
    }
}

/// The faults of one request. The first look at one makes it play, and be counted.
final class ESTFaults {
    private var chosen: [ESTFault]
    private var looked: [ESTFault.Name: String?] = [:]
    private let plays: (ESTFault) -> Bool

    /// - Parameter plays: Whether a fault plays once more. Called for those with a number of times.
    init(_ faults: [ESTFault], of operation: ESTOperation, plays: @escaping (ESTFault) -> Bool) {
        // A rollover is one for all who ask under this label.
        chosen = faults.filter { $0.name == .rollover || ($0.operation.map { $0 == operation } ?? operation.enrols) }
        self.plays = plays
    }

    subscript(name: ESTFault.Name) -> String? {
        if let known = looked[name] { return known }
        let fault = chosen.first { $0.name == name }
        let argument = fault.flatMap { $0.times == nil || plays($0) ? $0.argument : nil }
        looked[name] = .some(argument)
        return argument
    }

    func has(_ name: ESTFault.Name) -> Bool { self[name] != nil }

    func isChosen(_ name: ESTFault.Name) -> Bool { chosen.contains { $0.name == name } }

    /// Faults are for those who may enrol.
    func keepOnly(_ name: ESTFault.Name) { chosen.removeAll { $0.name != name } }
}
