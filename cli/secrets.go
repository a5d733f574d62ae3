package cli

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"strings"

	"byre/image"
)

// secrets are the passphrases that --object defines, by id.
type secrets map[string][]byte

// define reads an object: "secret,id=ID,data=…|file=PATH[,format=raw|base64]", or the same as a JSON object.
func (s secrets) define(text string) error {
	var t image.Tree
	var err error
	if strings.HasPrefix(text, "{") {
		t, err = image.ParseJSON(text)
	} else {
		kind, rest, _ := strings.Cut(text, ",")
		kind = strings.TrimPrefix(kind, "qom-type=")
		if t, err = image.ParseOptionString(rest); err == nil {
			t["qom-type"] = kind
		}
	}
	if err != nil {
		return fmt.Errorf("--object: %w", err)
	}
	if t["qom-type"] != "secret" {
		return fmt.Errorf("--object: objects of type '%v' are not supported", t["qom-type"])
	}
	id, _ := t["id"].(string)
	if id == "" {
		return fmt.Errorf("--object: the secret has no id")
	}
	if _, twice := s[id]; twice {
		return fmt.Errorf("--object: there is a secret '%s' already", id)
	}
	data, err := secretData(t)
	if err != nil {
		return fmt.Errorf("--object: secret '%s': %w", id, err)
	}
	s[id] = data
	return nil
}

func secretData(t image.Tree) ([]byte, error) {
	for k := range t {
		switch k {
		case "qom-type", "id", "data", "file", "format":
		case "keyid", "iv":
			return nil, fmt.Errorf("encrypted secrets are not supported")
		default:
			return nil, fmt.Errorf("no property '%s'", k)
		}
	}
	text, isData := t["data"].(string)
	path, isFile := t["file"].(string)
	data := []byte(text)
	if isData == isFile {
		return nil, fmt.Errorf("wants either data or file")
	}
	if isFile {
		var err error
		if data, err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	switch t["format"] {
	case nil, "raw":
		return data, nil
	case "base64":
		return base64.StdEncoding.DecodeString(string(bytes.TrimSpace(data)))
	}
	return nil, fmt.Errorf("format '%v' is neither raw nor base64", t["format"])
}

// find is how image.Open asks.
func (s secrets) find(id string) ([]byte, error) {
	data, ok := s[id]
	if !ok {
		return nil, fmt.Errorf("no secret with id '%s'", id)
	}
	return data, nil
}
