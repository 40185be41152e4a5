package interceptors_test

import (
	"strings"
	"testing"

	"github.com/undolog/undolog/interceptors"
)

func TestServer_MCPServer_RefusesWhatItDoesNotDeclare(t *testing.T) {
	params := map[string]string{
		"prompts/list": ``, "prompts/get": `"name":"x"`,
		"resources/list": ``, "resources/templates/list": ``, "resources/read": `"uri":"file:///x"`,
		"resources/subscribe": `"uri":"file:///x"`, "resources/unsubscribe": `"uri":"file:///x"`, "logging/setLevel": `"level":"info"`,
		"completion/complete": `"ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"a","value":"b"}`,
	}
	for _, revision := range revisions {
		t.Run(revision, func(t *testing.T) {
			server, err := newServer(t, nil, validator("v", requestOnly("*"), allow)).MCPServer(nil)
			if err != nil {
				t.Fatal(err)
			}
			peer := newRawPeer(t, server, nil)
			peer.greet(revision)
			for method, p := range params {
				if got := peer.ask(revision, method, p); !strings.Contains(got, `"error":{"code":-32601,`) {
					t.Errorf("%s is answered %s", method, got)
				}
			}
			if got := peer.ask(revision, "tools/list", ``); !strings.Contains(got, `"tools":[]`) {
				t.Errorf("tools/list is answered %s", got)
			}
			if got := peer.ask(revision, interceptors.MethodList, ``); !strings.Contains(got, `"interceptors":[{"name":"v"`) {
				t.Errorf("its own list is answered %s", got)
			}
		})
	}
}

func TestHandler_RefusesWhatItDoesNotDeclare(t *testing.T) {
	url, _ := serve(t, nil)
	for _, method := range []string{"prompts/list", "resources/list", "resources/templates/list"} {
		checkReply(t, send(t, currentRequest(t, url, method, currentMeta)), 404, -32601)
	}
}
