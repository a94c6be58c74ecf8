import CertificateProviding
import FoundationEssentials
import Glibc
import OpenSSLSupport

/// The files that the parameters name.
struct PEMSource: Sendable {
    /// The place of the private key.
    enum KeyPlace: Sendable {
        case file(String)
        /// A key in a key store, by its URI or the URI of its place.
        case keyStore(String, any KeyStore)
    }

    /// A file or a directory.
    let certificate: String
    /// `nil` for the same file, or the directory's.
    let key: KeyPlace?
    /// `nil` for the directory's.
    let trustBundle: String?
    /// Whether systemd has passed the file of this path to the process, and guards it.
    let isCredential: @Sendable (String) -> Bool

    /// The files that were found, each as its directory and its name there.
    private struct Place {
        typealias File = (directory: Directory, name: String)
        var certificate: File
        /// `nil` for the certificate's own, and for a key store.
        var key: File?
        /// Whether a key in the certificate's own file counts first.
        var isKeyGuessed = true
        var trust: File?
        /// Whether only the roots of the trust file count.
        var hasRootsOnly = false
        /// Whether the trust file must be there and have a CA.
        var isTrustRequired = false
    }

    /// The stamps of all files, by `stat` only; those of the place itself where no file is found.
    func stamps() -> [FileStamp?] {
        guard let place = try? place() else { return [FileStamp(of: certificate)] }
        return [place.certificate, place.key, place.trust].map { file in
            file.flatMap { FileStamp(of: $0.directory.path(of: $0.name)) }
        }
    }

    /// Whether an error may pass by itself: the file that it is about, or for a missing one its directory, changed less than a minute
    /// ago. By `stat` only.
    func isOnItsWay(after error: ProviderError, at now: Date) -> Bool {
        var paths = [certificate] + [trustBundle].compactMap(\.self)
        if case .file(let path)? = key { paths.append(path) }
        var stamps = stamps() + paths.map { FileStamp(of: $0) }
        switch error.code {
        case .keyMismatch, .malformedData: break
        case .fileNotFound,
            .configurationInvalid where error.reason == .accessDenied:
            stamps += paths.map { FileStamp(of: Self.parent(of: $0)) }
        default: return false
        }
        return stamps.contains { $0?.isChanged(within: .seconds(60), before: now) ?? false }
    }

    private static func parent(of path: String) -> String {
        let end = path.utf8.lastIndex(of: UInt8(ascii: "/")) ?? path.startIndex
        return end == path.startIndex ? "/" : String(path[..<end])
    }

    /// Reads the files together: again, if one is replaced while they are read.
    ///
    /// - Throws: `fileNotFound`; `configurationInvalid` for a file that cannot be read, and for a key that others can read;
    ///   `malformedData`, with the file and the line.
    func read() throws(ProviderError) -> PEMContents {
        var stamps = stamps()
        for _ in 0..<3 {
            let result = Result { () throws(ProviderError) in try readOnce(stamps) }
            let now = self.stamps()
            if now == stamps { return try result.get() }
            stamps = now
        }
        return try readOnce(stamps)
    }

    private func readOnce(_ stamps: [FileStamp?]) throws(ProviderError) -> PEMContents {
        let place = try place()
        let (certificateFile, chain) = try Self.pem(place.certificate)
        let certificates = try chain.certificates()
        guard !certificates.isEmpty else {
            throw ProviderError(
                .malformedData, "\(chain.name) contains no certificate; name a file with one, in PEM.")
        }
        var keys: (file: PEMFile, blocks: [PEMBlock])?
        var warning: String?
        if case .keyStore? = key {
        } else {
            let isOwn = place.isKeyGuessed && chain.blocks.contains(where: \.isPrivateKey)
            let other = isOwn ? nil : place.key
            let read = try other.map { file throws(ProviderError) in try Self.pem(file) }
            let (keyFile, pem) = read ?? (certificateFile, chain)
            let blocks = pem.blocks.filter(\.isPrivateKey)
            guard !blocks.isEmpty else {
                let others = place.key == nil ? Self.keyNames(beside: place.certificate) : []
                let beside =
                    others.isEmpty
                    ? "" : ", and there is no \(others.map(DisplayText.visible).joined(separator: " or ")) beside it"
                throw ProviderError(
                    .malformedData,
                    "\(pem.name) contains no private key in PEM\(beside); set 'key' to the file of the key, or to its URI in a key store."
                )
            }
            let file = other ?? place.certificate
            let path = file.directory.path(of: file.name)
            if !isCredential(path) {
                if let refusal = keyFile.access.refusal("\(pem.name) has a private key and", path: path) {
                    throw ProviderError(.configurationInvalid, refusal + ".")
                }
                warning = keyFile.access.warning(about: pem.name)
            }
            keys = (pem, blocks)
        }
        return PEMContents(
            path: chain.name, certificates: certificates, keys: keys, warning: warning, trust: try trust(place),
            stamps: stamps)
    }

    private func trust(_ place: Place) throws(ProviderError) -> TrustBundle? {
        guard let file = place.trust, place.isTrustRequired || file.directory.reaches(file.name) else { return nil }
        let (content, pem) = try Self.pem(file)
        let bundle = TrustBundle(try pem.certificates().filter { !place.hasRootsOnly || $0.isSelfIssued })
        // cert-manager writes an empty file for a CA whose root it does not know, and certbot a file without the root.
        if bundle == nil, place.isTrustRequired || !content.text.isEmpty && !place.hasRootsOnly {
            throw ProviderError(
                .malformedData, "\(pem.name) contains no CA certificate; name a file with one, in PEM.")
        }
        return bundle
    }

    /// The remark about a certificate without its chain, where the file with the chain is beside it, as certbot writes it.
    func remark(about identity: Identity) -> String? {
        guard identity.certificateChain.count == 1, !identity.certificate.isSelfIssued,
            let file = try? place().certificate,
            file.name != "fullchain.pem", file.directory.has("fullchain.pem")
        else { return nil }
        let (path, whole) = (file.directory.path(of: file.name), file.directory.path(of: "fullchain.pem"))
        return
            "\(DisplayText.visible(path)) has the certificate without its chain, which peers may need; set 'certificate' to "
            + "\(DisplayText.visible(whole))."
    }

    private static func pem(_ file: Place.File) throws(ProviderError) -> (Directory.Content, PEMFile) {
        let content = try file.directory.read(file.name)
        return (content, try PEMFile(content.text, named: DisplayText.visible(file.directory.path(of: file.name))))
    }

    // MARK: - Layouts

    /// The pairs of names that known programs write, with the file of the CAs. Kubernetes and cert-manager; certbot and dehydrated.
    private static let pairs = [
        (certificate: "tls.crt", key: "tls.key", trust: "ca.crt"),
        (certificate: "fullchain.pem", key: "privkey.pem", trust: "chain.pem"),
    ]

    /// - Throws: `fileNotFound`; `configurationInvalid` for a directory that has several identities.
    private func place() throws(ProviderError) -> Place {
        // By bytes: strings that Unicode calls equal may name two directories.
        var directories: [[UInt8]: Directory] = [:]
        // Files of one directory are read through one descriptor.
        func split(_ path: String) throws(ProviderError) -> Place.File {
            let parent = Self.parent(of: path)
            guard let directory = directories[Array(parent.utf8)] ?? Directory(parent) else {
                throw Directory.error(DisplayText.visible(path), errno)
            }
            directories[Array(parent.utf8)] = directory
            return (
                directory,
                String(decoding: path.utf8.reversed().prefix { $0 != UInt8(ascii: "/") }.reversed(), as: UTF8.self)
            )
        }
        let trimmed = certificate.count > 1 && certificate.hasSuffix("/") ? String(certificate.dropLast()) : certificate
        var place: Place
        if let directory = Directory(trimmed) {
            directories[Array(trimmed.utf8)] = directory
            place = try Self.place(in: directory)
        } else {
            let file = try split(trimmed)
            place = Place(certificate: file)
            if key == nil { place.key = Self.key(beside: file) }
            if let pair = Self.pairs.first(where: { $0.certificate == file.name }) {
                (place.trust, place.hasRootsOnly) = ((file.directory, pair.trust), pair.trust == "chain.pem")
            }
        }
        switch key {
        case nil: break
        case .file(let path): (place.key, place.isKeyGuessed) = (try split(path), false)
        case .keyStore: place.key = nil
        }
        if let trustBundle {
            (place.trust, place.hasRootsOnly, place.isTrustRequired) = (try split(trustBundle), false, true)
        }
        return place
    }

    private static func place(in directory: Directory) throws(ProviderError) -> Place {
        if let pair = pairs.first(where: { directory.has($0.certificate) }) {
            return Place(
                certificate: (directory, pair.certificate), key: (directory, pair.key), trust: (directory, pair.trust),
                hasRootsOnly: pair.trust == "chain.pem")
        }
        // uacme.
        if directory.has("cert.pem") {
            let file: Place.File = (directory, "cert.pem")
            return Place(certificate: file, key: key(beside: file))
        }
        // lego: NAME.crt, NAME.key and NAME.issuer.crt.
        let names = directory.names().filter { $0.hasSuffix(".crt") && !$0.hasSuffix(".issuer.crt") }
            .filter { directory.has($0.dropLast(4) + ".key") }
        let shown = DisplayText.visible(directory.path)
        guard directory.isOpen else { throw Directory.error(shown, EACCES) }
        guard let name = names.first else {
            throw ProviderError(
                .fileNotFound,
                "The directory \(shown) has no certificate under a known name (tls.crt, fullchain.pem, cert.pem, or NAME.crt beside "
                    + "NAME.key); set 'certificate' to the file, and 'key' to that of its key.")
        }
        guard names.count == 1 else {
            let choices = names.prefix(8).map { "'\(DisplayText.visible($0))'" }.joined(separator: ", ")
            throw ProviderError(
                .configurationInvalid,
                "The directory \(shown) has \(names.count) certificates; set 'certificate' to one of its files: \(choices)."
            )
        }
        return Place(certificate: (directory, name), key: (directory, name.dropLast(4) + ".key"))
    }

    /// The key that known programs write beside a certificate; `nil` if there is none, so that the certificate's file must have it.
    private static func key(beside file: Place.File) -> Place.File? {
        keyNames(beside: file).first { file.directory.reaches($0) }.map { (file.directory, $0) }
    }

    private static func keyNames(beside file: Place.File) -> [String] {
        let (directory, name) = file
        var names = pairs.filter { $0.certificate == name }.map(\.key)
        if name == "cert.pem" {
            let own = directory.path.split(separator: "/").last.map(String.init) ?? ""
            names += ["privkey.pem", "../private/\(own)/key.pem", "key.pem"]
        }
        if let dot = name.lastIndex(of: "."), dot != name.startIndex { names.append(name[..<dot] + ".key") }
        // haproxy.
        names.append(name + ".key")
        return names.filter { $0 != name }
    }
}

/// The files of a source, read, with the keys not decrypted yet.
struct PEMContents: Sendable {
    /// The path of the certificate.
    let path: String
    /// In the order of the file.
    let certificates: [X509Certificate]
    /// The private keys and their file; `nil` for a key in a key store.
    let keys: (file: PEMFile, blocks: [PEMBlock])?
    /// The warning about other users that can read the keys.
    let warning: String?
    let trust: TrustBundle?
    /// How the files were before they were read.
    let stamps: [FileStamp?]

    typealias Pair = (key: SoftwareKey, chain: [X509Certificate])

    /// Whether a password is needed.
    var needsPassword: Bool { keys?.blocks.contains(where: \.isEncrypted) ?? false }

    /// The certificates that may be the leaf of a key elsewhere: those that have issued no other.
    var leaves: [X509Certificate] {
        let issuers = Set(certificates.filter { !$0.isSelfIssued }.map(\.issuerDER))
        let leaves = certificates.filter { !issuers.contains($0.subjectDER) }
        return leaves.isEmpty ? certificates : leaves
    }

    /// The chains of the certificates that may be the leaf, the best one first: those that peers accept, then the one that was issued
    /// last.
    func chains(for usage: IdentityUsage, at now: Date) -> [[X509Certificate]] {
        ranked(leaves, usage, now)
    }

    private func ranked(_ leaves: [X509Certificate], _ usage: IdentityUsage, _ now: Date) -> [[X509Certificate]] {
        leaves.map { leaf in
            let chain = CertificateChain.build(from: leaf, among: certificates)
            return (
                chain, isUsable: CertificateChain.obstacle(in: chain, for: usage, at: now) == nil, leaf.notValidBefore
            )
        }
        .sorted { $0.1 != $1.1 ? $0.1 : $0.2 > $1.2 }
        .map(\.0)
    }

    /// Returns the best chain whose leaf has its key here, as ``chains(for:at:)`` orders them. Blocks while keys are decrypted.
    ///
    /// - Throws: `keyMismatch` if none fits, and as ``OpenSSLLibrary/privateKey(of:in:password:)``.
    func pair(
        _ password: SecretBytes?, for usage: IdentityUsage, at now: Date
    ) throws(ProviderError) -> Pair {
        guard let keys else { throw ProviderError(.internal, "The key of \(path) is not in a file.") }
        let library = OpenSSLLibrary()
        var failure: ProviderError?
        var found: [SoftwareKey] = []
        for block in keys.blocks.prefix(8) {
            do throws(ProviderError) {
                found.append(try library.privateKey(of: block, in: keys.file.name, password: password))
            } catch {
                failure = failure ?? error
            }
        }
        let fitting = certificates.filter { certificate in found.contains { $0.publicKey == certificate.publicKey } }
        let own = leaves.filter(fitting.contains)
        if let chain = ranked(own.isEmpty ? fitting : own, usage, now).first,
            let key = found.first(where: { $0.publicKey == chain[0].publicKey })
        {
            return (key, chain)
        }
        if let failure { throw failure }
        throw ProviderError(
            .keyMismatch,
            "\(keys.file.name), line \(keys.blocks[0].line): the private key does not fit a certificate of \(path) "
                + "('\(certificates[0].subject)'); put a pair there that fits.")
    }
}
