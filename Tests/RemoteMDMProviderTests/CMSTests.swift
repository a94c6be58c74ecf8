import CertificateProviding
import Foundation
import OpenSSLSupport
import SwiftASN1
import Synchronization
import TestSupport
import Testing

@testable import RemoteMDMProvider

/// Our CMS messages against those of the `openssl` command, in both directions.
@Suite struct CMSTests {
    let library = OpenSSLLibrary()
    let signer = Result { try CertifiedKey.authority.get() }
    let content = Array("what is said".utf8)
    let attribute = CMSAttribute("2.16.840.1.113733.1.9.7", .printableString("transaction"))

    private func folder() throws -> TemporaryDirectory {
        let folder = try TemporaryDirectory()
        try OpenSSLCommand.write(signer.get(), "signer", to: folder)
        try folder.write(content, to: "content")
        return folder
    }

    private func sign(_ content: [UInt8]?, digest: String = "SHA256") throws -> [UInt8] {
        try library.signedData(
            content, attributes: [attribute], signer: signer.get().cmsIdentity(in: library), digest: digest)
    }

    @Test(
        "A CMS message signed by the openssl command passes verification",
        arguments: ["sha1", "sha256", "sha384", "sha512"])
    func weVerifyOpenssls(digest: String) throws {
        let folder = try folder()
        try Subprocess.openssl(
            "cms", "-sign", "-in", "content", "-signer", "signer.pem", "-inkey", "signer.key", "-md", digest,
            "-outform",
            "DER", "-nodetach", "-binary", "-out", "message", in: folder.path)
        let signed = try library.verifySignedData(
            folder.read("message"), signers: [signer.get().certificate.derRepresentation])
        #expect(signed.content == content)
        #expect(signed.digest.lowercased() == digest)
    }

    @Test(
        "A CMS message encrypted by the openssl command is decrypted if its cipher is accepted",
        arguments: ["aes-128-cbc", "aes-256-cbc", "des-ede3-cbc"])
    func weDecryptOpenssls(cipher: String) async throws {
        let folder = try folder()
        try Subprocess.openssl(
            "cms", "-encrypt", "-in", "content", "-\(cipher)", "-outform", "DER", "-binary", "-out", "message",
            "signer.pem", in: folder.path)
        let signer = try signer.get()
        let ciphers: Set<CMSCipher> = [.aes128CBC, .aes256CBC, .tripleDESCBC]
        func envelope(accepting ciphers: Set<CMSCipher>) throws -> CMSEnvelope {
            try CMSEnvelope(
                folder.read("message"), for: signer.certificate.derRepresentation, accepting: ciphers, with: library)
        }
        let message = try envelope(accepting: ciphers)
        let key = try await signer.key.decrypt(message.encryptedKey, using: .rsaPKCS1)
        #expect(try message.content(key: key, with: library) == content)
        #expect(throws: OpenSSLError.self) { try envelope(accepting: ciphers.subtracting([message.cipher])) }
    }

    @Test(
        "The openssl command decrypts a CMS message that certprov has encrypted",
        arguments: [CMSCipher.aes128CBC, .tripleDESCBC])
    func opensslDecryptsOurs(cipher: CMSCipher) throws {
        let folder = try folder()
        let recipient = try signer.get().certificate.derRepresentation
        try folder.write(try library.envelopedData(content, recipient: recipient, cipher: cipher), to: "message")
        try Subprocess.openssl(
            "cms", "-decrypt", "-inform", "DER", "-in", "message", "-recip", "signer.pem", "-inkey", "signer.key",
            "-binary", "-out", "out", in: folder.path)
        #expect(try folder.read("out") == content)
    }

    @Test func theNameOfTheOnlyRecipientDoesNotMatter() async throws {
        let signer = try signer.get()
        let named = try CertifiedKey("another encoding", key: signer.key).certificate.derRepresentation
        let message = try CMSEnvelope(
            library.envelopedData(content, recipient: named, cipher: .aes128CBC),
            for: signer.certificate.derRepresentation, accepting: [.aes128CBC], with: library)
        #expect(
            try message.content(key: await signer.key.decrypt(message.encryptedKey, using: .rsaPKCS1), with: library)
                == content)
    }

    @Test("A signed message without content keeps its signed attributes")
    func attributesAndNoContentComeBack() throws {
        let signed = try library.verifySignedData(
            try sign(nil), signers: [signer.get().certificate.derRepresentation])
        #expect(signed.content.isEmpty)
        #expect(signed.attributes.contains(attribute))
    }

    /// OpenSSL itself finds nothing wrong with it.
    @Test func aMessageThatNobodySignedIsRefused() throws {
        let certificate = try signer.get().certificate
        let bag = try OpenSSLCommand.bag(of: [certificate])
        #expect(try CertificateBag.certificates(in: bag) == [certificate])
        #expect(throws: OpenSSLError.self) {
            try library.verifySignedData(bag, signers: [certificate.derRepresentation])
        }
    }

    /// OpenSSL has a random number generator for each thread and context, and frees it when the thread ends.
    @Test("An OpenSSL context may be freed before its threads have ended")
    func aContextMayGoBeforeTheThreadsThatUsedIt() async throws {
        let signer = try signer.get()
        for _ in 0..<100 {
            let used = DispatchSemaphore(value: 0)
            let isGone = DispatchSemaphore(value: 0)
            await withCheckedContinuation { continuation in
                let box = Mutex<OpenSSLLibrary?>(OpenSSLLibrary())
                let thread = Thread {
                    let enveloped = try? box.withLock { library in
                        try library?.envelopedData(
                            [1], recipient: signer.certificate.derRepresentation, cipher: .aes128CBC)
                    }
                    #expect(enveloped != nil)
                    used.signal()
                    isGone.wait()
                    continuation.resume()
                }
                thread.start()
                used.wait()
                box.withLock { $0 = nil }
                isGone.signal()
            }
        }
    }

    @Test("A CMS signature by another signer than the given ones is refused")
    func onlyTheGivenSignersCount() throws {
        #expect(throws: OpenSSLError.self) {
            try library.verifySignedData(
                try sign(content), signers: [CertifiedKey.impostor.get().certificate.derRepresentation])
        }
        #expect(throws: OpenSSLError.self) { try library.verifySignedData(try sign(content), signers: []) }
    }

    @Test func messagesOfOneKindAreNotTakenForAnother() throws {
        let signer = try signer.get()
        let signed = try sign(content)
        #expect(throws: OpenSSLError.self) {
            try CMSEnvelope(
                signed, for: signer.certificate.derRepresentation, accepting: [.aes128CBC], with: library)
        }
        let enveloped = try library.envelopedData(
            content, recipient: signer.certificate.derRepresentation, cipher: .aes128CBC)
        #expect(throws: OpenSSLError.self) {
            try library.verifySignedData(enveloped, signers: [signer.certificate.derRepresentation])
        }
    }
}
