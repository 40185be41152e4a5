package effectinterceptor

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/splice"
)

// stamp returns the params that go to the target: marked with the effect and attempt, and with the key
// under which the target may recognise another attempt. What the client put under our prefix is taken off.
func (c *toolCall) stamp(claim *effect.Claim, key string) json.RawMessage {
	out := c.openMeta(len(claim.Effect) + len(key) + 96)
	for n, m := range c.kept {
		if n != c.target {
			out = append(append(out, c.payload[m.start:m.end]...), ',')
		}
	}
	out = append(out, `"`+effectMeta+`":{"id":"`...)
	out = append(append(out, claim.Effect...), `","attempt":`...)
	out = strconv.AppendInt(out, int64(claim.Attempt), 10)
	out = append(out, `},"`+targetKey+`":`...)
	return c.closeMeta(appendQuoted(out, key))
}

// inject puts the target's key where its contract wants it as well. A header is the engine's to send.
func inject(params json.RawMessage, in effect.Inject, key string) (json.RawMessage, error) {
	switch in.Into {
	case effect.InjectArgument:
		return splice.Set(params, splice.Quote(key), "arguments", in.Name)
	case effect.InjectMeta:
		return splice.Set(params, splice.Quote(key), "_meta", in.Name)
	}
	return params, nil
}

// strip returns the params without what the client put under our prefix, for a call that is not claimed.
func (c *toolCall) strip() json.RawMessage {
	if !c.foreign {
		return c.payload
	}
	out := c.openMeta(0)
	for n, m := range c.kept {
		if n > 0 {
			out = append(out, ',')
		}
		out = append(out, c.payload[m.start:m.end]...)
	}
	return c.closeMeta(out)
}

// openMeta returns the params up to the inside of their _meta, with room for more bytes than they have.
func (c *toolCall) openMeta(more int) []byte {
	out := make([]byte, 0, len(c.payload)+more)
	if c.meta.end > 0 {
		return append(append(out, c.payload[:c.meta.start]...), '{')
	}
	out = append(out, bytes.TrimRight(c.payload[:c.closing], " \t\r\n")...)
	return append(out, `,"_meta":{`...) // a call has a name: there is a member before
}

func (c *toolCall) closeMeta(out []byte) json.RawMessage {
	out = append(out, '}')
	if c.meta.end > 0 {
		return append(out, c.payload[c.meta.end:]...)
	}
	return append(out, c.payload[c.closing:]...)
}

// appendQuoted appends s as a JSON string; what is not UTF-8 in it is replaced.
func appendQuoted(dst []byte, s string) []byte {
	quoted, err := jsontext.AppendQuote(dst, s)
	if err != nil {
		quoted, _ = jsontext.AppendQuote(dst, strings.ToValidUTF8(s, "\uFFFD"))
	}
	return quoted
}
