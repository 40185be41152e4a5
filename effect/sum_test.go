package effect

import (
	"bytes"
	"testing"

	"lukechampine.com/blake3"
)

func TestSum256_isBLAKE3AtEveryLength(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef-"), 2000)
	for n := 0; n < len(data); n += 1 + n/97 {
		if got, want := sum256(data[:n]), blake3.Sum256(data[:n]); got != want {
			t.Fatalf("sum256 of %d bytes = %x, want %x", n, got, want)
		}
	}
}
