import CertificateProviding

extension RegistrationMachine.Refusal {
    /// - Parameter holder: The process whose operation is in progress; `nil` if it is not known.
    static func busy(of holder: String?) -> ProviderError {
        ProviderError(
            .operationNotAllowed,
            "Another operation of the application is in progress\(holder.map { ", by \($0)" } ?? ""); wait until it has finished.",
            reason: .busy)
    }

    var error: ProviderError {
        switch self {
        case .busy: Self.busy(of: nil)
        case .notRegistered:
            ProviderError(.notFound, "The application is not registered; run: certprov register")
        case .vaultLocked:
            ProviderError(
                .vaultLocked,
                "The vault of the application is locked; run 'certprov unlock --for 15m', or set "
                    + "Passcode.source.")
        case .noPassword:
            ProviderError(
                .operationNotAllowed,
                "The application has registered with a certificate, and has no password to change.")
        case .leaving:
            ProviderError(
                .operationNotAllowed,
                "The application has left the server, but its identity and vault are still here; run: certprov unregister"
            )
        case .noProvider:
            ProviderError(
                .noCertificateProvider,
                "The application has no certificate provider; set CertificateProvider and UserCreationPolicy=certificate."
            )
        case .configurationChanged:
            ProviderError(
                .configurationInvalid,
                "The application was registered with another policy or certificate provider than the configuration has; "
                    + "restore the setting, or run: certprov unregister --force")
        }
    }
}
