public import CertificateProviding
public import FoundationEssentials
public import Signing

/// Signs contracts of the queue: shows them to a person, and signs the PDF (PAdES) and the evidence (CMS) after the approval.
public struct ContractSigner: Sendable {
    private let queue: ContractQueue
    private let signer: Signer
    private let codes: CodeSource
    private let now: @Sendable () -> Date

    /// Returns the server for the codes of the modes 1 and 3.
    ///
    /// Throws `unavailable` where there is none.
    public typealias CodeSource = @Sendable () async throws(ProviderError) -> any ContractServing

    public init(
        _ queue: ContractQueue, _ signer: Signer, codes: @escaping CodeSource,
        now: @escaping @Sendable () -> Date = { Date() }
    ) {
        (self.queue, self.signer, self.codes, self.now) = (queue, signer, codes, now)
    }

    /// Asks a person about a contract, and signs it.
    ///
    /// - Parameters:
    ///   - confirm: Shows the text, and returns whether the person approves.
    ///   - requestCode: Asks for the code that the signatory has got.
    /// - Returns: The signed contract, and what follows.
    /// - Throws: `operationNotAllowed` for a state without a signature to come, and while another process signs it; `userCancelled` without
    ///   approval; `unavailable` for the modes 1 and 3 without a connection; errors of the identity and its key. The contract is
    ///   unchanged then.
    public func sign(
        _ id: String, confirm: (ContractQuestion) async throws(ProviderError) -> Bool,
        requestCode: (_ prompt: String) async throws(ProviderError) -> String
    ) async throws(ProviderError) -> (Contract, [ContractEffect]) {
        guard let lease = try queue.lease(id) else {
            throw ProviderError(
                .operationNotAllowed, "Another process signs the contract \(id); try again when it is done.",
                reason: .busy)
        }
        defer { withExtendedLifetime(lease) {} }
        guard let contract = try queue.contract(id) else {
            throw ProviderError(.notFound, "There is no contract \(id); run: contracts list")
        }
        try Self.requireSignable(contract)
        // Before the question: what has changed on the disk is not signed, and a document that cannot be signed shows now.
        let original = try queue.content(of: contract.content.pdf.document)
        for attachment in contract.content.attachments { _ = try queue.content(of: attachment.document) }
        _ = try PDFToSign(SigningContent(original), hasTimeStamp: signer.timeStamps != nil)
        let server: (any ContractServing)? = contract.content.mode == .person ? nil : try await codes()
        let question = ContractQuestion(
            contract, path: { queue.path(of: $0) }, signer: signer.identity.certificate)
        guard try await confirm(question) else {
            throw ProviderError(.userCancelled, "The contract \(id) was not approved, and is not signed.")
        }
        let approved = Date(timeIntervalSince1970: now().timeIntervalSince1970.rounded(.down))
        var receipt: String?
        if let server {
            try await server.requestCode(for: contract.version)
            receipt = try await confirmCode(of: contract, at: server, requestCode)
        }
        return try await sign(contract, original, approved, receipt)
    }

    /// Checks that a contract can be signed, before an identity is used, which may ask for a PIN.
    ///
    /// - Throws: `operationNotAllowed`, with the next step.
    public static func requireSignable(_ contract: Contract) throws(ProviderError) {
        let missing = contract.content.missing
        if contract.state == .incomplete {
            let options = missing.contains { $0.hasPrefix("-") } ? "-- " : ""
            let advice =
                options + missing.map { DisplayText.visible(DisplayText.shellQuoted($0)) + "=…" }.joined(separator: " ")
            throw ProviderError(
                .operationNotAllowed,
                "The contract \(contract.id) is incomplete; run: contracts complete \(contract.id) \(advice)")
        }
        guard contract.conflict == nil else {
            throw ProviderError(
                .operationNotAllowed,
                "The contract \(contract.id) was changed here and on the server; decide with: contracts resolve \(contract.id)"
            )
        }
        guard contract.state.after(.signed) != nil else {
            throw ProviderError(
                .operationNotAllowed,
                "The contract \(contract.id) is in the state \(contract.state), and is not signed \(contract.state.isSigned ? "twice" : "any more")."
            )
        }
    }

    private func confirmCode(
        of contract: Contract, at server: any ContractServing,
        _ requestCode: (String) async throws(ProviderError) -> String
    ) async throws(ProviderError) -> String {
        var prompt = "Code that the signatory has got by \(contract.content.mode == .mail ? "mail" : "text message")"
        while true {
            let code = try await requestCode(prompt)
            do throws(ProviderError) {
                return try await server.confirmCode(code, for: contract.version)
            } catch {
                // One that is over, or a server that does not answer, ends it.
                guard error.code == .wrongPassword else { throw error }
                prompt = "\(error.message) Code"
            }
        }
    }

    private func sign(
        _ contract: Contract, _ original: [UInt8], _ approved: Date, _ receipt: String?
    ) async throws(ProviderError) -> (Contract, [ContractEffect]) {
        let title = contract.content.json["contract"]?["message_title"]?.string
        let pdf = try await signer.signedPDF(of: original, PDFSignatureDetails(reason: title))
        let evidence = ContractEvidence(
            version: contract.version, signed: DocumentReference(of: pdf), approved: approved, receipt: receipt,
            certificate: signer.identity.certificate
        ).bytes
        let evidenceSignature = try await signer.detachedCMS(of: SigningContent(evidence))
        let signature = ContractSignature(
            pdf: DocumentReference(of: pdf), evidence: DocumentReference(of: evidence),
            evidenceSignature: DocumentReference(of: evidenceSignature), approved: approved, receipt: receipt)
        return try queue.event(.signed, on: contract.id, storing: [pdf, evidence, evidenceSignature]) {
            current throws(ProviderError) in
            // A synchronisation may have brought another version since the question.
            guard current.version == contract.version else {
                throw ProviderError(
                    .operationNotAllowed,
                    "The contract \(contract.id) was changed while it was signed; look at it again: contracts sign \(contract.id)"
                )
            }
            current.version.signature = signature
        }
    }
}
