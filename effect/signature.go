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
func sum256(b []byte) (sum [32]byte) {
	const most = guts.MaxSIMD * guts.ChunkSize
	if len(b) <= guts.ChunkSize || len(b) > most {
		return blake3.Sum256(b)
	}
	var buf [most]byte
	n := guts.CompressBuffer(&buf, copy(buf[:], b), &guts.IV, 0, 0)
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
