import Foundation
import FoundationXML

/// Reads the properties of an Atom entry (RFC 4287) in the form of OData 2: `entry/content/m:properties/d:NAME`.
enum AtomEntryReader {
    static let maximumBodyLength = 64 * 1024

    struct Failure: Error {
        /// A sentence for the client.
        let message: String
    }

    /// Bounded in size by the caller, and in depth and number here. A document type is refused: it could define entities.
    static func properties(in body: Data) throws -> ClientProperties {
        guard let text = String(data: body, encoding: .utf8), !text.contains("\0") else {
            throw Failure(message: "The body is not UTF-8.")
        }
        guard !text.contains("<!DOCTYPE") else { throw Failure(message: "A document type is not allowed.") }
        let delegate = Delegate()
        let parser = XMLParser(data: body)
        parser.shouldProcessNamespaces = true
        parser.shouldResolveExternalEntities = false
        parser.delegate = delegate
        let isWellFormed = parser.parse()
        if let message = delegate.problem { throw Failure(message: message) }
        guard isWellFormed else { throw Failure(message: "The body is not well-formed XML.") }
        guard delegate.hasProperties else {
            throw Failure(message: "The body is not an Atom entry whose content is m:properties.")
        }
        return delegate.properties
    }

    private final class Delegate: NSObject, XMLParserDelegate {
        private static let maximumDepth = 16
        private static let path = [
            Element(name: "entry", namespace: AtomNamespace.atom),
            Element(name: "content", namespace: AtomNamespace.atom),
            Element(name: "properties", namespace: AtomNamespace.metadata),
        ]

        struct Element: Equatable {
            var name: String
            var namespace: String
        }

        var properties: ClientProperties = [:]
        var hasProperties = false
        var problem: String?
        private var ancestors: [Element] = []
        private var value = ""

        private var isInProperties: Bool { ancestors.starts(with: Self.path) }

        private func refuse(_ message: String, _ parser: XMLParser) {
            if problem == nil { problem = message }
            parser.abortParsing()
        }

        func parser(
            _ parser: XMLParser, didStartElement name: String, namespaceURI: String?, qualifiedName: String?,
            attributes: [String: String]
        ) {
            let element = Element(name: name, namespace: namespaceURI ?? "")
            if isInProperties {
                guard ancestors.count == Self.path.count, element.namespace == AtomNamespace.data else {
                    return refuse("m:properties has another child than simple properties of the namespace d.", parser)
                }
                guard properties[name] == nil else { return refuse("A property appears twice.", parser) }
                guard ClientProperties.settable.contains(name) else {
                    return refuse("A property is unknown, or only the server sets it.", parser)
                }
                value = ""
            }
            ancestors.append(element)
            if ancestors == Self.path { hasProperties = true }
            if ancestors.count > Self.maximumDepth { refuse("The elements are nested too deeply.", parser) }
        }

        func parser(_ parser: XMLParser, foundCharacters characters: String) {
            guard ancestors.count > Self.path.count, isInProperties else { return }
            value += characters
            if value.utf8.count > ClientProperties.maximumValueLength {
                refuse("The value of a property has more than \(ClientProperties.maximumValueLength) bytes.", parser)
            }
        }

        func parser(_ parser: XMLParser, foundCDATA block: Data) {
            self.parser(parser, foundCharacters: String(decoding: block, as: UTF8.self))
        }

        func parser(_ parser: XMLParser, didEndElement name: String, namespaceURI: String?, qualifiedName: String?) {
            if ancestors.count == Self.path.count + 1, isInProperties { properties[name] = value }
            _ = ancestors.popLast()
        }

        /// XMLParser.parse() returns true after some of these errors, such as an end tag of another element.
        func parser(_ parser: XMLParser, parseErrorOccurred error: any Error) {
            refuse("The body is not well-formed XML.", parser)
        }
    }
}

enum AtomNamespace {
    static let atom = "http://www.w3.org/2005/Atom"
    static let metadata = "http://schemas.microsoft.com/ado/2007/08/dataservices/metadata"
    static let data = "http://schemas.microsoft.com/ado/2007/08/dataservices"
}
