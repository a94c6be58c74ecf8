package import CertificateProviding

extension PEMFileProvider: IdentityListing {
    /// The provider itself.
    package var listing: (any IdentityListing)? { self }

    /// Returns the identity of the files, in use or not. An encrypted key whose password has to be asked for is a failure.
    package func listIdentities() async -> IdentityList {
        do throws(ProviderError) {
            return try await environment.executor.run { [self] in list() }
        } catch {
            return IdentityList(failures: [error.attributed(to: id)])
        }
    }

    private func list() -> IdentityList {
        var list = IdentityList()
        do throws(ProviderError) {
            let isInUse = try isInUse()
            let (identity, remarks) = try look()
            let listed = ListedIdentity(identity, isStored: isInUse)
            list.identities = [listed]
            list.choice = .success(listed)
            list.remarks += remarks
        } catch {
            let error = error.attributed(to: id)
            list.failures.append(error)
            list.choice = .failure(error)
        }
        return list
    }
}
