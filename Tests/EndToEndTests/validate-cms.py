"""pyHanko's verdict on a detached CMS signature: validate-cms.py MESSAGE CONTENT ANCHORS. For Ed25519, which OpenSSL 3.0 cannot."""
import asyncio
import sys

from asn1crypto import cms
from pyhanko.keys import load_certs_from_pemder
from pyhanko.sign.validation import KeyUsageConstraints
from pyhanko.sign.validation.generic_cms import async_validate_detached_cms
from pyhanko_certvalidator import ValidationContext

message, content, anchors = sys.argv[1:]
context = ValidationContext(trust_roots=list(load_certs_from_pemder([anchors])), allow_fetching=False)
with open(message, "rb") as file:
    signed = cms.ContentInfo.load(file.read(), strict=True)["content"]
usage = KeyUsageConstraints(key_usage={"digital_signature"}, match_all_key_usages=False)
with open(content, "rb") as file:
    status = asyncio.run(
        async_validate_detached_cms(file, signed, signer_validation_context=context, key_usage_settings=usage))
print(status.summary())
sys.exit(not (status.valid and status.intact and status.trusted))
