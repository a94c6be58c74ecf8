"""pyHanko's verdicts on the signatures of a PDF, by the validation data in it and nothing else: each certificate needs a proof.

    validate-lt.py ANCHORS FILE [none]

For each signature a line: `True` or `False`, and what came after it. With `none`, the data in the document is left out.
"""
import logging
import sys

from pyhanko.keys import load_certs_from_pemder
from pyhanko.pdf_utils.reader import PdfFileReader
from pyhanko.sign.validation import DocumentSecurityStore, validate_pdf_signature
from pyhanko_certvalidator import ValidationContext

logging.disable(logging.CRITICAL)
arguments = dict(trust_roots=list(load_certs_from_pemder([sys.argv[1]])), allow_fetching=False, revocation_mode="require")
with open(sys.argv[2], "rb") as file:
    reader = PdfFileReader(file)
    for signature in reader.embedded_signatures:
        if sys.argv[3:] == ["none"]:
            context = ValidationContext(**arguments, crls=[], ocsps=[])
        else:
            context = DocumentSecurityStore.read_dss(reader).as_validation_context(arguments)
        status = validate_pdf_signature(signature, context)
        stamp = status.timestamp_validity
        print(status.bottom_line and stamp.valid and stamp.trusted, status.modification_level.name)
