import CertificateProviding

/// Text about a call from another program: its token is in no message.
enum CallText {
    /// Returns a text in which the URLs of calls among the arguments are replaced by their scheme.
    static func hidingCalls(of arguments: [String], in text: String) -> String {
        var text = text
        for argument in arguments {
            guard let start = callStart(in: argument) else { continue }
            let call = String(argument[start...])
            // As it is, as one word of a shell, and with control characters made visible.
            for form in [call, call.replacing("'", with: "'\\''")] {
                for shown in [form, DisplayText.visible(form)] { text = text.replacing(shown, with: "sellsign:…") }
            }
        }
        return text
    }

    /// Returns where the URL of a call begins in an argument.
    private static func callStart(in argument: String) -> String.Index? {
        var rest = argument[...]
        while !rest.isEmpty {
            if rest.prefix(9).lowercased() == "sellsign:" { return rest.startIndex }
            rest = rest.dropFirst()
        }
        return nil
    }
}
