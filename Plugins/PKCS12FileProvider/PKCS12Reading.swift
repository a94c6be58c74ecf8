import CertificateProviding
import OpenSSLSupport

/// The identities and failures of all files of a source.
struct PKCS12Reading {
    /// An identity and the file it is in.
    struct Found {
        var identity: PKCS12Identity
        var file: String
        var fileDigest: String
    }

    var found: [Found] = []
    /// An error for each file and object that could not be used. Each message begins with the file.
    var failures: [ProviderError] = []
    /// The failures that concern a whole file.
    private var unreadableFiles: [ProviderError] = []

    /// Reads all files. Blocks while their keys are derived.
    /// - Throws: An error of the path: it does not exist or cannot be used.
    init(_ source: PKCS12Source, password: SecretBytes?) throws(ProviderError) {
        let library = OpenSSLLibrary()
        let files = try source.files()
        (failures, unreadableFiles) = (files.failures, files.failures)
        for file in files.paths {
            do throws(ProviderError) {
                let bytes = try source.read(file)
                var decoder = PKCS12Decoder(library: library, password: password)
                let contents: PKCS12Contents
                do throws(ProviderError) { contents = try decoder.decode(bytes) } catch {
                    guard error.code == .malformedData, let other = OtherFormat(bytes) else { throw error }
                    throw other.error(file)
                }
                let (identities, failures) = contents.identities(fallbackAlias: PKCS12Source.stem(of: file))
                let digest = PKCS12Source.digest(of: bytes)
                found += identities.map { Found(identity: $0, file: file, fileDigest: digest) }
                var problems = contents.unusable + failures
                if identities.isEmpty && problems.isEmpty { problems = [contents.nothingFound] }
                self.failures += problems.map { Self.in(file, $0) }
            } catch {
                failures.append(Self.in(file, error))
                unreadableFiles.append(Self.in(file, error))
            }
        }
    }

    /// Chooses the identity to use.
    ///
    /// Without an alias, the choice must be unique. A file that cannot be read is then an error, since it may have
    /// another identity. If only one of several certificates permits the usage, it is chosen: files for persons often
    /// have an encryption key beside the signing key.
    ///
    /// - Throws: `notFound`, the error of an unreadable file, or `configurationInvalid` with the aliases to choose
    ///   from.
    func choose(alias: String?, for usage: IdentityUsage) throws(ProviderError) -> Found {
        // The same key and certificate twice, such as in two files of a directory, are one identity, by either name.
        var seen: Set<X509Certificate> = []
        let candidates = (alias.map { alias in found.filter { $0.identity.isCalled(alias) } } ?? found)
            .filter { seen.insert($0.identity.chain[0]).inserted }
        if let failure = unreadableFiles.first, alias == nil || candidates.isEmpty { throw failure }
        guard !candidates.isEmpty else {
            if found.isEmpty, let failure = failures.first { throw failure }
            let names = found.map { "'\(DisplayText.visible($0.identity.alias))'" }.joined(separator: ", ")
            throw ProviderError(
                .notFound, "No identity matches the alias '\(DisplayText.visible(alias ?? ""))'; available: \(names).")
        }
        if candidates.count == 1 { return candidates[0] }
        let usable = candidates.filter { $0.identity.chain[0].permits(usage) }
        if usable.count == 1 { return usable[0] }
        let many =
            alias.map { "The alias '\(DisplayText.visible($0))' stands for \(candidates.count) identities" }
            ?? "There are \(candidates.count) identities"
        throw ProviderError(
            .configurationInvalid, "\(many); set 'alias' to one of: \(Self.choices(candidates)).")
    }

    /// The aliases, with the fingerprint for identities of the same name.
    private static func choices(_ candidates: [Found]) -> String {
        candidates.map { candidate in
            let alias = candidate.identity.alias
            let isUnique = candidates.count { $0.identity.alias == alias } == 1
            return isUnique
                ? "'\(DisplayText.visible(alias))'"
                : "'\(DisplayText.hexadecimal(candidate.identity.chain[0].sha256Fingerprint))' (\(DisplayText.visible(alias)))"
        }.joined(separator: ", ")
    }

    /// Returns the error with the file at the begin of its message.
    static func `in`(_ file: String, _ error: ProviderError) -> ProviderError {
        var error = error
        if !error.message.hasPrefix(DisplayText.visible(file)) {
            error.message = "\(DisplayText.visible(file)): \(error.message)"
        }
        return error
    }
}
