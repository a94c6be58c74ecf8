"""pyHanko's verdicts on the signatures of PDFs, with its analysis of what changed after each.

    validate.py ANCHORS FILE...

ANCHORS is a PEM file with the certificates of the tests. For each file, a line of JSON: the path, and for each signature its
field and verdicts, or an error. One process for all, since Python takes longer to load pyHanko than to judge a file.
"""
import json
import logging
import sys

from pyhanko.keys import load_certs_from_pemder
from pyhanko.pdf_utils.reader import PdfFileReader
from pyhanko.sign.validation import KeyUsageConstraints, validate_pdf_signature, validate_pdf_timestamp
from pyhanko_certvalidator import ValidationContext

logging.disable(logging.CRITICAL)
USAGE = KeyUsageConstraints(key_usage={"digital_signature", "non_repudiation"}, match_all_key_usages=False)


def verdict(signature, anchors):
    context = ValidationContext(trust_roots=anchors, allow_fetching=False)
    one = {"field": signature.field_name}
    try:
        if signature.sig_object_type == "/DocTimeStamp":
            status = validate_pdf_timestamp(signature, context)
        else:
            status = validate_pdf_signature(signature, context, key_usage_settings=USAGE)
            one["docmdp"] = status.docmdp_ok
            stamp = status.timestamp_validity
            one["stamp"] = None if stamp is None else {
                "valid": stamp.valid and stamp.intact, "trusted": stamp.trusted, "time": stamp.timestamp.isoformat()}
        one.update(
            intact=status.intact, valid=status.valid, trusted=status.trusted, coverage=status.coverage.name,
            level=getattr(status.modification_level, "name", None))
    except Exception as error:
        one["error"] = f"{type(error).__name__}: {error}"
    return one


anchors = list(load_certs_from_pemder([sys.argv[1]]))
for path in sys.argv[2:]:
    line = {"path": path}
    try:
        with open(path, "rb") as file:
            # Documents from the field break rules; that we made a valid one is to be seen all the same.
            reader = PdfFileReader(file, strict=False)
            line["signatures"] = [verdict(one, anchors) for one in reader.embedded_signatures]
    except Exception as error:
        line["error"] = f"{type(error).__name__}: {error}"
    print(json.dumps(line), flush=True)
