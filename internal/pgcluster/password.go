package pgcluster

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// secretOf is what a server keeps of a password, to check it by SCRAM-SHA-256 (RFC 5802, section 3). A server that makes
// it itself has each client repeat 4096 hashes with each connection, so that passwords are slow to guess; ours are
// random, and one will do.
func secretOf(password string) string {
	salt := make([]byte, 16)
	rand.Read(salt) // never fails
	salted := keyed([]byte(password), append(salt, 0, 0, 0, 1))
	stored := sha256.Sum256(keyed(salted, []byte("Client Key")))
	text := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$1:%s$%s:%s", text(salt), text(stored[:]), text(keyed(salted, []byte("Server Key"))))
}

func keyed(key, text []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(text)
	return mac.Sum(nil)
}
