import Foundation
import Mustache

/// Writes a connection and its settings as an Atom entry of OData 2.
struct AtomEntryWriter: Sendable {
    private let template: MustacheTemplate
    private let policy: PasswordPolicy

    init(policy: PasswordPolicy) throws {
        self.policy = policy
        template = try MustacheTemplate(
            string: """
                <?xml version="1.0" encoding="UTF-8"?>
                <entry xmlns="\(AtomNamespace.atom)" xmlns:m="\(AtomNamespace.metadata)" xmlns:d="\(AtomNamespace.data)">
                  <id>{{path}}</id>
                  <title type="text">{{id}}</title>
                  <updated>{{updated}}</updated>
                  <author><name/></author>
                  <link rel="edit" title="Connection" href="{{path}}"/>
                  <category term="applications.Connection" scheme="\(AtomNamespace.data)/scheme"/>
                  <content type="application/xml">
                    <m:properties>
                      <d:ApplicationConnectionId>{{id}}</d:ApplicationConnectionId>
                {{#properties}}
                      <d:{{name}}{{#type}} m:type="{{.}}"{{/type}}{{#isNull}} m:null="true"{{/isNull}}>{{value}}</d:{{name}}>
                {{/properties}}
                    </m:properties>
                  </content>
                </entry>

                """)
    }

    /// - Parameter path: The connection's URL without scheme and host: only the client knows what is in front of this server.
    func entry(for connection: Connection, path: String) -> String {
        let settable = ClientProperties.settable.sorted().map { name in
            Property(name: name, value: connection.properties[name])
        }
        let entry = Entry(
            id: connection.id, path: path, updated: connection.lastSeen.formatted(.iso8601),
            properties: settable + policy.properties.map(Property.init))
        return template.render(entry)
    }

    private struct Entry {
        var id: String
        var path: String
        var updated: String
        var properties: [Property]
    }

    private struct Property {
        var name: String
        var type: String?
        var value: String
        var isNull: Bool

        init(name: String, value: String?) {
            self.name = name
            self.value = value ?? ""
            isNull = value == nil
        }

        init(_ property: ServerProperty) {
            name = property.name
            isNull = false
            switch property.value {
            case .boolean(let flag):
                type = "Edm.Boolean"
                value = "\(flag)"
            case .integer(let number):
                type = "Edm.Int32"
                value = "\(number)"
            }
        }
    }
}
