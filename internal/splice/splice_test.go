package splice_test

import (
	"strings"
	"testing"

	"github.com/undolog/undolog/internal/splice"
)

func TestSet(t *testing.T) {
	for _, tc := range []struct {
		name, obj, value, want string
		path                   []string
	}{
		{"an absent member goes last and the rest keeps its bytes", `{ "a" : 1.0e2 }`, `true`, `{ "a" : 1.0e2,"b":true}`, []string{"b"}},
		{"a member that is there keeps its place", `{"a":1, "b":2 ,"c":9007199254740993}`, `"x"`, `{"a":1, "b":"x" ,"c":9007199254740993}`, []string{"b"}},
		{"an empty object", ` {} `, `1`, ` {"a":1} `, []string{"a"}},
		{"objects on the way are made", `{"a":1}`, `1`, `{"a":1,"_meta":{"x/y":{"z":1}}}`, []string{"_meta", "x/y", "z"}},
		{"a nested member", `{"_meta":{"p":1.50},"a":0}`, `2`, `{"_meta":{"p":1.50,"q":2},"a":0}`, []string{"_meta", "q"}},
		{"an escaped name is the same name", `{"\u0061":1}`, `2`, `{"\u0061":2}`, []string{"a"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := tc.obj
			got, err := splice.Set([]byte(tc.obj), []byte(tc.value), tc.path...)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tc.want {
				t.Errorf("Set = %s, want %s", got, tc.want)
			}
			if tc.obj != before {
				t.Errorf("the input was changed")
			}
		})
	}
}

func TestSet_refusesWhatIsNotAnObject(t *testing.T) {
	for _, obj := range []string{``, `[]`, `null`, `{"a":1`, `{"_meta":3}`} {
		if got, err := splice.Set([]byte(obj), []byte(`1`), "_meta", "x"); err == nil {
			t.Errorf("Set(%s) = %s, want an error", obj, got)
		}
	}
}

func TestDelete(t *testing.T) {
	obj := `{"a":1, "dev.undolog/x":2,"b": 3.0, "dev.undolog/y":{}}`
	got, changed, err := splice.Delete([]byte(obj), func(n string) bool { return strings.HasPrefix(n, "dev.undolog/") })
	if err != nil || !changed {
		t.Fatalf("Delete: changed %v, err %v", changed, err)
	}
	if want := `{"a":1,"b": 3.0}`; string(got) != want {
		t.Errorf("Delete = %s, want %s", got, want)
	}
	same, changed, err := splice.Delete([]byte(obj), func(string) bool { return false })
	if err != nil || changed || string(same) != obj {
		t.Errorf("Delete of nothing = %s, %v, %v", same, changed, err)
	}
}

func TestAppend(t *testing.T) {
	for arr, want := range map[string]string{`[]`: `[1]`, `[ {"a":1.0} ] `: `[ {"a":1.0},1]`} {
		got, err := splice.Append([]byte(arr), []byte(`1`))
		if err != nil || string(got) != want {
			t.Errorf("Append(%s) = %s, %v, want %s", arr, got, err, want)
		}
	}
	if _, err := splice.Append([]byte(`{}`), []byte(`1`)); err == nil {
		t.Error("Append to an object succeeded")
	}
}

func TestGet(t *testing.T) {
	obj := []byte(`{"a":{"b":9007199254740993}}`)
	if got := splice.Get(obj, "a", "b"); string(got) != "9007199254740993" {
		t.Errorf("Get = %s", got)
	}
	if got := splice.Get(obj, "a", "c"); got != nil {
		t.Errorf("Get of nothing = %s", got)
	}
}

func TestScan(t *testing.T) {
	var got strings.Builder
	err := splice.Scan([]byte(`{ "a":1, "\u0062" : {"c": 2} }`), func(name, value []byte) {
		got.WriteString(string(name) + "=" + string(value) + ";")
	})
	if want := `a=1;b={"c": 2};`; err != nil || got.String() != want {
		t.Errorf("Scan = %s, %v, want %s", &got, err, want)
	}
	for _, obj := range []string{``, `[]`, `null`, `{"a":1`, `{"a":}`} {
		if err := splice.Scan([]byte(obj), func(_, _ []byte) {}); err == nil {
			t.Errorf("Scan(%s) succeeded", obj)
		}
	}
	obj := []byte(`{"a":1,"b":"x"}`)
	if n := testing.AllocsPerRun(100, func() { _ = splice.Scan(obj, func(_, _ []byte) {}) }); n >= 1 {
		t.Errorf("Scan allocates %v times", n)
	}
}

func TestMayHold(t *testing.T) {
	for text, want := range map[string]bool{
		``: false, `{}`: false, `"`: false, `{"a":"b"}`: false, `{"x":{"member":1}}`: true, `{"my member":1}`: false,
		`{"memb":1}`: false, `{"other":1}`: true, `{"a":"\\"}`: false, `{"a":"\n\t"}`: false, `{"\u006dember":1}`: true,
		`{"a":"\\\u00e9"}`: true, `\`: false,
	} {
		if got := splice.MayHold([]byte(text), "member", "other"); got != want {
			t.Errorf("MayHold(%s) = %v", text, got)
		}
	}
}
