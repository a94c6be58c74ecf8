# Sourced by the checks: starts and ends servers, counts what passed.

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
work=$(mktemp -d)
server=
passed=0
failed=0
trap 'finish; rm -rf "$work"' EXIT
cd "$work"
export HOME=$work no_proxy=localhost

# serve OPTION...: a server of its own in $d, at $url; the one before it ends.
serve() {
    finish
    d=$(mktemp -d -p "$work" server.XXXX)
    coproc SERVER { exec "$here/est-server" --directory "$d" "$@"; }
    server=$SERVER_PID
    read -r -t 20 ready <&"${SERVER[0]}" || { echo "The server did not start: $*" >&2; exit 1; }
    port=$(sed 's/.*"port": \([0-9]*\).*/\1/' <<<"$ready")
    url=https://localhost:$port
    cat "$d/ca.pem" "$d/intermediate.pem" >"$d/all.pem"
}

finish() {
    [ -n "$server" ] || return 0
    kill "$server" 2>/dev/null
    wait "$server" 2>/dev/null
    server=
}

# check WHAT COMMAND...: passes if the command succeeds.
check() {
    local what=$1
    shift
    if "$@" >"$work/out" 2>&1; then
        passed=$((passed + 1))
        echo "ok      $what"
    else
        failed=$((failed + 1))
        echo "FAILED  $what"
        sed 's/^/        /' "$work/out" | tail -n 15
        tail -n 2 "$d/log.jsonl" | sed 's/^/        /'
    fi
}

refused() { ! "$@"; }

# status NUMBER CURL-ARGUMENT...: passes if that is the answer's status; the body is in $d/body.
status() {
    local expected=$1 got
    shift
    got=$(timeout 20 curl -sS --cacert "$d/ca.pem" -o "$d/body" -w '%{http_code}' "$@")
    echo "expected $expected, got $got"
    [ "$got" = "$expected" ]
}

# enrol NUMBER CURL-ARGUMENT...: the same for a CSR posted to simpleenroll, or to the path in $path.
enrol() {
    status "$@" -H 'Content-Type: application/pkcs10' --data-binary "@${csr:-$work/csr.b64}" \
        "$url/.well-known/est/${path:-simpleenroll}"
}

# logged PATTERN: the last line of the log has it.
logged() { tail -n 1 "$d/log.jsonl" | grep -F -- "$1"; }

# issued NUMBER: so many certificates, in files and in the log.
issued() {
    local files lines
    files=$(find "$d/issued" -name '*.pem' | wc -l)
    lines=$(grep -c '"serial": "[0-9a-f]*", "host"' "$d/log.jsonl")
    echo "$files files, $lines lines"
    [ "$files" = "$1" ] && [ "$lines" = "$1" ]
}

# leaf FILE: the certificate in $d/body, a bag in base64, that is for the CSR's key, as PEM.
leaf() {
    base64 -di "$d/body" | openssl pkcs7 -inform der -print_certs -out "$d/bag.pem" &&
        csplit -s -z -f "$d/bag-" "$d/bag.pem" '/^subject/' '{*}' || return 1
    for one in "$d"/bag-*; do
        if openssl x509 -in "$one" -noout -pubkey | cmp -s - "${public:-$work/public.pem}"; then
            openssl x509 -in "$one" -out "$1"
        fi
        rm "$one"
    done
    [ -s "$1" ]
}

# bag NUMBER: so many certificates are in $d/body.
bag() {
    local count
    count=$(base64 -di "$d/body" | openssl pkcs7 -inform der -print_certs | grep -c ^subject)
    check "    $1 certificates" [ "$count" = "$1" ]
}

trusted() { openssl verify -x509_strict -purpose sslclient -CAfile "$d/ca.pem" -untrusted "$d/intermediate.pem" "$@"; }

# request NAME SUBJECT SAN: a key on P-256, its CSR in base64 and its public key.
request() {
    openssl ecparam -genkey -noout -name prime256v1 -out "$work/$1.key" &&
        openssl req -new -key "$work/$1.key" -subj "$2" -addext "subjectAltName=$3" -outform der -out "$work/$1.der" &&
        openssl base64 -in "$work/$1.der" -out "$work/$1.b64" &&
        openssl pkey -in "$work/$1.key" -pubout -out "$work/$1.public"
}

request csr /CN=device DNS:device.example
mv csr.public public.pem

summary() {
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
}
