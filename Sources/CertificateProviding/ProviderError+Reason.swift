extension ProviderError {
    /// The part of an error that a caller may decide by, beside the code. Open, as ``Code`` is; plugins can use those below.
    public struct Reason: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
        public let rawValue: String
        public init(rawValue: String) { self.rawValue = rawValue }
        public var description: String { rawValue }

        /// Stored content is damaged, or sealed with a key that is lost. Content that cannot be read for another reason, such as
        /// an I/O error or a newer version, may be readable later.
        public static let damaged = Self(rawValue: "damaged")
        /// Of `operationNotAllowed`: another process or task is at work on the same thing. The same call may succeed soon. A
        /// renewal that meets it is pending, and not failed.
        public static let busy = Self(rawValue: "busy")
        /// Of a secret that is a systemd credential: this process is not in the unit that has it.
        public static let outsideUnit = Self(rawValue: "outsideUnit")
    }
}
