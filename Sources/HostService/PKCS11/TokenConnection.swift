import CertificateProviding
import HostSockets

/// The token as one connection has it: its sessions, and its handles. One call at a time.
actor TokenConnection {
    /// Returns what the caller may use at this moment, when it wants to use an identity, or to see all. `nil` if its process has ended.
    typealias View = @Sendable (_ identity: String?) async -> [TokenObject]?

    private struct Signing {
        let object: TokenObject.ID
        let schemes: [SignatureScheme]
        let size: Int
        /// The parts so far; `nil` before `C_SignUpdate`.
        var data: [UInt8]?
    }
    private struct Session {
        /// The objects that are still to be told.
        var found: ArraySlice<UInt64>?
        var signing: Signing?
    }

    private let view: View
    private let signed: Signed
    /// The keys that have signed for this caller.
    private var used: Set<TokenObject.ID> = []
    private var isInitialized = false
    private var sessions: [UInt64: Session] = [:]
    private var handles: [TokenObject.ID: UInt64] = [:]

    private static let maximumHandles = 1024, maximumFound = 1000
    /// The bytes of all signatures that are being made of parts.
    private static let maximumData = RPCFrame.largest
    private static let handshake = Array("PRIVATE-GNOME-KEYRING-PKCS11-PROTOCOL-V-1".utf8)

    /// Is called with the error of a key, and without one after its first signature.
    typealias Signed = @Sendable (TokenObject, (any Error)?) -> Void

    init(view: @escaping View, signed: @escaping Signed) { (self.view, self.signed) = (view, signed) }

    /// The caller's process has ended: the connection ends, whichever process has it now.
    private struct Ended: Error {}

    /// Returns the answer to a message; `nil` to end the connection.
    func answer(_ body: [UInt8]) async -> [UInt8]? {
        do { return try await call(body) } catch let code as ReturnCode { return RPCWriter(code).bytes } catch {
            return nil
        }
    }

    private func call(_ body: [UInt8]) async throws -> [UInt8] {
        var reader = RPCReader(body)
        let number = try reader.uint32()
        guard let function = RPCFunction(rawValue: number) else { throw ReturnCode.functionNotSupported }
        let signatures = function.signatures
        guard try reader.bytes() == Array(signatures.arguments.utf8) else { throw ReturnCode.argumentsBad }
        guard isInitialized || function == .initialize else { throw ReturnCode.cryptokiNotInitialized }
        var writer = RPCWriter(number, signatures.results)
        switch function {
        case .initialize, .finalize, .getInfo, .waitForSlotEvent: try general(function, &reader, &writer)
        case .getSlotList, .getSlotInfo, .getTokenInfo, .getMechanismList, .getMechanismInfo:
            try TokenSlot.answer(function, sessions: sessions.count, &reader, &writer)
        case .openSession, .closeSession, .closeAllSessions, .getSessionInfo, .login, .logout, .generateRandom:
            try session(function, &reader, &writer)
        case .getAttributeValue: try await attributes(&reader, &writer)
        case .findObjectsInit, .findObjects, .findObjectsFinal: try await find(function, &reader, &writer)
        case .signInit, .sign, .signUpdate, .signFinal: try await sign(function, &reader, &writer)
        }
        return writer.bytes
    }

    private func general(_ function: RPCFunction, _ reader: inout RPCReader, _ writer: inout RPCWriter)
        throws(ReturnCode)
    {
        switch function {
        case .initialize:
            let handshake = try reader.optionalBytes()
            _ = try reader.byte()
            _ = try reader.optionalBytes()
            try reader.end()
            guard handshake == Self.handshake else { throw .argumentsBad }
            guard !isInitialized else { throw .cryptokiAlreadyInitialized }
            isInitialized = true
        case .finalize:
            try reader.end()
            isInitialized = false
            sessions = [:]
        case .waitForSlotEvent:
            let flags = try reader.number()
            try reader.end()
            // CKF_DONT_BLOCK.
            throw flags & 1 == 1 ? .noEvent : .functionNotSupported
        default:
            try reader.end()
            writer.write(version: 2, 40)
            writer.write("certprov", padded: 32)
            writer.write(0)
            writer.write("certprov serve", padded: 32)
            writer.write(version: 0, 1)
        }
    }

    // MARK: - Sessions

    private func session(
        _ function: RPCFunction, _ reader: inout RPCReader, _ writer: inout RPCWriter
    ) throws(ReturnCode) {
        let number = try reader.number()
        if function == .openSession {
            guard number == TokenSlot.id else { throw .slotIDInvalid }
            let flags = try reader.number()
            try reader.end()
            // CKF_SERIAL_SESSION and CKF_RW_SESSION.
            guard flags & 4 != 0 else { throw .sessionParallelNotSupported }
            guard flags & 2 == 0 else { throw .tokenWriteProtected }
            guard sessions.count < TokenSlot.maximumSessions else { throw .sessionCount }
            let handle = newHandle { sessions[$0] != nil }
            sessions[handle] = Session()
            return writer.write(handle)
        }
        if function == .closeAllSessions {
            try reader.end()
            guard number == TokenSlot.id else { throw .slotIDInvalid }
            return sessions = [:]
        }
        guard sessions[number] != nil else { throw .sessionHandleInvalid }
        switch function {
        case .closeSession:
            try reader.end()
            sessions[number] = nil
        case .getSessionInfo:
            try reader.end()
            // CKS_RO_USER_FUNCTIONS, without which strongSwan logs in first; CKF_SERIAL_SESSION; no error of a device.
            for value in [TokenSlot.id, 1, 4, 0] { writer.write(value) }
        case .login: throw .userPINNotInitialized
        case .logout: throw .userNotLoggedIn
        default: throw .randomNoRNG
        }
    }

    /// Handles of other connections are not among them, but by chance.
    private func newHandle(isTaken: (UInt64) -> Bool) -> UInt64 {
        while true {
            // CK_ULONG has 32 bits in programs for 32 bits, and all of them set is not a handle.
            let handle = UInt64(UInt32.random(in: 1..<UInt32.max))
            if !isTaken(handle) { return handle }
        }
    }

    private func requireSession(_ reader: inout RPCReader) throws(ReturnCode) -> UInt64 {
        let number = try reader.number()
        guard sessions[number] != nil else { throw .sessionHandleInvalid }
        return number
    }

    // MARK: - Objects

    private func objects(_ identity: String? = nil) async throws -> [TokenObject] {
        guard let objects = await view(identity) else { throw Ended() }
        return objects
    }

    private func object(_ handle: UInt64, or code: ReturnCode) async throws -> TokenObject {
        guard let id = handles.first(where: { $0.value == handle })?.key else { throw code }
        return try await object(id, or: code)
    }

    private func object(_ id: TokenObject.ID, or code: ReturnCode) async throws -> TokenObject {
        guard let object = try await objects(id.label).first(where: { $0.id == id }) else { throw code }
        return object
    }

    private func find(
        _ function: RPCFunction, _ reader: inout RPCReader, _ writer: inout RPCWriter
    ) async throws {
        let session = try requireSession(&reader)
        switch function {
        case .findObjectsInit:
            let template = try reader.attributes()
            try reader.end()
            guard sessions[session]?.found == nil else { throw ReturnCode.operationActive }
            let objects = try await objects()
            // Each renewal brings new ones.
            if handles.count > Self.maximumHandles {
                let present = Set(objects.map(\.id))
                handles = handles.filter { present.contains($0.key) }
            }
            var known: [UInt64] = []
            for object in objects where object.matches(template) {
                let handle = handles[object.id] ?? newHandle { new in handles.contains { $0.value == new } }
                handles[object.id] = handle
                known.append(handle)
            }
            sessions[session]?.found = known[...]
        case .findObjects:
            // GnuTLS has room for 8192.
            let room = min(try reader.numberRoom(), Self.maximumFound)
            try reader.end()
            guard let found = sessions[session]?.found else { throw ReturnCode.operationNotInitialized }
            sessions[session]?.found = found.dropFirst(room)
            writer.write(numbers: Array(found.prefix(room)), room: room)
        default:
            try reader.end()
            guard sessions[session]?.found != nil else { throw ReturnCode.operationNotInitialized }
            sessions[session]?.found = nil
        }
    }

    private func attributes(_ reader: inout RPCReader, _ writer: inout RPCWriter) async throws {
        _ = try requireSession(&reader)
        let handle = try reader.number()
        let rooms = try reader.attributeRooms()
        try reader.end()
        let object = try await object(handle, or: .objectHandleInvalid)
        var result = ReturnCode.ok
        writer.write32(UInt32(rooms.count))
        for (type, room) in rooms {
            var value: AttributeValue?
            do throws(ReturnCode) {
                let found = try object.value(of: type)
                guard room == 0 || found.size <= room else { throw .bufferTooSmall }
                value = found
            } catch { result = error }
            writer.write(type, value, isSizeOnly: room == 0)
        }
        writer.write(result.rawValue)
    }

    // MARK: - Signatures

    private func sign(
        _ function: RPCFunction, _ reader: inout RPCReader, _ writer: inout RPCWriter
    ) async throws {
        let session = try requireSession(&reader)
        if function == .signInit {
            let (mechanism, key) = try reader.mechanismAndKey()
            guard let mechanism else {
                sessions[session]?.signing = nil
                return
            }
            guard sessions[session]?.signing == nil else { throw ReturnCode.operationActive }
            let object = try await object(key, or: .keyHandleInvalid)
            sessions[session]?.signing = Signing(
                object: object.id, schemes: try object.schemes(for: mechanism.type, mechanism.parameters),
                size: object.signatureSize)
            return
        }
        let data = function == .signFinal ? [] : try reader.optionalBytes()
        let room = function == .signUpdate ? nil : try reader.room()
        try reader.end()
        guard var signing = sessions[session]?.signing else { throw ReturnCode.operationNotInitialized }
        if function == .signUpdate {
            let total = sessions.values.reduce(data.count) { $0 + ($1.signing?.data?.count ?? 0) }
            guard total <= Self.maximumData else {
                sessions[session]?.signing = nil
                throw ReturnCode.dataLengthRange
            }
            signing.data = (signing.data ?? []) + data
            sessions[session]?.signing = signing
            return
        }
        // The operation goes on if the caller has asked for the size, or has too little room.
        guard let room, room >= signing.size else {
            return writer.write(Array(repeating: 0, count: signing.size), room: nil)
        }
        sessions[session]?.signing = nil
        guard function == .signFinal || signing.data == nil else { throw ReturnCode.operationActive }
        let object = try await object(signing.object, or: .keyHandleInvalid)
        let signature: [UInt8]
        do {
            signature = try await object.signature(of: signing.data ?? data, by: signing.schemes)
        } catch let code as ReturnCode { throw code } catch {
            signed(object, error)
            throw ReturnCode.deviceError
        }
        // A token may take minutes. The caller may have lost its grant since then, or its process may have ended.
        _ = try await self.object(signing.object, or: .keyHandleInvalid)
        writer.write(signature, room: room)
        if used.insert(object.id).inserted { signed(object, nil) }
    }
}
