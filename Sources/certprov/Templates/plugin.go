// A certificate provider for certprov: cert.pem and key.pem in a directory.
package main

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const description = `{
	"version": 1, "id": "@NAME@", "pluginVersion": "1.0",
	"provider": {
		"displayName": "@NAME@", "summary": "cert.pem and key.pem in a directory.",
		"parameters": [{
			"name": "directory", "type": "secret-path", "required": true,
			"summary": "The directory with cert.pem and key.pem."
		}]
	}
}`

// Your source of certificates: replace this function, and the parameters above. Another value of a parameter is another
// configuration, with a stored identity of its own, unless its description has "distinguishes": false.
//
// It returns the chain, leaf first, and its unencrypted PKCS#8 key, all as DER.
func obtain(parameters map[string]string) (chain [][]byte, key []byte, err error) {
	directory := parameters["directory"]
	if directory == "" {
		return nil, nil, &failure{
			"configurationInvalid", "The parameter 'directory' is missing. Set it in the property file."}
	}
	if chain, err = documents(filepath.Join(directory, "cert.pem"), "CERTIFICATE"); err != nil {
		return nil, nil, err
	}
	keys, err := documents(filepath.Join(directory, "key.pem"), "PRIVATE KEY")
	if err != nil {
		return nil, nil, err
	}
	return chain, keys[0], nil
}

// documents returns the PEM documents of one type in a file, as DER.
func documents(path, kind string) (found [][]byte, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, &failure{"fileNotFound", fmt.Sprintf(
			"%s cannot be read: %v. Set 'directory' to a directory with this file.",
			path, errors.Unwrap(err))}
	}
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == kind {
			found = append(found, block.Bytes)
		}
	}
	if found == nil {
		return nil, &failure{"malformedData", fmt.Sprintf(
			"%s has no valid PEM document of the type %s. Replace the file.", path, kind)}
	}
	return found, nil
}

// A failure is an error for the user: a code of the plugin protocol, and a sentence with the next step.
type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (f *failure) Error() string { return f.Message }

// The plugin protocol: what follows fits any source. The host's sealed store has the identity as its entry 'identity'.

type object = map[string]any

// A message is a request, or the answer to one.
type message struct {
	ID      *uint64         `json:"id"`
	Request string          `json:"request"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *failure        `json:"error"`
}

// An entry is an identity in the host's store.
type entry struct {
	Chain      [][]byte `json:"chain"`
	PrivateKey struct {
		Secret []byte `json:"secret"`
	} `json:"privateKey"`
}

var (
	input      = json.NewDecoder(os.Stdin)
	output     = json.NewEncoder(os.Stdout)
	parameters map[string]string
)

func main() {
	for {
		request := receive()
		result, err := answer(request)
		if err == nil {
			send(object{"id": request.ID, "result": result})
			continue
		}
		var reason *failure
		if !errors.As(err, &reason) {
			reason = &failure{"internal", err.Error()}
		}
		send(object{"id": request.ID, "error": reason})
	}
}

// answer returns the result of a request of the host.
func answer(request message) (any, error) {
	switch request.Request {
	case "hello":
		return json.RawMessage(description), nil
	case "configure":
		var params struct{ Parameters map[string]string }
		err := json.Unmarshal(request.Params, &params)
		parameters = params.Parameters
		return object{}, err
	case "obtain":
		var e entry
		var err error
		if e.Chain, e.PrivateKey.Secret, err = obtain(parameters); err != nil {
			return nil, err
		}
		return identity(&e), ask("entry.write", object{"name": "identity", "entry": e}, nil)
	case "stored":
		var stored struct{ Entry *entry }
		err := ask("entry.read", object{"name": "identity"}, &stored)
		return identity(stored.Entry), err
	case "forget":
		return object{}, ask("entry.remove", object{"name": "identity"}, nil)
	default:
		return nil, &failure{"unsupported", fmt.Sprintf("The request '%s' is not supported.", request.Request)}
	}
}

func identity(e *entry) object {
	if e == nil {
		return object{"identity": nil}
	}
	key := object{"pkcs8": e.PrivateKey, "location": "store"}
	return object{"identity": object{"chain": e.Chain, "key": key}}
}

// ask sends a request to the host, and reads the result into a variable, if there is one.
func ask(request string, params object, result any) error {
	send(object{"id": 1, "request": request, "params": params})
	reply := receive()
	if reply.Error != nil {
		return reply.Error
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(reply.Result, result)
}

func send(fields object) {
	if err := output.Encode(fields); err != nil {
		os.Exit(1)
	}
}

// receive returns the next message that is not a notice. It ends the program at the end of the input.
func receive() message {
	for {
		var next message
		err := input.Decode(&next)
		if err == io.EOF {
			os.Exit(0)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "A line is not a message of the plugin protocol.")
			os.Exit(1)
		}
		if next.ID != nil {
			return next
		}
	}
}
