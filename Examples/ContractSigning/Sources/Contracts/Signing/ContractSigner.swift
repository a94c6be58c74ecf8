public import CertificateProviding
public import FoundationEssentials
public import Signing

/// Has the signatories of contracts approve, each by a signature of its own: shows the contract to the person, and signs the PDF (PAdES) and
/// the evidence (CMS) after the approval.
public struct ContractSigner: Sendable {
    private let queue: ContractQueue
    private let signer: Signer
    private let isByOwnIdentity: Bool
    private let codes: CodeSource
    private let now: @Sendable () -> Date

    /// Returns the server for the codes of the modes 1 and 3.
    ///
    /// Throws `unavailable` where there is none.
    public typealias CodeSource = @Sendable () async throws(ProviderError) -> any ContractServing

    /// - Parameter isByOwnIdentity: Whether the signer's identity is that of the person who approves, and not the host's. It takes the place
    ///   of codes; the server has to trust it then.
    public init(
        _ queue: ContractQueue, _ signer: Signer, isByOwnIdentity: Bool = false, codes: @escaping CodeSource,
        now: @escaping @Sendable () -> Date = { Date() }
    ) {
        (self.queue, self.signer, self.codes, self.now) = (queue, signer, codes, now)
        self.isByOwnIdentity = isByOwnIdentity
    }

    /// Asks a signatory about a contract, and signs it.
    ///
    /// - Parameters:
    ///   - signatory: The index in ``ContractContent/signatories`` of one who may approve now (``ContractVersion/pending``).
    ///   - confirm: Shows the text, and returns whether the person approves.
    ///   - requestCode: Asks for the code that the signatory has got.
    /// - Returns: The contract with the approval, and what follows.
    /// - Throws: `operationNotAllowed` for a state without a signature to come, a signatory who may not approve now, and while another process
    ///   signs it; `userCancelled` without approval; `unavailable` for the modes 1 and 3 without a connection; errors of the identity and
    ///   its key. The contract is unchanged then.
    public func sign(
        _ id: String, for signatory: Int, confirm: (ContractQuestion) async throws(ProviderError) -> Bool,
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
        guard contract.version.pending.contains(signatory) else {
            throw ProviderError(
                .operationNotAllowed,
                "This signatory of the contract \(id) has approved, or is not the next one; see: contracts show \(id)")
        }
        // Before the question: what has changed on the disk is not signed, and a document that cannot be signed shows now.
        let document = try queue.content(of: contract.version.pdf)
        for attachment in contract.content.attachments { _ = try queue.content(of: attachment.document) }
        let details = try details(contract, signatory, document)
        let needed = isByOwnIdentity ? [] : contract.content.signatories[signatory].codes
        let server: (any ContractServing)? = needed.isEmpty ? nil : try await codes()
        let question = ContractQuestion(
            contract, for: signatory, path: { queue.path(of: $0) }, signer: signer.identity.certificate,
            isByOwnIdentity: isByOwnIdentity)
        guard try await confirm(question) else {
            throw ProviderError(.userCancelled, "The contract \(id) was not approved, and is not signed.")
        }
        let approved = now()
        var receipts: [String] = []
        if let server {
            for (channel, address) in needed {
                let request = CodeRequest(
                    contract: id, signatory: signatory, channel: channel, address: address,
                    document: contract.content.pdf.document.sha256)
                try await server.requestCode(request)
                receipts.append(try await confirmCode(of: request, at: server, requestCode))
            }
        }
        let pdf = try await signer.signedPDF(of: document, details)
        let none = DocumentReference(of: [])
        let approval = ContractApproval(
            signatory: signatory, approved: approved, receipts: receipts, isByOwnIdentity: isByOwnIdentity,
            certificate: Data(signer.identity.certificate.derRepresentation), pdf: DocumentReference(of: pdf),
            evidence: none, evidenceSignature: none)
        return try await store(approval, pdf, on: contract, isLast: question.isLast)
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
        guard !contract.version.pending.isEmpty else {
            throw ProviderError(
                .operationNotAllowed,
                "The contract \(contract.id) is in the state \(contract.state), and is not signed \(contract.state.isSigned ? "twice" : "any more")."
            )
        }
    }

    // MARK: - Steps

    /// In points: where signatures are shown, which is below the text of most pages, and how many are side by side.
    private static let strip = (x: 24.0, y: 4.0, width: 546.0, height: 32.0, gap: 6.0, columns: 3)

    /// The texts of the signature, and its place: on the first page, from the fourth on the second one, and so on. None where there is no
    /// such page, or no room on it.
    ///
    /// - Throws: `documentNotSignable` and `malformedData` for the document.
    private func details(
        _ contract: Contract, _ signatory: Int, _ document: [UInt8]
    ) throws(ProviderError) -> PDFSignatureDetails {
        let text = ApprovalText(
            of: contract.content.signatories[signatory], isByOwnIdentity: isByOwnIdentity,
            certificate: signer.identity.certificate)
        let (strip, columns) = (Self.strip, min(Self.strip.columns, contract.content.signatories.count))
        let step = (strip.width + strip.gap) / Double(columns)
        var details = PDFSignatureDetails(
            visible: .init(
                page: 1 + signatory / columns, x: strip.x + Double(signatory % columns) * step, y: strip.y,
                width: step - strip.gap, height: strip.height),
            name: text.name, reason: text.reason)
        let content = SigningContent(document)
        do throws(ProviderError) {
            _ = try PDFToSign(content, details, hasTimeStamp: signer.timeStamps != nil)
        } catch {
            guard error.code == .documentNotSignable else { throw error }
            details.visible = nil
            _ = try PDFToSign(content, details, hasTimeStamp: signer.timeStamps != nil)
        }
        return details
    }

    private func confirmCode(
        of request: CodeRequest, at server: any ContractServing,
        _ requestCode: (String) async throws(ProviderError) -> String
    ) async throws(ProviderError) -> String {
        let question =
            "Code that the signatory has got by \(request.channel.rawValue) at \(CustomerField.masked(request.address))"
        var prompt = question
        while true {
            let code = try await requestCode(prompt)
            do throws(ProviderError) {
                return try await server.confirmCode(code, for: request)
            } catch {
                // One that is over, or a server that does not answer, ends it.
                guard error.code == .wrongPassword else { throw error }
                prompt = "\(error.message) \(question)"
            }
        }
    }

    /// Makes the evidence of an approval, and stores both with the contract.
    private func store(
        _ approval: ContractApproval, _ pdf: [UInt8], on contract: Contract, isLast: Bool
    ) async throws(ProviderError) -> (Contract, [ContractEffect]) {
        var (approval, version) = (approval, contract.version)
        version.approvals.append(approval)
        let evidence = ContractEvidence(version: version).bytes
        let evidenceSignature = try await signer.detachedCMS(of: SigningContent(evidence))
        approval.evidence = DocumentReference(of: evidence)
        approval.evidenceSignature = DocumentReference(of: evidenceSignature)
        return try queue.event(.signed(isLast: isLast), on: contract.id, storing: [pdf, evidence, evidenceSignature]) {
            [approval] current throws(ProviderError) in
            // A synchronisation may have brought another version since the question.
            guard current.version == contract.version else {
                throw ProviderError(
                    .operationNotAllowed,
                    "The contract \(contract.id) was changed while it was signed; look at it again: contracts sign \(contract.id)"
                )
            }
            current.version.approvals.append(approval)
        }
    }
}
