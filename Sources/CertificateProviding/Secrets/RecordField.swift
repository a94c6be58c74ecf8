/// A field of a record with private keys: a tag and some bytes, which stay in the record's memory until they are copied.
///
/// In a record, fields follow each other: the tag in one byte, the size in four bytes, big-endian, and the bytes. A record
/// without a private key is JSON instead.
package struct RecordField: Sendable {
    /// The record ends in the middle of a field.
    package struct CutOff: Error {}

    package let tag: UInt8
    private let memory: SecretBytes
    private let range: Range<Int>
    private static let headerSize = 5

    package init(_ tag: UInt8, _ content: SecretBytes) {
        (self.tag, memory, range) = (tag, content, 0..<content.count)
    }

    package init(_ tag: UInt8, _ content: some Collection<UInt8>) { self.init(tag, SecretBytes(copying: content)) }

    private init(_ tag: UInt8, _ memory: SecretBytes, _ range: Range<Int>) {
        (self.tag, self.memory, self.range) = (tag, memory, range)
    }

    /// Returns a record of these fields.
    package static func encode(_ fields: [RecordField]) -> SecretBytes {
        SecretBytes(count: fields.reduce(0) { $0 + headerSize + $1.range.count }) { buffer in
            var offset = 0
            for field in fields {
                buffer[offset] = field.tag
                buffer.storeBytes(of: UInt32(field.range.count).bigEndian, toByteOffset: offset + 1, as: UInt32.self)
                offset += headerSize
                field.withUnsafeBytes {
                    UnsafeMutableRawBufferPointer(rebasing: buffer[offset...]).copyMemory(from: $0)
                }
                offset += field.range.count
            }
        }
    }

    /// Returns the fields of a record.
    package static func decode(_ record: SecretBytes) throws(CutOff) -> [RecordField] {
        try record.withUnsafeBytes { bytes throws(CutOff) in
            var (fields, offset): ([RecordField], Int) = ([], 0)
            while offset < bytes.count {
                guard bytes.count - offset >= headerSize else { throw CutOff() }
                let tag = bytes[offset]
                let size = Int(UInt32(bigEndian: bytes.loadUnaligned(fromByteOffset: offset + 1, as: UInt32.self)))
                offset += headerSize
                guard size <= bytes.count - offset else { throw CutOff() }
                fields.append(RecordField(tag, record, offset..<offset + size))
                offset += size
            }
            return fields
        }
    }

    private func withUnsafeBytes<T>(_ body: (UnsafeRawBufferPointer) -> T) -> T {
        memory.withUnsafeBytes { body(UnsafeRawBufferPointer(rebasing: $0[range])) }
    }

    /// A copy of the content, which is wiped.
    package var secret: SecretBytes { withUnsafeBytes { SecretBytes(copying: $0) } }
    /// A copy of content that is not secret.
    package var bytes: [UInt8] { withUnsafeBytes(Array.init) }
    /// A copy of a text that is not secret.
    package var text: String { withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }
}
