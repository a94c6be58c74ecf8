import Foundation
import GRDB

/// The connections and the activated users, in one SQLite file. A change is on disk when its method returns.
struct ConnectionStore: Sendable {
    enum Failure: Error {
        /// The connection is another principal's, or another application's.
        case notYours
        case notFound
        /// The activation code was used by another registration.
        case alreadyActivated
    }

    private let database: DatabasePool

    /// - Parameter directory: Made if it does not exist, for this user only.
    init(directory: String) throws {
        let directory = URL(filePath: directory, directoryHint: .isDirectory)
        do {
            try FileManager.default.createDirectory(
                at: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        } catch {
            throw ConfigurationError("\(directory.path): the directory cannot be made.")
        }
        var configuration = Configuration()
        configuration.busyMode = .timeout(5)
        // A registration outlives a power failure, too.
        configuration.prepareDatabase { try $0.execute(sql: "PRAGMA synchronous = FULL") }
        database = try DatabasePool(
            path: directory.appending(path: "platform-server.sqlite").path, configuration: configuration)
        let migrator = Self.migrator
        guard try database.read(migrator.hasBeenSuperseded) == false else {
            throw ConfigurationError("\(directory.path): a newer version of this program wrote the database.")
        }
        try migrator.migrate(database)
    }

    private static var migrator: DatabaseMigrator {
        var migrator = DatabaseMigrator()
        migrator.registerMigration("1") { database in
            try database.create(table: "connection") { table in
                table.autoIncrementedPrimaryKey("number")
                table.column("id", .text).notNull().unique()
                table.column("application", .text).notNull()
                table.column("principal", .text).notNull()
                table.column("authority", .text).notNull()
                table.column("properties", .jsonText).notNull()
                table.column("created", .datetime).notNull()
                table.column("lastSeen", .datetime).notNull()
            }
            try database.create(table: "activatedUser") { table in
                table.primaryKey("name", .text)
                // The hash of the code that the user consumed. A new code in the users file is another one.
                table.column("code", .text).notNull()
                table.column("password", .text).notNull()
            }
        }
        return migrator
    }

    // MARK: Connections

    /// Makes a connection, or returns the one with this id. Completes the activation in the same transaction.
    /// - Throws: ``Failure/notYours`` if the id is taken, ``Failure/alreadyActivated``.
    func register(
        _ id: ConnectionID, application: String, principal: Principal, properties: ClientProperties,
        activation: Activation?, at now: Date
    ) async throws -> (connection: Connection, isNew: Bool) {
        try await database.write { database in
            if let activation { try Self.activate(activation, in: database) }
            if let existing = try Connection.filter({ $0.id == id.description }).fetchOne(database) {
                guard existing.owner == principal, existing.application == application else { throw Failure.notYours }
                return (existing, false)
            }
            var connection = Connection(
                id: id.description, application: application, principal: principal.name,
                authority: principal.authority, properties: properties, created: now, lastSeen: now)
            try connection.insert(database)
            return (connection, true)
        }
    }

    /// Returns the connection, and notes that it was seen.
    /// - Throws: ``Failure/notFound``, or ``Failure/notYours`` if it is another principal's.
    func connection(
        _ id: ConnectionID, application: String, principal: Principal, at now: Date
    ) async throws -> Connection {
        let connection = try await database.read { database in
            try Self.find(id, application: application, principal: principal, in: database)
        }
        guard connection.lastSeen.addingTimeInterval(60) < now else { return connection }
        return try await update(id, application: application, principal: principal, at: now) { _ in }
    }

    /// - Throws: As ``connection(_:application:principal:at:)``.
    func update(
        _ id: ConnectionID, application: String, principal: Principal, at now: Date,
        change: @Sendable @escaping (inout ClientProperties) -> Void
    ) async throws -> Connection {
        try await database.write { database in
            var connection = try Self.find(id, application: application, principal: principal, in: database)
            change(&connection.properties)
            connection.lastSeen = now
            try connection.update(database)
            return connection
        }
    }

    /// - Throws: As ``connection(_:application:principal:at:)``.
    func delete(_ id: ConnectionID, application: String, principal: Principal) async throws {
        _ = try await database.write { database in
            try Self.find(id, application: application, principal: principal, in: database).delete(database)
        }
    }

    /// The latest connections first.
    /// - Parameter before: The number of the last connection of the page before.
    func list(before: Int64?, limit: Int) async throws -> (connections: [Connection], total: Int) {
        try await database.read { database in
            var request = Connection.order(\.number.desc).limit(limit)
            if let before { request = request.filter { $0.number < before } }
            return (try request.fetchAll(database), try Connection.fetchCount(database))
        }
    }

    private static func find(
        _ id: ConnectionID, application: String, principal: Principal, in database: Database
    ) throws -> Connection {
        guard let connection = try Connection.filter({ $0.id == id.description }).fetchOne(database) else {
            throw Failure.notFound
        }
        guard connection.owner == principal, connection.application == application else { throw Failure.notYours }
        return connection
    }

    // MARK: Users

    /// The password of a user who consumed this activation code; nil if none did.
    func password(ofUser name: String, activatedWith code: PasswordHash) async throws -> PasswordHash? {
        let text = try await database.read { database in
            try String.fetchOne(
                database, sql: "SELECT password FROM activatedUser WHERE name = ? AND code = ?",
                arguments: [name, code.description])
        }
        return text.flatMap(PasswordHash.init)
    }

    private static func activate(_ activation: Activation, in database: Database) throws {
        let code = activation.code.description
        try database.execute(
            sql: """
                INSERT INTO activatedUser (name, code, password) VALUES (:name, :code, :password)
                ON CONFLICT (name) DO UPDATE SET code = :code, password = :password WHERE code <> :code
                """, arguments: ["name": activation.user, "code": code, "password": activation.password.description])
        guard database.changesCount == 1 else { throw Failure.alreadyActivated }
    }
}
