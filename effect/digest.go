package effect

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// ParseDigest reads what Digest.String returns. Sixty-four zeros are refused: the zero Digest says that there is
// none, and nobody may name it to get past a comparison.
func ParseDigest(s string) (Digest, error) {
	digits, ok := strings.CutPrefix(s, "b3:")
	if ok && len(digits) == hex.EncodedLen(len(Digest{})) {
		if b, err := hex.DecodeString(digits); err == nil && !Digest(b).IsZero() {
			return Digest(b), nil
		}
	}
	return Digest{}, fmt.Errorf("%q is no digest: want b3: and 64 hex digits, not all zero", s)
}

// MarshalText returns what String does.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what String returns.
func (d *Digest) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDigest(string(text))
	return err
}
