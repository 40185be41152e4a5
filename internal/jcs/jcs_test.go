package jcs_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	oracle "github.com/gowebpki/jcs"

	"github.com/undolog/undolog/internal/jcs"
)

func TestCanonical_GivesEqualValuesEqualBytes(t *testing.T) {
	data, err := os.ReadFile("testdata/canonical.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct{ Name, In, Out string }
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			got, err := jcs.Canonical([]byte(v.In))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(v.Out, string(got)); diff != "" {
				t.Errorf("Canonical (-want +got)\n%s", diff)
			}
			again, err := jcs.Canonical(got)
			if err != nil || !bytes.Equal(again, got) {
				t.Errorf("Canonical of canonical bytes = %s, %v", again, err)
			}
		})
	}
}

func TestCanonical_RefusesWithPointer(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     jcs.Error
	}{
		{"a number past the largest double", `{"a":[1,{"b":1e400}]}`, jcs.Error{Pointer: "/a/1/b", Reason: "number out of the range of a double"}},
		{"its negative", `[-1E400]`, jcs.Error{Pointer: "/0", Reason: "number out of the range of a double"}},
		{"a fraction with 400 digits before the point", `[` + strings.Repeat("9", 400) + `.5]`, jcs.Error{Pointer: "/0", Reason: "number out of the range of a double"}},
		{"a member name with slash and tilde", `{"a/b~c":1e999}`, jcs.Error{Pointer: "/a~1b~0c", Reason: "number out of the range of a double"}},
		{"a duplicate name", `{"o":{"k":1,"k":1}}`, jcs.Error{Pointer: "/o/k", Reason: "duplicate member name"}},
		{"a duplicate name in escapes", `{"k":1,"\u006b":2}`, jcs.Error{Pointer: "/k", Reason: "duplicate member name"}},
		{"a lone high surrogate", `["\ud83d"]`, jcs.Error{Pointer: "/0", Reason: "lone surrogate in a string"}},
		{"a lone low surrogate", `{"a":"x\ude00y"}`, jcs.Error{Pointer: "/a", Reason: "lone surrogate in a string"}},
		{"surrogates the wrong way round", `["\ude00\ud83d"]`, jcs.Error{Pointer: "/0", Reason: "lone surrogate in a string"}},
		{"invalid UTF-8", "{\"a\":\"\xff\"}", jcs.Error{Pointer: "/a", Reason: "invalid UTF-8"}},
		{"a surrogate encoded in UTF-8", "[\"\xed\xa0\x80\"]", jcs.Error{Pointer: "/0", Reason: "invalid UTF-8"}},
		{"1001 nested arrays", strings.Repeat("[", 1001) + strings.Repeat("]", 1001), jcs.Error{Pointer: strings.Repeat("/0", 1000), Reason: "nested deeper than 1000 levels"}},
		{"a name of more than 64 KiB", `{"a":{"` + strings.Repeat("n", jcs.MaxName+1) + `":1}}`, jcs.Error{Pointer: "/a", Reason: "member name longer than 65536 bytes"}},
		{"nothing", ``, jcs.Error{Reason: "unexpected EOF"}},
		{"a second value", `{} {}`, jcs.Error{Reason: "invalid character '{' after top-level value"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := jcs.Canonical([]byte(tt.in))
			var got *jcs.Error
			if !errors.As(err, &got) {
				t.Fatalf("Canonical error = %v, want a *jcs.Error", err)
			}
			if diff := cmp.Diff(&tt.want, got); diff != "" {
				t.Errorf("Canonical error (-want +got)\n%s", diff)
			}
		})
	}
}

func TestCanonical_AcceptsWhatIsJustWithinLimits(t *testing.T) {
	for name, in := range map[string]string{
		"1000 levels":        strings.Repeat("[", 1000) + strings.Repeat("]", 1000),
		"a name of 64 KiB":   `{"` + strings.Repeat("n", jcs.MaxName) + `":1}`,
		"a value of 1 MiB":   `"` + strings.Repeat("v", 1<<20) + `"`,
		"the largest double": `[1.7976931348623157e+308]`,
		"400 digits":         strings.Repeat("9", 400),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := jcs.Canonical([]byte(in))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != in {
				t.Errorf("Canonical changed %d canonical bytes", len(in))
			}
		})
	}
}

func TestCanonical_SortsByUTF16UnitLikeThePublishedDigest(t *testing.T) {
	got, err := jcs.Canonical([]byte(`{"\uff20": 1, "\ud83d\ude00": 1}`))
	if err != nil {
		t.Fatal(err)
	}
	const want = "425159f5c1f0575fbcbf9d05a8f60cde3d040eae5166aa2136657564048651b6"
	sum := sha256.Sum256(got)
	if hex.EncodeToString(sum[:]) != want {
		t.Errorf("SHA-256 of %s = %x, want %s", got, sum, want)
	}
}

func TestCanonical_LeavesItsInputAlone(t *testing.T) {
	src := []byte(`{"b": 1.0, "a": "\u0041"}`)
	before := bytes.Clone(src)
	if _, err := jcs.Canonical(src); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, src); diff != "" {
		t.Errorf("input (-before +after)\n%s", diff)
	}
}

func TestCanonical_PlainTextsAreNoSpecialCase(t *testing.T) {
	for _, src := range []string{
		`{}`, `[]`, `{"b":1,"a":2}`, `{"b":{"d":1,"c":[{"z":0,"y":1}]},"a":"x"}`, ` { "b" : [ 1 , -2 ] , "a" : { } } `,
		`{"a":1,"a":1}`, `{"b":1,"a":2,"b":3}`, `{"ab":1,"a":2,"":3}`, `{"a":1,}`, `{"a" 1}`, `{a:1}`, `[1,]`, `[,1]`, `[1 2]`, `{"a":1}}`, `[`, `{"a`,
		`0`, `-0`, `-`, `01`, `-01`, `1.`, `.5`, `1.50`, `-0.5`, `0.0`, `-0.0`, `1.0`, `0.000001`, `0.0000001`, `1e5`, `1.5e5`, `1-1`, `9007199254740993`,
		`123456789012345678901.5`, `999999999999999999999.5`, `1234567890123456789012.5`, `0.1234567890123456789012345678901234567890123456789012345678901234567890`,
		`true`, `tru`, `truex`, `false`, `null`, `nul`, `"a\n"`, `"\"q\" \\ \b\f\n\r\t"`, `"\/"`, `"a\`, `"a\\"`, `"\x"`, `{"a\n":1}`, `"a\u0041"`, "\"\x01\"", "\"12345678\x1f\"", "\"1234567\x1f\"", "\"\x7f\"",
		`"é"`, `{"é":1,"a":2}`, `{"\uff20":1,"😀":2}`, "\"\xff\"", "\"12345678\xff\"", "\"\xed\xa0\x80\"", "\ufeff1", "",
		strings.Repeat("[", 64) + strings.Repeat("]", 64), strings.Repeat("[", 65) + strings.Repeat("]", 65),
	} {
		got, err := jcs.Canonical([]byte(src))
		want, wantErr := jcs.General([]byte(src))
		if diff := cmp.Diff(string(want), string(got)); diff != "" || (err == nil) != (wantErr == nil) {
			t.Errorf("Canonical of %q: %v, want %v (-want +got)\n%s", src, err, wantErr, diff)
		}
		if valid := jsontext.Value(src).IsValid(); jcs.Valid([]byte(src)) != valid {
			t.Errorf("Valid(%q) = %t", src, !valid)
		}
	}
}

// A text of escapes, or of objects in objects, takes no more than a longer one of letters would.
func TestCanonical_TakesTimeByLength(t *testing.T) {
	const size = 4 << 20
	for name, src := range map[string]string{
		"line breaks": `{"a":"` + strings.Repeat(`\n`, size/2) + `"}`,
		"quotes":      `{"a":"` + strings.Repeat(`\"`, size/2) + `"}`,
		"objects":     `[` + strings.Repeat(`{"b":{},"a":[]},`, size/16) + `0]`,
		"members":     `{` + members(size/16) + `}`,
		"nested":      strings.Repeat(`{"b":0,"a":`, 60) + `"` + strings.Repeat("x", size) + `"` + strings.Repeat(`}`, 60),
	} {
		done := make(chan error, 1)
		go func() {
			_, err := jcs.Canonical([]byte(src))
			done <- err
		}()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(time.Minute): // a square of the length would take hours
			t.Fatalf("%s: no end is in sight", name)
		}
	}
}

// members are n members in no order.
func members(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"%08d":0`, uint32(i)*2654435761%100_000_007)
	}
	return b.String()
}

// FuzzCanonical compares with another implementation of RFC 8785 wherever both accept a value: that one
// rounds integers, and is laxer about what is JSON.
func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{
		`{"b":[1,2.50,-0,1e21,5e-324],"a":"\u00e9\u2028\ud83d\ude00"}`, `[]`, `"\u0000"`, `{"":{"":[]}}`,
		`{"a":1,"\u0061":2}`, `[1e400]`, `["\ud800"]`, `9007199254740993`, ` { "z" : null , "y" : [ true , false ] } `,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		got, err := jcs.Canonical(src)
		general, generalErr := jcs.General(src)
		if !bytes.Equal(general, got) || (err == nil) != (generalErr == nil) {
			t.Fatalf("Canonical = %s, %v; in general %s, %v", got, err, general, generalErr)
		}
		if valid := jsontext.Value(src).IsValid(); jcs.Valid(src) != valid {
			t.Fatalf("Valid(%s) = %t", src, !valid)
		}
		if err != nil {
			var refused *jcs.Error
			if !errors.As(err, &refused) {
				t.Fatalf("Canonical error = %v, want a *jcs.Error", err)
			}
			return
		}
		again, err := jcs.Canonical(got)
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("Canonical of canonical %s = %s, %v", got, again, err)
		}
		if hasLongInteger(got) {
			return
		}
		want, err := oracle.Transform(src)
		if err == nil && !bytes.Equal(want, got) {
			t.Fatalf("Canonical = %s, oracle %s", got, want)
		}
	})
}

// hasLongInteger reports whether there may be an integer that a double cannot hold.
func hasLongInteger(canonical []byte) bool {
	run := 0
	for _, c := range canonical {
		if run++; c < '0' || c > '9' {
			run = 0
		}
		if run > 15 {
			return true
		}
	}
	return false
}

func BenchmarkCanonical1KiB(b *testing.B) {
	src := []byte(`{"to":"someone@example.com","subject":"an invoice","amount":1250.50,"lines":[` +
		strings.Repeat(`{"sku":"A-1","count":3,"price":12.5,"note":"café\n"},`, 15) + `{}],"id":9007199254740993}`)
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := jcs.Canonical(src); err != nil {
			b.Fatal(err)
		}
	}
}
