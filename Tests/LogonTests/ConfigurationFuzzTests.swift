import CertificateProviding
import TestSupport
import Testing

@testable import Logon

/// Damaged files, beginning with the same ones in every run. Whatever is in them, the answer is settings or a typed
/// error.
@Suite struct ConfigurationFuzzTests {
    private static let seeds: [FileForm: [String]] = [
        .properties: [
            "# c\r\nHost = h.example\nPort: 8082\nCertificateProvider \\\n  pkcs12, mdm\n",
            "a\\ b=\\ud83d\\ude00\\u00e9\\t\\\\\n! x\nCertificateProvider.pkcs12.path = /a/\\\r\n\tb\nHTTPS=true",
        ],
        .plist: [
            FileForm.plist.text([("Host", "h&amp;<![CDATA[<x>]]>&#x1F600;"), ("CertificateProvider", "pkcs12")]),
            """
            <!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "x"><plist><dict><key>Port</key><integer>1</integer>
            <!-- c --><key>CertificateProvider.pkcs12</key><dict><key>path</key><string>é</string></dict>
            <key>l</key><array><string>a</string><string/></array><key>HTTPS</key><true/><key>d</key><data>AA==</data>
            <key>r</key><real>1.5</real></dict></plist>
            """,
        ],
    ]

    private static let tokens: [[UInt8]] =
        [
            "\\", "\\u", "\\ud800", "\\\n", "\r", "\n", "=", ":", "#", "<", ">", "</", "<!--", "-->", "<![CDATA[",
            "]]>",
            "&", "&#", ";", "<dict>", "</dict>", "<key>", "</key>", "<key/>", "<string>", "<array>", "<true/>", "[",
            "\0",
            "<?", "?>", "<!DOCTYPE", "<integer>", "<real>", "<data>", "<date>", "é", "\u{301}",
        ].map { Array($0.utf8) } + [[0xff], [0xc3], [0xed, 0xa0, 0x80], [0xef, 0xbb, 0xbf]]

    private static func mutate(_ bytes: [UInt8], _ generator: inout SeededGenerator) -> [UInt8] {
        var bytes = bytes
        for _ in 0..<Int.random(in: 1...4, using: &generator) {
            let place = Int.random(in: 0...bytes.count, using: &generator)
            let end = min(bytes.count, place + Int.random(in: 0...12, using: &generator))
            switch Int.random(in: 0..<5, using: &generator) {
            case 0 where place < bytes.count: bytes[place] ^= 1 << UInt8.random(in: 0..<8, using: &generator)
            case 1: bytes.insert(contentsOf: tokens.randomElement(using: &generator) ?? [], at: place)
            case 2: bytes.removeSubrange(place..<end)
            case 3: bytes.insert(contentsOf: Array(bytes[place..<end]), at: place)
            default: bytes = Array(bytes.prefix(place))
            }
        }
        return bytes
    }

    @Test("A damaged configuration file gives settings or an error that names the file", arguments: FileForm.allCases)
    func onlyEverThrowTypedErrors(form: FileForm) throws {
        let registry = try registry()
        var generator = SeededGenerator(seed: 20_260_101)
        var (accepted, refused) = (0, 0)
        var rounds = FuzzRounds(atLeast: 4000)
        while rounds.next() {
            let seed = try #require(Self.seeds[form]?.randomElement(using: &generator))
            let bytes = Self.mutate(Array(seed.utf8), &generator)
            do throws(ProviderError) {
                let settings = try ConfigurationFile(path: form.fileName, bytes: bytes).settings()
                _ = try SettingsReader(settings, registry: registry).configuration()
                accepted += 1
            } catch {
                refused += 1
                #expect(error.code == .configurationInvalid)
                #expect(error.message.hasPrefix("\(form.fileName):"))
            }
        }
        // Some are accepted and some refused: the loop does reach the code behind the parser.
        #expect(accepted > 0 && refused > 0)
    }
}
