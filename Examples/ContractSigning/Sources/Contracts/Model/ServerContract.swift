/// A contract as a server has it.
public struct ServerContract: Equatable, Sendable {
    public var revision: Int
    public var version: ContractVersion

    public init(revision: Int, version: ContractVersion) { (self.revision, self.version) = (revision, version) }
}
