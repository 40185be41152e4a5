package interceptors_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/undolog/undolog/interceptors"
)

// FuzzDecodeInvoke: what is read can be written and is read again as the same.
func FuzzDecodeInvoke(f *testing.F) {
	raw, err := os.ReadFile("testdata/host.json")
	if err != nil {
		f.Fatal(err)
	}
	var cases []hostCase
	if err := json.Unmarshal(raw, &cases); err != nil {
		f.Fatal(err)
	}
	for _, c := range cases {
		f.Add([]byte(c.Params))
	}
	f.Add([]byte(`{"name":"v","event":"e","phase":"response","timeoutMs":5e3,"context":{"principal":{"type":"user","claims":{}},"x/y":1.0}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := interceptors.DecodeInvoke(bytes.Clone(raw))
		if err != nil {
			interceptors.WireError(err)
			return
		}
		once, err := json.Marshal(p)
		if err != nil {
			t.Fatalf("write what was read of %q: %v", raw, err)
		}
		q, err := interceptors.DecodeInvoke(once)
		if err != nil {
			t.Fatalf("read %q again: %v", once, err)
		}
		twice, err := json.Marshal(q)
		if err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%q became %q and then %q, %v", raw, once, twice, err)
		}
	})
}

// FuzzResult: every result that is read is of one type and is written flat.
func FuzzResult(f *testing.F) {
	f.Add([]byte(`{"interceptor":"i","type":"validation","phase":"request","valid":false,"messages":[{"message":"no","severity":"error"}]}`))
	f.Add([]byte(`{"interceptor":"i","type":"mutation","phase":"request","mutation":{"modified":true},"payload":{"a":1.0},"durationMs":0.5}`))
	f.Add([]byte(`{"valid":true,"info":{}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		writtenAgain(t, raw, new(interceptors.Result), new(interceptors.Result))
	})
}

// FuzzDescriptor: every descriptor that is read is written in today's form.
func FuzzDescriptor(f *testing.F) {
	f.Add([]byte(`{"name":"a","type":"validation","hook":{"events":["*"],"phase":"both"},"mode":"enforce","priorityHint":3}`))
	f.Add([]byte(`{"name":"a","type":"mutation","hooks":[{"phase":"request"}],"priorityHint":{"request":-1},"configSchema":{}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		writtenAgain(t, raw, new(interceptors.Descriptor), new(interceptors.Descriptor))
	})
}

func writtenAgain(t *testing.T, raw []byte, first, second json.Unmarshaler) {
	t.Helper()
	if err := json.Unmarshal(raw, first); err != nil {
		return
	}
	once, err := json.Marshal(first)
	if err != nil {
		t.Fatalf("write what was read of %q: %v", raw, err)
	}
	if err := json.Unmarshal(once, second); err != nil {
		t.Fatalf("read %q again: %v", once, err)
	}
	twice, err := json.Marshal(second)
	if err != nil || !bytes.Equal(once, twice) {
		t.Errorf("%q became %q and then %q, %v", raw, once, twice, err)
	}
}

// FuzzServer_Invoke_Modified: a payload that counts as unmodified is equal to the one before by RFC 8785.
func FuzzServer_Invoke_Modified(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":[1.0e2,"é"]}`), []byte(`{"b":[100,"\u00e9"],"a":1}`))
	f.Add([]byte(`[9007199254740993]`), []byte(`[9007199254740992]`))
	f.Add([]byte(`{"a":{"b":{"c":0}},"d":1}`), []byte(`{"d":1,"a":{"b":{"c":-0}}}`))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		if len(before) == 0 || len(after) == 0 {
			return
		}
		s := newServer(t, nil, mutator("m", requestOnly("tools/call"),
			func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
				return &interceptors.Change{Payload: after}, nil
			}))
		p := callOf("m", string(before))
		p.Caller.Local = true
		r, err := s.Invoke(t.Context(), p)
		if err != nil {
			return
		}
		a, b := jsontext.Value(bytes.Clone(before)), jsontext.Value(bytes.Clone(after))
		if a.Canonicalize() != nil || b.Canonicalize() != nil {
			return
		}
		if !r.Modified && !bytes.Equal(a, b) {
			t.Errorf("%s counts as unmodified %s", after, before)
		}
	})
}
