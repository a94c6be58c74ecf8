import CertificateProviding
import Crypto
import Foundation
import GRDB

/// The SQLite database of the server, and what it consists of. A change is on disk when its transaction returns.
struct ServerDatabase: Sendable {
    let writer: any DatabaseWriter

    /// A database in memory.
    init() throws {
        writer = try DatabaseQueue(configuration: Self.configuration)
        try Self.migrator.migrate(writer)
    }

    init(_ directory: StateDirectory) throws {
        let (path, name) = (
            "\(directory.path)/contracts.sqlite", DisplayText.visible("\(directory.path)/contracts.sqlite")
        )
        do {
            let writer = try DatabasePool(path: path, configuration: Self.configuration)
            guard try writer.read(Self.migrator.hasBeenSuperseded) == false else {
                throw ConfigurationError(
                    "\(name): a newer version of this program wrote the database. Install that one.")
            }
            try Self.migrator.migrate(writer)
            self.writer = writer
        } catch let error as DatabaseError {
            let isDamaged = [.SQLITE_NOTADB, .SQLITE_CORRUPT].contains(error.resultCode)
            throw ConfigurationError(
                "\(name) cannot be used: \(error.message ?? "\(error.resultCode)"). "
                    + (isDamaged
                        ? "Restore it from a backup." : "See to it that this user may write it, and start again."))
        }
    }

    private static var configuration: Configuration {
        var configuration = Configuration()
        configuration.busyMode = .timeout(5)
        // A contract outlives a power failure, too.
        configuration.prepareDatabase { try $0.execute(sql: "PRAGMA synchronous = FULL") }
        return configuration
    }

    private static var migrator: DatabaseMigrator {
        var migrator = DatabaseMigrator()
        migrator.registerMigration("1") { database in
            // The last revision that was given.
            try database.create(table: "book") { $0.column("revision", .integer).notNull() }
            try database.execute(sql: "INSERT INTO book (revision) VALUES (0)")
            try Self.createContracts(in: database)
            try Self.createCodes(in: database)
            try Self.createHosts(in: database)
        }
        return migrator
    }

    private static func createContracts(in database: Database) throws {
        try database.create(table: "contract") { table in
            table.primaryKey("id", .text)
            table.column("account", .text).notNull()
            table.column("revision", .integer).notNull().unique()
            table.column("state", .text).notNull()
            table.column("content", .blob).notNull()
            // The content before hosts filled it in, where that is another one.
            table.column("original", .blob)
            table.column("approvals", .jsonText).notNull()
            table.column("abandonment", .jsonText)
            // Whether the hosts of the account get it.
            table.column("isShared", .boolean).notNull()
            table.column("created", .datetime).notNull()
            table.column("changed", .datetime).notNull()
        }
        try database.create(indexOn: "contract", columns: ["account", "revision"])
        // The documents that a contract has in its last version.
        try database.create(table: "reference") { table in
            table.column("contract", .text).notNull().references("contract", onDelete: .cascade)
            table.column("sha256", .text).notNull().indexed()
            table.primaryKey(["contract", "sha256"])
        }
        // Each account has its own: a digest tells nothing of what others have.
        try database.create(table: "document") { table in
            table.primaryKey {
                table.column("account", .text)
                table.column("sha256", .text)
            }
            table.column("size", .integer).notNull()
            table.column("seen", .datetime).notNull()
            table.column("content", .blob).notNull()
        }
        // A host whose answer was lost sends a contract again that has been deleted since: it does not come back so.
        try database.create(table: "deleted") { table in
            table.primaryKey("contract", .text)
        }
        // Cursors before a revision that was deleted.
        try database.create(table: "forgotten") { table in
            table.primaryKey("account", .text)
            table.column("revision", .integer).notNull()
        }
    }

    private static func createCodes(in database: Database) throws {
        try database.create(table: "code") { table in
            table.primaryKey {
                table.column("contract", .text)
                table.column("signatory", .integer)
                table.column("channel", .text)
            }
            table.column("account", .text).notNull()
            table.column("address", .text).notNull()
            table.column("document", .text).notNull()
            table.column("hash", .blob).notNull()
            table.column("triesLeft", .integer).notNull()
            table.column("expires", .datetime).notNull()
            table.column("confirmed", .datetime)
        }
        try database.create(table: "codeRequest") { table in
            table.column("contract", .text).notNull()
            table.column("signatory", .integer).notNull()
            table.column("account", .text).notNull()
            table.column("address", .text).notNull()
            table.column("time", .datetime).notNull().indexed()
        }
    }

    private static func createHosts(in database: Database) throws {
        try database.create(table: "token") { table in
            table.primaryKey("hash", .blob)
            table.column("account", .text).notNull()
            table.column("expires", .datetime).notNull()
            table.column("used", .datetime)
        }
        try database.create(table: "host") { table in
            table.autoIncrementedPrimaryKey("id")
            table.column("account", .text).notNull()
            table.column("name", .text).notNull()
            table.column("paired", .datetime).notNull()
            table.column("unpaired", .datetime)
        }
        try database.create(table: "certificate") { table in
            table.primaryKey("fingerprint", .text)
            table.column("host", .integer).notNull().references("host")
            table.column("issued", .datetime).notNull()
            table.column("expires", .datetime).notNull()
        }
    }
}
