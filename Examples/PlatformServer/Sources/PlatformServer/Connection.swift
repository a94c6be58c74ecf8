import Foundation
import GRDB

/// An application connection: one application of one principal on one device. A row of the table `connection`.
struct Connection: Codable, Sendable, FetchableRecord, MutablePersistableRecord {
    static let databaseTableName = "connection"

    /// Grows with each registration.
    var number: Int64?
    var id: String
    var application: String
    var principal: String
    var authority: String
    var properties: ClientProperties
    var created: Date
    /// To the minute, so that reading costs no write.
    var lastSeen: Date

    var owner: Principal { Principal(name: principal, authority: authority) }

    enum Columns {
        static let number = Column(CodingKeys.number)
        static let id = Column(CodingKeys.id)
    }

    mutating func didInsert(_ inserted: InsertionSuccess) { number = inserted.rowID }
}
