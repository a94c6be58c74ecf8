/// A file of settings in one of the two forms.
public enum FileForm: String, CaseIterable, Sendable {
    case properties, plist

    public var fileName: String { "clienthub.\(rawValue)" }

    /// The first key is in ``firstLine``, each next one in the line after.
    public func text(_ pairs: [(String, String)]) -> String {
        switch self {
        case .properties: return pairs.map { "\($0)=\($1)\n" }.joined()
        case .plist:
            let body = pairs.map { "<key>\($0)</key><string>\($1)</string>\n" }.joined()
            return
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<plist version=\"1.0\">\n<dict>\n\(body)</dict>\n</plist>\n"
        }
    }

    public var firstLine: Int { self == .properties ? 1 : 4 }
}
