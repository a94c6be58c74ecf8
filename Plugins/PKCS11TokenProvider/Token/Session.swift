import CP11Kit
import CertificateProviding
import Dispatch
import Synchronization

/// An open session with a token, which its pool closes.
///
/// Goes from thread to thread but is used by one at a time, which its pool sees to: modules crash when two share one.
/// Once it has been retired no call is made with it: its handle may be another session's by then.
final class Session: Sendable {
    let module: Module
    let handle: CK_SESSION_HANDLE
    private let generation: Int
    private let phase = Atomic(Phase.idle)
    private let left = DispatchSemaphore(value: 0)

    private enum Phase: UInt8, AtomicRepresentable {
        case idle, calling
        /// Retired in the middle of a call.
        case leaving
        /// As long as nobody waits for that call: its own thread closes the session.
        case late
        /// Not closed yet.
        case retired
        case closed
    }

    /// Opens a session. Blocks.
    init(slot: Slot, readWrite: Bool = false) throws(CryptokiError) {
        var handle: CK_SESSION_HANDLE = 0
        let generation = slot.module.generation
        let flags = CK_FLAGS(CKF_SERIAL_SESSION) | (readWrite ? CK_FLAGS(CKF_RW_SESSION) : 0)
        try slot.module.call("C_OpenSession", in: generation) { $0.C_OpenSession?(slot.id, flags, nil, nil, &handle) }
        self.module = slot.module
        self.generation = generation
        self.handle = handle
        module.holders.withLock { $0[handle] = ObjectIdentifier(self) }
    }

    deinit { module.holders.withLock { if $0[handle] == ObjectIdentifier(self) { $0[handle] = nil } } }

    /// Whether the module that has given the handle is still the one that runs.
    var isOfThisModule: Bool { module.generation == generation }

    /// Calls a function with the handle. Blocks for as long as the module likes.
    ///
    /// - Throws: `CKR_SESSION_CLOSED` where the session is over, without a call.
    func call(_ name: String, _ body: (borrowing CK_FUNCTION_LIST) -> CK_RV?) throws(CryptokiError) {
        guard moves(from: .idle, to: .calling) else {
            throw CryptokiError(function: name, code: CKR_SESSION_CLOSED, origin: .notMade)
        }
        var isThere = false
        defer { leave(isThere) }
        try module.call(name, in: generation, body)
        isThere = true
    }

    /// - Parameter isThere: Whether the session was still there when the call worked.
    private func leave(_ isThere: Bool) {
        if moves(from: .calling, to: .idle) { return }
        if moves(from: .leaving, to: .retired) {
            left.signal()
        } else if isThere, moves(from: .late, to: .closed) {
            // The token may have been away since. Nobody gets the handle anew in between.
            module.opening.withLock { _ in
                guard module.holders.withLock({ $0[handle] == ObjectIdentifier(self) }) else { return }
                try? module.call("C_CloseSession", in: generation) { $0.C_CloseSession?(handle) }
            }
        }
    }

    /// Closes the session, once. Blocks.
    func close() {
        guard module.isOfThisProcess else { return }
        try? call("C_CloseSession") { $0.C_CloseSession?(handle) }
        abandon()
    }

    /// Leaves the session as it is: it is gone, and its handle may already be another session's.
    func abandon() { _ = moves(from: .idle, to: .closed) }

    /// Lets no further call begin, from whichever thread.
    func retire() {
        while !moves(from: .idle, to: .retired), !moves(from: .calling, to: .leaving) {
            if phase.load(ordering: .acquiring).rawValue >= Phase.leaving.rawValue { return }
        }
    }

    /// Closes a retired session when the call that is going on has ended. To one that takes longer it is left.
    func closeRetired(by deadline: DispatchTime) {
        if phase.load(ordering: .acquiring) == .leaving, left.wait(timeout: deadline) == .timedOut,
            moves(from: .leaving, to: .late)
        {
            return
        }
        guard moves(from: .retired, to: .closed) else { return }
        try? module.call("C_CloseSession", in: generation) { $0.C_CloseSession?(handle) }
    }

    private func moves(from old: Phase, to new: Phase) -> Bool {
        phase.compareExchange(expected: old, desired: new, ordering: .acquiringAndReleasing).exchanged
    }

    /// Returns the handles of the objects that have all of `attributes`. Only handles: a token may hold more objects
    /// than anybody wants in memory.
    func objects(with attributes: [Attribute]) throws(CryptokiError) -> [CK_OBJECT_HANDLE] {
        try Attribute.withTemplate(attributes) { template, count throws(CryptokiError) in
            try call("C_FindObjectsInit") { $0.C_FindObjectsInit?(handle, template, count) }
        }
        defer { try? call("C_FindObjectsFinal") { $0.C_FindObjectsFinal?(handle) } }
        var found: [CK_OBJECT_HANDLE] = []
        var seen = Set<CK_OBJECT_HANDLE>()
        var batch = [CK_OBJECT_HANDLE](repeating: 0, count: 256)
        while found.count < Self.maximumObjects {
            var count: CK_ULONG = 0
            try call("C_FindObjects") { $0.C_FindObjects?(handle, &batch, CK_ULONG(batch.count), &count) }
            let new = batch.prefix(min(Int(clamping: count), batch.count)).filter { seen.insert($0).inserted }
            // Some begin anew at the end.
            guard !new.isEmpty else { break }
            found += new
        }
        return found
    }

    /// A module that goes on for ever is not followed there.
    private static let maximumObjects = 1_000_000

    /// The largest attribute that is read. Certificates with everything in them stay far below.
    private static let maximumAttributeSize = 1 << 20

    /// `CK_UNAVAILABLE_INFORMATION`, a macro that Swift does not see.
    private static let unavailable = CK_ULONG.max

    /// Reads one attribute; `nil` when the object has none or it may not be seen.
    ///
    /// - Throws: Also when the module reports a length and then returns another, larger one.
    func attribute(_ type: CK_ATTRIBUTE_TYPE, of object: CK_OBJECT_HANDLE) throws(CryptokiError) -> [UInt8]? {
        // It may have grown meanwhile: asked for again, once.
        for _ in 0..<2 {
            var template = CK_ATTRIBUTE(type: type, pValue: nil, ulValueLen: 0)
            do throws(CryptokiError) {
                try call("C_GetAttributeValue") { $0.C_GetAttributeValue?(handle, object, &template, 1) }
            } catch {
                if error.code == CKR_ATTRIBUTE_TYPE_INVALID || error.code == CKR_ATTRIBUTE_SENSITIVE { return nil }
                throw error
            }
            guard template.ulValueLen != Self.unavailable else { return nil }
            let size = Int(clamping: template.ulValueLen)
            guard size > 0 else { return [] }
            guard size <= Self.maximumAttributeSize else {
                throw CryptokiError(function: "C_GetAttributeValue", code: CKR_ATTRIBUTE_VALUE_INVALID)
            }
            let value = UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 1)
            defer { value.deallocate() }
            template.pValue = value.baseAddress
            do throws(CryptokiError) {
                try call("C_GetAttributeValue") { $0.C_GetAttributeValue?(handle, object, &template, 1) }
            } catch {
                if error.code == CKR_BUFFER_TOO_SMALL { continue }
                throw error
            }
            guard template.ulValueLen != Self.unavailable else { return nil }
            guard template.ulValueLen <= CK_ULONG(size) else {
                throw CryptokiError(function: "C_GetAttributeValue", code: CKR_ATTRIBUTE_VALUE_INVALID)
            }
            return Array(value.prefix(Int(template.ulValueLen)))
        }
        throw CryptokiError(function: "C_GetAttributeValue", code: CKR_BUFFER_TOO_SMALL)
    }

    /// Reads a number, such as `CKA_KEY_TYPE`; `nil` when there is none or it is no number.
    func number(_ type: CK_ATTRIBUTE_TYPE, of object: CK_OBJECT_HANDLE) throws(CryptokiError) -> CK_ULONG? {
        guard let bytes = try attribute(type, of: object), bytes.count == MemoryLayout<CK_ULONG>.size else {
            return nil
        }
        return bytes.withUnsafeBytes { $0.loadUnaligned(as: CK_ULONG.self) }
    }

    /// Reads a truth value; `nil` when there is none.
    func flag(_ type: CK_ATTRIBUTE_TYPE, of object: CK_OBJECT_HANDLE) throws(CryptokiError) -> Bool? {
        try attribute(type, of: object).flatMap { $0.count == 1 ? $0[0] != 0 : nil }
    }
}
