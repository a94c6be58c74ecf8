public import CertificateProviding

/// The section `Signing.` of the property file.
package enum RequestSettings {
    /// How the person is asked.
    package enum Prompt: String, CaseIterable, Sendable { case terminal, pinentry, queue }

    package static let prompt = Parameter<Prompt>.choice(
        "Signing.prompt", default: .terminal,
        summary:
            "How the person is asked about a signing request: at the terminal of the signer, by a pinentry program, or by certprov requests approve."
    )
    package static let promptProgram = Parameter<String?>(
        "Signing.prompt-program", .string, defaultValue: "pinentry",
        summary:
            "The pinentry program for approvals and PINs: its absolute path, or its name in PATH. It gets no arguments."
    ) { text, _ throws(ParameterProblem) in
        guard !text.isEmpty, text.hasPrefix("/") || !text.contains("/") else {
            throw .expected("must be an absolute path, or the name of a program without a slash")
        }
        return text
    }
    static let approvalTimeout = Parameter.seconds(
        "Signing.approval-timeout", default: 120, in: 5...3600,
        summary: "How long the person has for an answer, from when the question is shown.")
    static let maximumDocument = Parameter<Int>(
        "Signing.max-document", .init(rawValue: "number"), absent: 32 << 20, defaultValue: "33554432",
        summary: "The maximum size of a document, in bytes, from 1024 to 268435456."
    ) { text, _ throws(ParameterProblem) in
        guard let number = Int(text), (1024...256 << 20).contains(number), String(number) == text else {
            throw .expected("must be a number of bytes from 1024 to 268435456")
        }
        return number
    }
    static let userCode = Parameter<String?>(
        "Signing.user-code", .string, defaultValue: "the serialNumber of the certificate's subject",
        summary: "The person's code, which each request for a document must have."
    ) { text, _ throws(ParameterProblem) in
        guard !text.isEmpty else {
            throw .expected("must not be blank; remove the line for the subject's serialNumber")
        }
        return text
    }
    package static let noTimeStamp = "none"
    static let timeStampURL = Parameter<String?>(
        "Signing.time-stamp-url", .string, defaultValue: "no client may have documents signed",
        summary:
            "The server that stamps signatures of documents, and of certprov sign, with the time (RFC 3161), or none for signatures without."
    ) { text, _ throws(ParameterProblem) in
        guard !text.isEmpty else { throw .expected("must be the URL of a time-stamp server, or none") }
        return text
    }
    static let timeStampAnchors = Parameter<String?>.string(
        "Signing.time-stamp-anchors", .certificateFile, needs: [.given(timeStampURL.name)],
        summary: "PEM file with the CA of the time stamps. Needed with a time-stamp server.")
    static let timeStampPolicy = Parameter<String?>.string(
        "Signing.time-stamp-policy", .string, needs: [.given(timeStampURL.name)],
        summary: "The policy to ask the time-stamp server for: an object identifier.")
    static let timeStampUser = Parameter<String?>.string(
        "Signing.time-stamp-user", .string,
        needs: [.given(timeStampURL.name), .given("Signing.time-stamp-password-source")],
        summary: "User name for a time-stamp server that asks for one (HTTP Basic or Digest): https:, or on this host.")
    static let timeStampPasswordSource = Parameter<SecretSource?>.secretSource(
        "Signing.time-stamp-password-source", needs: [.given(timeStampUser.name)],
        summary: "Secret source of the password for the time-stamp server, read for each stamp. Never prompt.")

    static let name = Parameter<String>(
        "Signing.client.<number>.name", .string, absent: nil,
        summary: "The name of an application that may ask for signatures, as the person sees it."
    ) { text, _ throws(ParameterProblem) in
        guard !text.isEmpty, text.utf8.count <= 128 else { throw .expected("must have 1 to 128 bytes") }
        return text
    }
    static let keySource = Parameter<SecretSource>(
        "Signing.client.<number>.key-source", .secretSource, absent: nil,
        summary: "The key that the application authenticates its requests with (HMAC-SHA256). Never prompt."
    ) { text, _ throws(ParameterProblem) in
        guard let source = SecretSource(text), source != .prompt else {
            throw .expected("must be file:PATH, env:NAME, fd:N or systemd:NAME")
        }
        return source
    }
    static let operations = Parameter<Set<SigningOperation>>(
        "Signing.client.<number>.operations", .list, absent: nil,
        summary: "The operations that it may ask for: sign-pdf, sign-challenge, or both."
    ) { text, _ throws(ParameterProblem) in
        let operations = members(of: text).map { SigningOperation(rawValue: $0) }
        guard !operations.isEmpty, !operations.contains(nil) else {
            throw .expected("must be sign-pdf, sign-challenge, or both, separated by a comma")
        }
        return Set(operations.compactMap(\.self))
    }
    static let returnSchemes = Parameter<Set<String>>(
        "Signing.client.<number>.return-schemes", .list, absent: [], defaultValue: "none",
        summary:
            "The URL schemes of the application: the URL handler opens replies with one of them only. Not http, https, file or sima."
    ) { text, _ throws(ParameterProblem) in
        let schemes = members(of: text).map { $0.lowercased() }
        // The handler would open a web page or a file of the request's choice, or itself.
        let others = ["http", "https", "ftp", "file", "data", "javascript", "mailto", "about", RequestSteps.ownScheme]
        guard !schemes.isEmpty, schemes.allSatisfy({ RequestURL.isScheme($0) && !others.contains($0) }) else {
            throw .expected("must be URL schemes of applications, such as bank-app, separated by commas")
        }
        return Set(schemes)
    }
    static let approval = Parameter<Set<SigningOperation>>(
        "Signing.client.<number>.approval", .list, absent: [], defaultValue: "ask",
        summary:
            "ask: a person approves each request. unattended: no person is asked. For one operation only: sign-challenge:unattended."
    ) { text, _ throws(ParameterProblem) in
        let phrase = "must be ask or unattended, or such a word for an operation: sign-challenge:unattended"
        if text == "ask" { return [] }
        if text == "unattended" { return Set(SigningOperation.allCases) }
        var unattended: Set<SigningOperation> = []
        for member in members(of: text) {
            let parts = member.split(separator: ":", omittingEmptySubsequences: false)
            guard parts.count == 2, let operation = SigningOperation(rawValue: String(parts[0])),
                ["ask", "unattended"].contains(parts[1])
            else { throw .expected(phrase) }
            if parts[1] == "unattended" { unattended.insert(operation) }
        }
        return unattended
    }
    static let unattendedPerHour = Parameter<Int>(
        "Signing.client.<number>.unattended-per-hour", .init(rawValue: "number"), absent: 60, defaultValue: "60",
        needs: [.given("Signing.client.<number>.approval")],
        summary: "How many of its requests are signed in an hour without a person, from 1 to 100000."
    ) { text, _ throws(ParameterProblem) in
        guard let number = Int(text), (1...100_000).contains(number), String(number) == text else {
            throw .expected("must be a number from 1 to 100000")
        }
        return number
    }

    private static func members(of list: String) -> [String] {
        list.split(separator: ",", omittingEmptySubsequences: false).map { member in
            String(member.reversed().drop(while: \.isWhitespace).reversed().drop(while: \.isWhitespace))
        }
    }

    fileprivate static let all = [
        prompt.descriptor, promptProgram.descriptor, approvalTimeout.descriptor, maximumDocument.descriptor,
        userCode.descriptor, timeStampURL.descriptor, timeStampAnchors.descriptor, timeStampPolicy.descriptor,
        timeStampUser.descriptor, timeStampPasswordSource.descriptor,
        name.descriptor, keySource.descriptor, operations.descriptor, returnSchemes.descriptor, approval.descriptor,
        unattendedPerHour.descriptor,
    ]
}

extension SettingsSection {
    /// The section `Signing.`, for a program that reads it, as `TimeStampServer.configured(by:_:)` does:
    /// `CertprovLogon(configuredBy: file, sections: [.signingRequests])`.
    public static let signingRequests = SettingsSection(
        title: "Signing requests", namespaces: ["Signing."], RequestSettings.all)
}
