package effect

import (
	"encoding/binary"
	"encoding/hex"

	"lukechampine.com/blake3"
	"lukechampine.com/blake3/guts"

	"github.com/undolog/undolog/internal/jcs"
)

// Signature identifies equal calls: BLAKE3-256 over the eight fields of an identity. The zero
// Signature means that there is none.
type Signature [32]byte

// IsZero reports whether there is no signature.
func (s Signature) IsZero() bool { return s == Signature{} }

// String returns "b3:" and 64 hex digits.
func (s Signature) String() string { return string(s.Append(nil)) }

// Append appends what String returns.
func (s Signature) Append(dst []byte) []byte { return hex.AppendEncode(append(dst, "b3:"...), s[:]) }

// Digest is BLAKE3-256 over canonical JSON.
type Digest [32]byte

// IsZero reports whether there is no digest.
func (d Digest) IsZero() bool { return d == Digest{} }

// String returns "b3:" and 64 hex digits.
func (d Digest) String() string { return "b3:" + hex.EncodeToString(d[:]) }

// known is what String returns, in words where there is no digest.
func (d Digest) known() string {
	if d.IsZero() {
		return "not known"
	}
	return d.String()
}

// DigestOf returns the digest of the canonical form of a JSON text. Every error is a *jcs.Error, which
// carries the JSON pointer.
func DigestOf(src []byte) (Digest, error) {
	canonical, err := jcs.Canonical(src)
	if err != nil {
		return Digest{}, err
	}
	return digest(canonical), nil
}

func digest(canonical []byte) Digest { return sum256(canonical) }

// sum256 is blake3.Sum256 without its goroutines: the library hands everything above one chunk to several,
// which for the arguments of a call costs more than hashing them.
func sum256(b []byte) [32]byte {
	switch {
	case len(b) <= guts.ChunkSize, len(b) > guts.MaxSIMD*guts.ChunkSize:
		return blake3.Sum256(b)
	case len(b) <= 2*guts.ChunkSize: // most calls; the copy below costs more than the second chunk
		left := guts.ChainingValue(guts.CompressChunk(b[:guts.ChunkSize], &guts.IV, 0, 0))
		right := guts.ChainingValue(guts.CompressChunk(b[guts.ChunkSize:], &guts.IV, 1, 0))
		return root(guts.ParentNode(left, right, &guts.IV, 0))
	}
	return sumChunks(b)
}

// sumChunks hashes up to guts.MaxSIMD chunks at once, which the library wants copied.
func sumChunks(b []byte) [32]byte {
	var buf [guts.MaxSIMD * guts.ChunkSize]byte
	return root(guts.CompressBuffer(&buf, copy(buf[:], b), &guts.IV, 0, 0))
}

func root(n guts.Node) (sum [32]byte) {
	n.Flags |= guts.FlagRoot
	out := guts.WordsToBytes(guts.CompressNode(n))
	copy(sum[:], out[:])
	return sum
}

// layout names the order and the meaning of the signed fields. Another layout is another name.
const layout = "undolog effect v1"

// sign hashes the eight fields of an identity, each as a big-endian 32-bit length and its bytes.
func sign(call *Call, rule Rule, scope string, arguments []byte) Signature {
	tenant := call.Tenant
	if tenant == "" {
		tenant = DefaultTenant
	}
	buf := make([]byte, 0, 128+len(tenant)+len(scope)+len(call.Server)+len(call.Tool)+len(arguments)+len(call.Occurrence))
	for _, field := range [...]string{layout, string(rule), tenant, scope, call.Server, call.Tool} {
		buf = append(appendLength(buf, len(field)), field...)
	}
	buf = append(appendLength(buf, len(arguments)), arguments...)
	buf = append(appendLength(buf, len(call.Occurrence)), call.Occurrence...)
	return sum256(buf)
}

func appendLength(dst []byte, n int) []byte { return binary.BigEndian.AppendUint32(dst, uint32(n)) }
