package interceptors

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"sync"

	json2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/undolog/undolog/internal/splice"
)

// maxCompareDepth bounds the work of equalJSON: values that differ only in spelling further down than
// this count as different.
const maxCompareDepth = 64

// equalJSON reports whether two JSON values mean the same: members in any order, numbers by their exact
// value whatever their spelling (1, 1.0 and 10e-1 are equal; 9007199254740993 and …992 are not).
func equalJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	switch compareInOrder(a, b) {
	case same:
		return true
	case different:
		return false
	}
	return equalAt(a, b, 0)
}

// comparison is what reading two values side by side can tell.
type comparison int

const (
	different comparison = iota
	same
	unordered // members come in another order: only equalAt can tell
)

// compareInOrder reads two values token by token, which settles without an allocation a token the usual
// cases: nothing but white space changed, or a member was added, removed or changed in its place.
func compareInOrder(a, b json.RawMessage) comparison {
	c := comparers.Get().(*comparer)
	defer comparers.Put(c)
	defer c.reset(nil, nil) // keeps no payload
	c.reset(a, b)
	return c.compare()
}

// comparer is a pair of decoders, kept because their stacks are worth more than a comparison.
type comparer struct {
	x, y jsontext.Decoder
	a, b bytes.Buffer
}

var comparers = sync.Pool{New: func() any { return new(comparer) }}

func (c *comparer) reset(a, b json.RawMessage) {
	c.a, c.b = *bytes.NewBuffer(a), *bytes.NewBuffer(b)
	c.x.Reset(&c.a, compareOptions)
	c.y.Reset(&c.b, compareOptions)
}

// compareOptions are lenient: what is malformed was refused before, or counts as different.
var compareOptions = json2.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

func (c *comparer) compare() comparison {
	x, y := &c.x, &c.y
	for {
		kind := x.PeekKind()
		if kind != y.PeekKind() {
			return different
		}
		switch kind {
		case '{', '[', '}', ']':
			if _, err := x.ReadToken(); err != nil {
				return different
			}
			if _, err := y.ReadToken(); err != nil {
				return different
			}
		default:
			parent, length := x.StackIndex(x.StackDepth())
			isName := parent == '{' && length%2 == 0
			v, xerr := x.ReadValue()
			w, yerr := y.ReadValue()
			switch {
			case xerr != nil || yerr != nil:
				return different
			case equalScalars(json.RawMessage(v), json.RawMessage(w)):
			case isName:
				return unordered
			default:
				return different
			}
		}
		if x.StackDepth() == 0 {
			return same
		}
	}
}

func equalAt(a, b json.RawMessage, depth int) bool {
	a, b = bytes.TrimSpace(a), bytes.TrimSpace(b)
	if bytes.Equal(a, b) {
		return true
	}
	if len(a) == 0 || len(b) == 0 || depth > maxCompareDepth {
		return false
	}
	switch {
	case a[0] == '{' && b[0] == '{':
		return equalObjects(a, b, depth)
	case a[0] == '[' && b[0] == '[':
		return equalArrays(a, b, depth)
	}
	return equalScalars(a, b)
}

// equalScalars compares texts, numbers and literals.
func equalScalars(a, b json.RawMessage) bool {
	switch {
	case bytes.Equal(a, b):
		return true
	case a[0] == '"' && b[0] == '"':
		as, aok := splice.Text(a)
		bs, bok := splice.Text(b)
		return aok && bok && as == bs
	case isNumber(a[0]) && isNumber(b[0]):
		return equalNumbers(string(a), string(b))
	}
	return false
}

func equalObjects(a, b json.RawMessage, depth int) bool {
	as, aerr := members(a)
	bs, berr := members(b)
	if aerr != nil || berr != nil || len(as) != len(bs) {
		return false
	}
	at := make(map[string]json.RawMessage, len(bs))
	for _, m := range bs {
		at[m.name] = m.value
	}
	for _, m := range as {
		other, ok := at[m.name]
		if !ok || !equalAt(m.value, other, depth+1) {
			return false
		}
	}
	return true
}

func equalArrays(a, b json.RawMessage, depth int) bool {
	as, aerr := elements(a)
	bs, berr := elements(b)
	if aerr != nil || berr != nil || len(as) != len(bs) {
		return false
	}
	for i := range as {
		if !equalAt(as[i], bs[i], depth+1) {
			return false
		}
	}
	return true
}

func isNumber(first byte) bool { return first == '-' || first >= '0' && first <= '9' }

func equalNumbers(a, b string) bool {
	x, xok := parseDecimal(a)
	y, yok := parseDecimal(b)
	return xok && yok && x == y
}

// decimal is a number as ±0.DIGITS × 10^exp with no zero at either end of digits.
type decimal struct {
	negative bool
	digits   string
	exp      int64
}

// parseDecimal reports false when the exponent is beyond all reason.
func parseDecimal(s string) (decimal, bool) {
	var d decimal
	s, d.negative = strings.CutPrefix(s, "-")
	mantissa, exponent := s, ""
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa, exponent = s[:i], s[i+1:]
	}
	if exponent != "" {
		e, err := strconv.ParseInt(exponent, 10, 32)
		if err != nil {
			return decimal{}, false
		}
		d.exp = e
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	d.exp += int64(len(whole))
	digits := whole + fraction
	d.digits = strings.TrimLeft(digits, "0")
	d.exp -= int64(len(digits) - len(d.digits))
	d.digits = strings.TrimRight(d.digits, "0")
	if d.digits == "" {
		return decimal{}, true // zero, whatever its sign and exponent
	}
	return d, true
}
