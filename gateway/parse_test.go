package gateway_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/gateway"
)

func TestParseMessage_keepsEveryByte(t *testing.T) {
	tests := map[string]string{
		"big id":          `{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/call","params":{"n":1.50}}`,
		"unknown members": `{"x":{"a":1,"a":2},"jsonrpc":"2.0","method":"m","id":"é","params":{},"y":null}`,
		"white space":     "{ \"jsonrpc\" : \"2.0\" ,\n \"id\" : 1e2 , \"result\" : { \"ok\" : true } }",
		"odd unicode":     `{"jsonrpc":"2.0","id":1,"result":{"s":"\ud800"}}`,
	}
	for name, raw := range tests {
		t.Run(name, func(t *testing.T) {
			m, err := gateway.ParseMessage([]byte(raw), nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(raw, string(m.Raw)); diff != "" {
				t.Errorf("Raw (-want +got)\n%s", diff)
			}
		})
	}
}

func TestParseMessage_readsTheEnvelope(t *testing.T) {
	m, err := gateway.ParseMessage([]byte(`{"jsonrpc":"2.0","id" : 007e0,"method":"x"}`), nil)
	if err == nil {
		t.Fatalf("a number with leading zeros passed: %+v", m)
	}
	m, err = gateway.ParseMessage([]byte(`{"jsonrpc":"2.0","\u0069d":12,"method":"tools\/call","params":null}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if string(m.ID) != "12" || m.Method != "tools/call" || m.Params != nil {
		t.Errorf("id %s, method %q, params %s", m.ID, m.Method, m.Params)
	}
}

func TestParseMessage_refusesUnderTheRightID(t *testing.T) {
	deep := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
	tests := map[string]struct {
		raw, id, method string
		code            int
	}{
		"10,000 levels deep":      {`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"a":` + deep + `}}`, `7`, "tools/call", -32600},
		"deep before the id":      {`{"jsonrpc":"2.0","params":{"a":` + deep + `},"method":"m","id":"late"}`, `"late"`, "m", -32600},
		"a name of 1 MB":          {`{"jsonrpc":"2.0","id":8,"method":"m","params":{"` + strings.Repeat("k", 1<<20) + `":1}}`, `8`, "m", -32600},
		"id twice":                {`{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}`, `1`, "m", -32600},
		"method twice":            {`{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}`, `1`, "a", -32600},
		"params twice":            {`{"jsonrpc":"2.0","id":1,"method":"a","params":{},"params":{}}`, `1`, "a", -32600},
		"twice by an escape":      {`{"jsonrpc":"2.0","id":1,"method":"a","\u0070arams":{},"params":{}}`, `1`, "a", -32600},
		"broken behind the id":    {`{"jsonrpc":"2.0","id":3,"method":"m","params":{"a":tru}}`, `3`, "m", -32700},
		"cut off":                 {`{"jsonrpc":"2.0","id":4,"method":"m","params":{`, `4`, "m", -32700},
		"an object as id":         {`{"jsonrpc":"2.0","id":{"a":1},"method":"m"}`, ``, "m", -32600},
		"null as id of a request": {`{"jsonrpc":"2.0","id":null,"method":"m"}`, ``, "m", -32600},
		"true as id":              {`{"jsonrpc":"2.0","id":true,"method":"m"}`, ``, "m", -32600},
		"an id inside params":     {`{"jsonrpc":"2.0","params":{"id":5,"method":"x"},"method":"m","method":"m"}`, ``, "m", -32600},
		"capital letters":         {`{"jsonrpc":"2.0","ID":1,"Method":"m"}`, ``, "", -32600},
		"another version":         {`{"jsonrpc":"1.0","id":1,"method":"m"}`, `1`, "m", -32600},
		"no version":              {`{"id":1,"method":"m"}`, `1`, "m", -32600},
		"params as an array":      {`{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}`, `1`, "m", -32600},
		"a result and an error":   {`{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`, `1`, "", -32600},
		"neither":                 {`{"jsonrpc":"2.0","id":1}`, `1`, "", -32600},
		"two values":              {`{"jsonrpc":"2.0","id":1,"method":"m"} {}`, `1`, "m", -32600},
		"text":                    {`Server listening on stdio`, ``, "", -32700},
		"a number":                {`7`, ``, "", -32600},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := gateway.ParseMessage([]byte(tt.raw), nil)
			var refused *gateway.RefusedError
			if !errors.As(err, &refused) {
				t.Fatalf("ParseMessage error = %v, want a *RefusedError", err)
			}
			if string(refused.ID) != tt.id || refused.Method != tt.method || refused.Code != tt.code {
				t.Errorf("refused id %s, method %q, code %d (%s)", refused.ID, refused.Method, refused.Code, refused.Message)
			}
			if len(refused.Message) > 500 {
				t.Errorf("message of %d bytes", len(refused.Message))
			}
		})
	}
}

func TestParseMessage_limits(t *testing.T) {
	raw := []byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"abc":[[1]]}}`)
	fits := &gateway.Limits{MaxBytes: int64(len(raw)), MaxDepth: 4, MaxName: 9}
	if _, err := gateway.ParseMessage(raw, fits); err != nil {
		t.Errorf("a message at its limits: %v", err)
	}
	for name, l := range map[string]*gateway.Limits{
		"bytes": {MaxBytes: int64(len(raw)) - 1},
		"depth": {MaxDepth: 3},
		"name":  {MaxName: 7},
	} {
		if _, err := gateway.ParseMessage(raw, l); err == nil {
			t.Errorf("%s: a message above the limit passed", name)
		}
	}
}

func TestSplitBatch(t *testing.T) {
	got, err := gateway.SplitBatch([]byte(` [ {"a":1} , {"b":[2]} ] `))
	if err != nil {
		t.Fatal(err)
	}
	if want := `[{"a":1} {"b":[2]}]`; fmt.Sprintf("%s", got) != want {
		t.Errorf("SplitBatch = %s, want %s", got, want)
	}
	for _, raw := range []string{`[]`, `[{"a":1}`, `[1,]`} {
		if _, err := gateway.SplitBatch([]byte(raw)); err == nil {
			t.Errorf("SplitBatch(%s) passed", raw)
		}
	}
}

func TestMessage_changesOnlyWhatItIsTold(t *testing.T) {
	m, err := gateway.ParseMessage([]byte(`{ "x":1, "params":{"n":1.0}, "jsonrpc":"2.0" , "id":1, "method":"m" }`), nil)
	if err != nil {
		t.Fatal(err)
	}
	changed := m.WithParams([]byte(`{"longer":true}`)).WithID([]byte(`"two"`)).WithParams([]byte(`{}`))
	if want := `{ "x":1, "params":{}, "jsonrpc":"2.0" , "id":"two", "method":"m" }`; string(changed.Raw) != want {
		t.Errorf("changed = %s\nwant      %s", changed.Raw, want)
	}
	if want := `{ "x":1, "params":{"n":1.0}, "jsonrpc":"2.0" , "id":1, "method":"m" }`; string(m.Raw) != want {
		t.Errorf("the original became %s", m.Raw)
	}
	for _, raw := range []string{`{"jsonrpc":"2.0","id":1,"method":"m"}`, `{"jsonrpc":"2.0","id":1,"method":"m","params":null}`} {
		m, err := gateway.ParseMessage([]byte(raw), nil)
		if err != nil {
			t.Fatal(err)
		}
		if want := `{"jsonrpc":"2.0","id":9,"method":"m","params":{"a":1}}`; string(m.WithParams([]byte(`{"a":1}`)).WithID([]byte(`9`)).Raw) != want {
			t.Errorf("params into %s = %s", raw, m.WithParams([]byte(`{"a":1}`)).Raw)
		}
	}
	built := gateway.NewRequest([]byte(`1`), "m", []byte(`{}`)).WithID([]byte(`22`)).WithParams([]byte(`{"b":2}`))
	if want := `{"jsonrpc":"2.0","id":22,"method":"m","params":{"b":2}}`; string(built.Raw) != want {
		t.Errorf("built = %s", built.Raw)
	}
}

func FuzzParseMessage(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[1,{"b":"\u00e9"}]}}`,
		`{"jsonrpc":"2.0","id":"x","result":{"content":[]}}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}`,
		`{"id":1,"id":2`, `[{}]`, `{"jsonrpc":"2.0","method":"\ud800"}`, "{\"\x00\":\"\\", `}{`, `{"a"::1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := gateway.ParseMessage(raw, nil)
		if err != nil {
			var refused *gateway.RefusedError
			if !errors.As(err, &refused) {
				t.Fatalf("error %v is no *RefusedError", err)
			}
			return
		}
		kinds := 0
		for _, is := range []bool{m.IsRequest(), m.IsNotification(), m.IsResponse()} {
			if is {
				kinds++
			}
		}
		if kinds != 1 {
			t.Fatalf("%s is of %d kinds", raw, kinds)
		}
		if m.IsRequest() {
			again, err := gateway.ParseMessage(m.WithParams([]byte(`{"k":1}`)).WithID([]byte(`"i"`)).Raw, nil)
			if err != nil {
				t.Fatalf("after a change: %v", err)
			}
			if again.Method != m.Method || string(again.ID) != `"i"` || string(again.Params) != `{"k":1}` {
				t.Fatalf("changed %s into %s", raw, again.Raw)
			}
		}
		batch, err := gateway.SplitBatch(raw)
		if err != nil || len(batch) != 1 {
			t.Fatalf("SplitBatch of a message = %s, %v", batch, err)
		}
	})
}

// A reader that folds case would take such a message for another one than the relay does.
func TestParseMessage_namesThatDifferInCase(t *testing.T) {
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call","params":{}}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","PARAMS":{"name":"charge"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","param\u017f":{"name":"charge"}}`,
		`{"jsonrpc":"2.0","id":1,"result":{},"Method":"tools/call"}`,
	} {
		var refused *gateway.RefusedError
		if m, err := gateway.ParseMessage([]byte(line), nil); !errors.As(err, &refused) || refused.Code != -32600 {
			t.Errorf("%s: parsed as %+v, %v", line, m, err)
		}
	}
}
