"""The reference counterpart of SplitKeySigning: issuers, verifier and OpenID provider, for tests and demonstrations."""
