import CertificateProviding
import Foundation
import HostSockets
import Synchronization
import TestSupport
import Testing

@testable import HostService

/// A caller of the token.
final class TokenDialogue {
    typealias Ask = ([UInt8]) async throws -> [UInt8]?

    struct Ended: Error {}

    private let ask: Ask
    /// Changes the message of this number, and ends the dialogue.
    var change: (number: Int, to: ([UInt8]) -> [UInt8])?
    private(set) var messages: [[UInt8]] = []
    private(set) var session: UInt64 = 0

    init(_ ask: @escaping Ask) { self.ask = ask }

    /// With a connection of its own.
    convenience init(_ connection: TokenConnection) { self.init { await connection.answer($0) } }

    static let handshake = Array("PRIVATE-GNOME-KEYRING-PKCS11-PROTOCOL-V-1".utf8)

    /// Returns the results of a call.
    ///
    /// - Throws: The code of a call that fails.
    func call(
        _ function: RPCFunction, _ arguments: (inout RPCWriter) -> Void = { _ in }
    ) async throws -> RPCReader {
        var writer = RPCWriter(function.rawValue, function.signatures.arguments)
        arguments(&writer)
        return try await send(writer.bytes, function)
    }

    func send(_ body: [UInt8], _ function: RPCFunction) async throws -> RPCReader {
        if let change, change.number == messages.count {
            if let answer = try await ask(change.to(body)) { try #require(answer.count <= 1 << 17) }
            throw Ended()
        }
        messages.append(body)
        guard let answer = try await ask(body) else { throw Ended() }
        var reader = RPCReader(answer)
        let number = try reader.uint32()
        let signature = try reader.bytes()
        if number == 0 {
            let code = ReturnCode(rawValue: try reader.number())
            try reader.end()
            throw code
        }
        try #require(number == function.rawValue)
        try #require(signature == Array(function.signatures.results.utf8))
        return reader
    }

    /// Initializes, and opens a session.
    func begin() async throws {
        _ = try await call(.initialize) { writer in
            writer.write(Self.handshake, room: .max)
            writer.write(byte: 0)
            writer.write([0], room: .max)
        }
        session = try await open()
    }

    func open(_ flags: UInt64 = 4) async throws -> UInt64 {
        var reader = try await call(.openSession) { writer in
            writer.write(0)
            writer.write(flags)
        }
        return try reader.number()
    }

    func find(_ template: [(AttributeType, AttributeValue)] = [], room: UInt32 = 100) async throws -> [UInt64] {
        _ = try await call(.findObjectsInit) { writer in
            writer.write(session)
            writer.write32(UInt32(template.count))
            for (type, value) in template { writer.write(type, value, isSizeOnly: false) }
        }
        var reader = try await call(.findObjects) { writer in
            writer.write(session)
            writer.write32(room)
        }
        var handles: [UInt64] = []
        if try reader.byte() == 1 { for _ in 0..<(try reader.uint32()) { handles.append(try reader.number()) } }
        _ = try await call(.findObjectsFinal) { $0.write(session) }
        return handles
    }

    func find(_ kind: TokenObject.Kind, _ label: String) async throws -> [UInt64] {
        try await find([(.objectClass, .number(kind.rawValue)), (.label, .bytes(Array(label.utf8)))])
    }

    /// Returns the values of attributes, and the code beside them.
    func attributes(
        _ handle: UInt64, _ types: [AttributeType], room: UInt32 = 4000
    ) async throws -> (values: [AttributeValue?], code: ReturnCode) {
        var reader = try await call(.getAttributeValue) { writer in
            writer.write(session)
            writer.write(handle)
            writer.write32(UInt32(types.count))
            for type in types {
                writer.write32(type.rawValue)
                writer.write32(room)
            }
        }
        let values = try reader.attributes()
        try #require(values.map(\.type) == types)
        return (values.map(\.value), ReturnCode(rawValue: try reader.number()))
    }

    func value(_ handle: UInt64, _ type: AttributeType) async throws -> AttributeValue? {
        try await attributes(handle, [type]).values[0]
    }

    func signInit(_ mechanism: UInt64, _ key: UInt64, _ parameters: [UInt8] = [0xff, 0xff, 0xff, 0xff]) async throws {
        _ = try await call(.signInit) { writer in
            writer.write(session)
            writer.write32(UInt32(truncatingIfNeeded: mechanism))
            for byte in parameters { writer.write(byte: byte) }
            writer.write(key)
        }
    }

    func signUpdate(_ data: [UInt8]) async throws {
        _ = try await call(.signUpdate) { writer in
            writer.write(session)
            writer.write(data, room: .max)
        }
    }

    /// `C_Sign` with data, `C_SignFinal` without.
    ///
    /// - Returns: A number is the size of the signature, for a caller with too little room.
    func sign(_ data: [UInt8]?, room: UInt32 = 1000) async throws -> (signature: [UInt8]?, size: Int) {
        var reader = try await call(data == nil ? .signFinal : .sign) { writer in
            writer.write(session)
            if let data { writer.write(data, room: .max) }
            writer.write32(room)
        }
        if try reader.byte() == 0 { return (nil, Int(try reader.uint32())) }
        let signature = try reader.bytes()
        return (signature, signature.count)
    }
}

/// The identities of a service, as a test changes them.
final class TestHost: Sendable {
    let served = Mutex<[ServedIdentity]?>([])

    init(_ served: [ServedIdentity] = []) { set(served) }

    func set(_ new: [ServedIdentity]?) { served.withLock { $0 = new } }

    func connection() -> TokenConnection {
        TokenConnection { [self] _ in
            served.withLock { $0.map(TokenObject.objects) }
        } signed: { _, _ in
        }
    }

    func dialogue() async throws -> TokenDialogue {
        let dialogue = TokenDialogue(connection())
        try await dialogue.begin()
        return dialogue
    }
}

extension ServedIdentity {
    init(_ name: String, _ identities: Identity..., grants: [Grants.Grant] = []) {
        self.init(name: name, identities: identities, grants: Grants(grants))
    }
}
