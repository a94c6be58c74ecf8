/// Keys of the property file that a room of the program reads, such as `Files.directory` and `Files.mode`.
///
/// Declared once, like the parameters of a provider; reading, checking, `certprov check` and the documentation come from the
/// declaration. The Logon manager reads the values, and its configuration has them.
public struct SettingsSection: Sendable {
    /// The title in the documentation.
    package let title: String
    /// The beginnings of keys that belong to the section, such as `Files.`. Another key that begins so is an error.
    package let namespaces: [String]
    /// The keys, whole: `Files.directory`. None is required; a blank value is parsed like any other. Without keys, those of the namespaces
    /// are another program's: they are accepted, and not read.
    ///
    /// A key with `<number>`, such as `Signing.client.<number>.name`, is of a group: there is one for each number in the file, and one
    /// that must be given must be given for each. A group's values are read with ``Parameters/members(of:)`` and ``Parameter/of(_:)``.
    package let settings: [ParameterDescriptor]

    /// Declares a section.
    public init(title: String, namespaces: [String] = [], _ settings: [ParameterDescriptor]) {
        self.title = title
        self.namespaces = namespaces
        self.settings = settings
    }
}
