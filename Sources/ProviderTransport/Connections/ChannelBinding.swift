import CertificateProviding
import Crypto
import NIOCore
import Synchronization

/// The channel binding of a TLS connection: `tls-unique` (RFC 5929, section 3.1) in TLS 1.2, `tls-exporter` (RFC 9266)
/// in TLS 1.3.
///
/// SwiftNIO SSL has no function for either. Both are computed from the secrets that it exports for decrypting packet
/// captures. Those secrets stay in this object and are wiped with it.
final class ChannelBinding: Sendable {
    private struct State {
        var masterSecret: SecretBytes?
        /// TLS 1.2: whether a renegotiation has begun. The transcript is then that of another handshake.
        var isRenegotiated = false
        var exporterSecret: SecretBytes?
        /// TLS 1.2: all handshake messages up to the client's `ChangeCipherSpec`.
        var transcript: [UInt8] = []
    }
    private let state = Mutex(State())

    /// Takes the lines of the key log (NSS format).
    var secretsCallback: @Sendable (ByteBuffer) -> Void {
        { [weak self] line in self?.note(line) }
    }

    func makeRecorder() -> HandshakeRecorder {
        HandshakeRecorder { [weak self] messages in self?.state.withLock { $0.transcript = messages } }
    }

    /// Whether the connection is one of TLS 1.3; false before the handshake is complete.
    var isOfTLS13: Bool { state.withLock { $0.exporterSecret != nil } }

    /// The binding's octets; `nil` before the handshake is complete, and after a renegotiation.
    var value: [UInt8]? {
        let state = state.withLock { $0 }
        if let secret = state.exporterSecret {
            return secret.count == SHA384.byteCount
                ? Self.exported(secret, SHA384.self) : Self.exported(secret, SHA256.self)
        }
        guard let secret = state.masterSecret, let suite = Self.cipherSuite(in: state.transcript) else { return nil }
        return Self.usesSHA384(suite)
            ? Self.clientFinished(secret, state.transcript, SHA384.self)
            : Self.clientFinished(secret, state.transcript, SHA256.self)
    }

    private func note(_ line: ByteBuffer) {
        let words = line.readableBytesView.split(whereSeparator: { $0 <= 0x20 })
        guard words.count == 3, let secret = Self.bytes(ofHexadecimal: words[2]) else { return }
        state.withLock { state in
            switch String(decoding: words[0], as: UTF8.self) {
            case "CLIENT_RANDOM" where state.masterSecret == nil && !state.isRenegotiated: state.masterSecret = secret
            case "CLIENT_RANDOM": (state.masterSecret, state.isRenegotiated) = (nil, true)
            case "EXPORTER_SECRET": state.exporterSecret = secret
            default: break
            }
        }
    }

    private static func bytes(ofHexadecimal digits: ByteBufferView) -> SecretBytes? {
        let values = digits.map { Character(UnicodeScalar($0)).hexDigitValue.map(UInt8.init) }
        guard values.count.isMultiple(of: 2), !values.contains(nil) else { return nil }
        let numbers = values.compactMap { $0 }
        return SecretBytes(
            copying: stride(from: 0, to: numbers.count, by: 2).map { numbers[$0] << 4 | numbers[$0 + 1] })
    }

    // MARK: - TLS 1.3

    /// `TLS-Exporter("EXPORTER-Channel-Binding", "", 32)` (RFC 8446, section 7.5; RFC 9266, section 2).
    private static func exported<H: HashFunction>(_ secret: SecretBytes, _: H.Type) -> [UInt8] {
        let nothing = Array(H.hash(data: [UInt8]()))
        let key = secret.withUnsafeBytes { SymmetricKey(data: $0) }
        let derived = expand(key, "EXPORTER-Channel-Binding", nothing, H.Digest.byteCount, H.self)
        return expand(SymmetricKey(data: derived), "exporter", nothing, 32, H.self)
    }

    /// `HKDF-Expand-Label` (RFC 8446, section 7.1).
    private static func expand<H: HashFunction>(
        _ key: SymmetricKey, _ label: String, _ context: [UInt8], _ count: Int, _: H.Type
    ) -> [UInt8] {
        let name = Array("tls13 \(label)".utf8)
        let info =
            [UInt8(count >> 8), UInt8(count & 0xff), UInt8(name.count)] + name + [UInt8(context.count)] + context
        return HKDF<H>.expand(pseudoRandomKey: key, info: info, outputByteCount: count).withUnsafeBytes { Array($0) }
    }

    // MARK: - TLS 1.2

    /// The `verify_data` of the client's `Finished` (RFC 5246, section 7.4.9), which is the first of a connection that
    /// resumes no session.
    private static func clientFinished<H: HashFunction>(
        _ secret: SecretBytes, _ transcript: [UInt8], _: H.Type
    ) -> [UInt8] {
        let key = secret.withUnsafeBytes { SymmetricKey(data: $0) }
        let seed = Array("client finished".utf8) + Array(H.hash(data: transcript))
        // P_hash (section 5); its first block has more than the twelve octets.
        let first = Array(HMAC<H>.authenticationCode(for: seed, using: key))
        return Array(HMAC<H>.authenticationCode(for: first + seed, using: key).prefix(12))
    }

    /// Whether the server has requested a certificate in plaintext, as TLS 1.2 does (section 7.4.4).
    var hasCertificateRequest: Bool { Self.message(13, in: state.withLock(\.transcript)) != nil }

    /// Returns the cipher suite of the `ServerHello` (section 7.4.1.3).
    private static func cipherSuite(in transcript: [UInt8]) -> UInt16? {
        // Version, random, session.
        guard let session = message(2, in: transcript)?.dropFirst(34), let count = session.first else { return nil }
        let suite = Array(session.dropFirst(1 + Int(count)).prefix(2))
        return suite.count == 2 ? UInt16(suite[0]) << 8 | UInt16(suite[1]) : nil
    }

    /// Returns the first message of a type (section 7.4), without its header.
    private static func message(_ wanted: UInt8, in transcript: [UInt8]) -> ArraySlice<UInt8>? {
        var rest = transcript[...]
        while rest.count >= 4, let type = rest.first {
            let bytes = Array(rest.prefix(4))
            let message = rest.dropFirst(4).prefix(Int(bytes[1]) << 16 | Int(bytes[2]) << 8 | Int(bytes[3]))
            if type == wanted { return message }
            rest = rest.dropFirst(4 + message.count)
        }
        return nil
    }

    /// Whether a cipher suite uses SHA-384. Of the suites that are offered, only these do (RFC 5289); all others use
    /// SHA-256.
    private static func usesSHA384(_ suite: UInt16) -> Bool { [0xc02c, 0xc030].contains(suite) }
}

/// Observes the records of a TLS connection (RFC 5246, section 6.2.1) and collects the plaintext handshake messages.
final class HandshakeRecorder: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let done: (_ messages: [UInt8]) -> Void
    private var messages: [UInt8] = []
    private var (inbound, outbound) = (ByteBuffer(), ByteBuffer())
    private var isOver = false

    /// In bytes. TLS itself fails on larger handshakes.
    private static let maximumSize = 1 << 20

    init(done: @escaping (_ messages: [UInt8]) -> Void) { self.done = done }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        record(unwrapInboundIn(data), \.inbound, isOwn: false)
        context.fireChannelRead(data)
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        record(unwrapOutboundIn(data), \.outbound, isOwn: true)
        context.write(data, promise: promise)
    }

    private func record(
        _ bytes: ByteBuffer, _ place: ReferenceWritableKeyPath<HandshakeRecorder, ByteBuffer>, isOwn: Bool
    ) {
        guard !isOver else { return }
        self[keyPath: place].writeImmutableBuffer(bytes)
        while !isOver {
            let start = self[keyPath: place].readerIndex
            guard let type: UInt8 = self[keyPath: place].getInteger(at: start),
                let count: UInt16 = self[keyPath: place].getInteger(at: start + 3),
                let payload = self[keyPath: place].getBytes(at: start + 5, length: Int(count))
            else { return }
            self[keyPath: place].moveReaderIndex(forwardBy: 5 + Int(count))
            switch type {
            case 22: messages += payload
            // All that we send from here on is encrypted. Later plaintext of the server is not covered by our Finished.
            case 20 where isOwn: end()
            case 20: break
            default: end()
            }
            if messages.count > Self.maximumSize { end() }
        }
    }

    private func end() {
        isOver = true
        done(messages)
        (messages, inbound, outbound) = ([], ByteBuffer(), ByteBuffer())
    }
}
