#!/usr/bin/python3
"""A certificate provider for certprov: cert.pem and key.pem in a directory."""
import base64
import json
import pathlib
import re
import sys

DESCRIPTION = {
    "version": 1, "id": "@NAME@", "pluginVersion": "1.0",
    "provider": {
        "displayName": "@NAME@", "summary": "cert.pem and key.pem in a directory.",
        "parameters": [{"name": "directory", "type": "secret-path", "required": True,
                        "summary": "The directory with cert.pem and key.pem."}]}}


# Your source of certificates: replace this function, and the parameters above. Another value of a parameter is another
# configuration, with a stored identity of its own, unless its description has "distinguishes": False.
def obtain(parameters):
    """Returns the chain, leaf first, and its unencrypted PKCS#8 key, all as DER."""
    directory = parameters.get("directory")
    if not directory:
        raise Failure("configurationInvalid", "The parameter 'directory' is missing. Set it in the property file.")
    chain = documents(pathlib.Path(directory, "cert.pem"), "CERTIFICATE")
    return chain, documents(pathlib.Path(directory, "key.pem"), "PRIVATE KEY")[0]


def documents(path, kind):
    """Returns the PEM documents of one type in a file, as DER."""
    try:
        text = path.read_bytes().decode("latin-1")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", error)
        raise Failure("fileNotFound", f"{path} cannot be read: {reason}. "
                      "Set 'directory' to a directory with this file.")
    found = re.findall(f"-----BEGIN {kind}-----(.*?)-----END {kind}-----", text, re.DOTALL)
    try:
        found = [base64.b64decode("".join(one.split()), validate=True) for one in found]
    except ValueError:
        found = []
    if not found:
        raise Failure("malformedData", f"{path} has no valid PEM document of the type {kind}. Replace the file.")
    return found


class Failure(Exception):
    """An error for the user: a code of the plugin protocol, and a sentence with the next step."""


# The plugin protocol: what follows fits any source. The host's sealed store has the identity as its entry 'identity'.
def answer(request, params):
    if request == "hello":
        return DESCRIPTION
    if request == "configure":
        configured.update(params.get("parameters", {}))
        return {}
    if request == "obtain":
        chain, key = obtain(configured)
        entry = {"chain": chain, "privateKey": {"secret": key}}
        ask("entry.write", {"name": "identity", "entry": entry})
        return {"identity": identity(entry)}
    if request == "stored":
        entry = ask("entry.read", {"name": "identity"}).get("entry")
        return {"identity": identity(entry) if entry else None}
    if request == "forget":
        return ask("entry.remove", {"name": "identity"})
    raise Failure("unsupported", f"The request '{request}' is not supported.")


def identity(entry):
    return {"chain": entry["chain"], "key": {"pkcs8": entry["privateKey"], "location": "store"}}


def ask(request, params):
    """Sends a request to the host, and returns its result."""
    send({"id": 1, "request": request, "params": params})
    reply = next(messages, None) or sys.exit()
    if "error" in reply:
        raise Failure(reply["error"]["code"], reply["error"]["message"])
    return reply.get("result") or {}


def send(message):
    """Writes one line. Bytes become base64."""
    print(json.dumps(message, default=lambda data: base64.b64encode(data).decode()), flush=True)


configured = {}
messages = (message for message in map(json.loads, sys.stdin) if "notice" not in message)
for message in messages:
    try:
        reply = {"result": answer(message["request"], message.get("params") or {})}
    except Failure as failure:
        code, text = failure.args
        reply = {"error": {"code": code, "message": text}}
    send({"id": message["id"], **reply})
