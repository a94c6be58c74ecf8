#!/bin/sh
# A certificate provider for certprov: cert.pem and key.pem in a directory.
export LC_ALL=C
description='{"version":1,"id":"@NAME@","pluginVersion":"1.0","provider":{
    "displayName":"@NAME@","summary":"cert.pem and key.pem in a directory.","parameters":[{
    "name":"directory","type":"secret-path","required":true,"summary":"The directory with cert.pem and key.pem."}]}}'

# Your source of certificates: replace this function, and the parameters above. Another value of a parameter is another
# configuration, with a stored identity of its own, unless its description has "distinguishes":false.
# Sets chain to the certificates, leaf first, one on each line, and key to the unencrypted PKCS#8 key: base64 of DER.
obtain() {
    parameter directory
    documents "$value/cert.pem" CERTIFICATE
    chain=$found
    documents "$value/key.pem" 'PRIVATE KEY'
    key=$(printf '%s\n' "$found" | sed 1q)
}

# Sets found to the PEM documents of the type $2 in the file $1: base64, one on each line.
documents() {
    content=$(cat -- "$1" 2>/dev/null) ||
        fail fileNotFound "$1 cannot be read. Set 'directory' to a directory with this file."
    found=$(printf '%s\n' "$content" | sed -n "/^-----BEGIN $2-----/,/^-----END $2-----/p" | tr -d '[:space:]' |
        sed 's/-----BEGIN[^-]*-----//; s/-----BEGIN[^-]*-----/\n/g; s/-----END[^-]*-----//g')
    if [ -z "$found" ] || ! printf '%s\n' "$found" | base64 -d >/dev/null 2>&1; then
        fail malformedData "$1 has no valid PEM document of the type $2. Replace the file."
    fi
}

# The plugin protocol: what follows fits any source. The host's sealed store has the identity as its entry 'identity'.
handle() {
    case $request in
    hello) answer result "$(printf '%s' "$description" | tr -d '\n')" ;;
    configure) answer result '{}' ;;
    obtain)
        obtain
        chain="[$(printf '%s\n' "$chain" | sed 's/.*/"&"/' | paste -s -d , -)]"
        key="{\"secret\":\"$key\"}"
        ask entry.write "{\"name\":\"identity\",\"entry\":{\"chain\":$chain,\"privateKey\":$key}}"
        identity "$chain" "$key" ;;
    stored)
        ask entry.read '{"name":"identity"}'
        entry=$(field "$result" entry)
        identity "$(field "$entry" chain)" "$(field "$entry" privateKey)" ;;
    forget) ask entry.remove '{"name":"identity"}' && answer result '{}' ;;
    *) fail unsupported "The request '$request' is not supported." ;;
    esac
}

identity() {
    [ -n "$1" ] || { answer result '{"identity":null}' && return; }
    answer result "{\"identity\":{\"chain\":$1,\"key\":{\"pkcs8\":$2,\"location\":\"store\"}}}"
}

answer() { printf '{"id":%s,"%s":%s}\n' "$id" "$1" "$2"; }
# Answers with an error, and ends the subshell that handles the request.
fail() { answer error "{\"code\":\"$1\",\"message\":\"$2\"}" && exit; }

# Sends a request to the host, and sets result. Notices are ignored.
ask() {
    printf '{"id":1,"request":"%s","params":%s}\n' "$1" "$2"
    while read -r line || exit 0; [ -n "$(field "$line" notice)" ]; do :; done
    error=$(field "$line" error) result=$(field "$line" result)
    [ -z "$error" ] || { answer error "$error" && exit; }
}

# Prints a field of a JSON object as it is written there; nothing if there is none.
field() {
    # A comma after the last field, and each string and sign on a line of its own.
    printf '%s\n' "$1" | sed -E 's/^\{(.*)\}$/\1,/; s/"([^"\\]|\\.)*"|[][{}:,]/\n&\n/g' | {
        depth=0 name='' value=''
        while read -r token; do
            case $depth$token in
            0:) name=$value value='' ;;
            0,) [ "$name" = "\"$2\"" ] && printf '%s\n' "$value"; value='' ;;
            *'[' | *'{') depth=$((depth + 1)) value=$value$token ;;
            *']' | *'}') depth=$((depth - 1)) value=$value$token ;;
            *) value=$value$token ;;
            esac
        done
    }
}

# Sets value to a parameter. Refuses one with a quotation mark, a backslash or a control character.
parameter() {
    value=$(field "$parameters" "$1" | sed 's/^"//; s/"$//; s,\\/,/,g')
    case $value in
    '' | *\\*) fail configurationInvalid \
        "The parameter '$1' is missing, or has a quotation mark or a backslash. Set it to another value." ;;
    esac
}

while read -r line; do
    id=$(field "$line" id)
    request=$(field "$line" request | tr -d '"')
    [ "$request" != configure ] || parameters=$(field "$(field "$line" params)" parameters)
    [ -z "$request" ] || (handle)
done
