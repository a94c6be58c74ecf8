import CertificateProviding

/// The files that make a program the desktop's handler of calls, for one user.
public enum HandlerFiles {
    /// The name of the desktop entry.
    public static let desktopEntry = "contracts.desktop"
    /// The name of the file with the MIME type.
    public static let mimeFile = "contracts.xml"
    /// What the program handles.
    public static let mimeTypes = ["application/sellsign", "x-scheme-handler/sellsign"]

    /// The desktop entry.
    ///
    /// - Parameters:
    ///   - command: The program and the arguments before the URL or file.
    ///   - isInTerminal: Whether the desktop starts it in a terminal.
    public static func desktopEntry(_ command: [String], isInTerminal: Bool) -> String {
        """
        [Desktop Entry]
        Type=Application
        Name=Contracts
        Comment=Sign contracts at this host
        Exec=\(command.map(quoted).joined(separator: " ")) %u
        Terminal=\(isInTerminal)
        NoDisplay=true
        MimeType=\(mimeTypes.map { "\($0);" }.joined())

        """
    }

    /// The MIME type, by the suffix of its files.
    public static let mimeType = """
        <?xml version="1.0" encoding="UTF-8"?>
        <mime-info xmlns="http://www.freedesktop.org/standards/shared-mime-info">
          <mime-type type="application/sellsign">
            <comment>Contract to sign</comment>
            <glob pattern="*.sellsign"/>
            <sub-class-of type="application/json"/>
          </mime-type>
        </mime-info>

        """

    /// An argument of `Exec` (Desktop Entry Specification, "The Exec key"): quoted, then with the escapes of a string.
    static func quoted(_ argument: String) -> String {
        // Programs that split the command at spaces, such as xdg-open, do not know quotes.
        let plain = argument.utf8.allSatisfy { byte in
            (48...57).contains(byte) || (65...90).contains(byte) || (97...122).contains(byte)
                || "/-._+:@,".utf8.contains(byte)
        }
        if plain, !argument.isEmpty { return argument }
        var text = ""
        for scalar in argument.unicodeScalars {
            switch scalar {
            case "\"", "`", "$", "\\": text += "\\\\" + (scalar == "\\" ? "\\\\" : String(scalar))
            // Not a field code.
            case "%": text += "%%"
            case "\n": text += "\\n"
            default: text.unicodeScalars.append(scalar)
            }
        }
        return "\"\(text)\""
    }
}
