package effect

import "encoding/hex"

// Signature identifies equal calls: BLAKE3-256 over the eight fields of an identity. The zero
// Signature means that there is none.
type Signature [32]byte

// IsZero reports whether there is no signature.
func (s Signature) IsZero() bool { return s == Signature{} }

// String returns "b3:" and 64 hex digits.
func (s Signature) String() string { return "b3:" + hex.EncodeToString(s[:]) }

// Digest is BLAKE3-256 over canonical JSON.
type Digest [32]byte

// IsZero reports whether there is no digest.
func (d Digest) IsZero() bool { return d == Digest{} }

// String returns "b3:" and 64 hex digits.
func (d Digest) String() string { return "b3:" + hex.EncodeToString(d[:]) }
