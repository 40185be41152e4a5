package interceptors_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/undolog/undolog/interceptors"
)

// cached is what a list says of its keeping.
type cached struct {
	TTLMs      *int64
	CacheScope string
}

func readCached(t *testing.T, list []byte) (c cached) {
	t.Helper()
	if err := json.Unmarshal(list, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestServer_Install_SaysHowLongItsListMayBeKept(t *testing.T) {
	for ttl, want := range map[time.Duration]int64{0: 60_000, 90 * time.Second: 90_000, -1: 0} {
		for _, revision := range revisions {
			s := newServer(t, &interceptors.ServerOptions{ListTTL: ttl}, validator("v", requestOnly("*"), allow))
			list, err := rawCall(t.Context(), connect(t, s, revision), interceptors.MethodList, json.RawMessage(`{}`))
			if err != nil {
				t.Fatal(err)
			}
			wanted := cached{}
			if revision >= "2026-07-28" {
				wanted = cached{&want, "public"}
			}
			if diff := cmp.Diff(wanted, readCached(t, list)); diff != "" {
				t.Errorf("ListTTL %s, %s (-want +got)\n%s", ttl, revision, diff)
			}
		}
	}
}

func TestHandler_AListForATokenIsPrivate(t *testing.T) {
	verify := func(context.Context, string, *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: "alice", Expiration: time.Now().Add(time.Hour)}, nil
	}
	url, _ := serve(t, auth.RequireBearerToken(verify, nil))
	r := currentRequest(t, url, interceptors.MethodList, currentMeta)
	r.Header.Set("Authorization", "Bearer x")
	if got := readCached(t, send(t, r).Result); got.CacheScope != "private" {
		t.Errorf("cacheScope is %q", got.CacheScope)
	}
}
