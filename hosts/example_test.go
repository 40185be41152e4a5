package hosts_test

import (
	"log/slog"
	"net/http"
	"os"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/hosts"
	"github.com/undolog/undolog/interceptors"
)

// A chain with somebody else's host, whose mutator must be there.
func Example() {
	pii, err := hosts.URL("pii", "https://pii.example.com/mcp", &hosts.Options{
		Header: http.Header{"Authorization": {os.Getenv("PII_TOKEN")}},
		Logger: slog.Default(),
	})
	if err != nil {
		panic(err)
	}
	defer pii.Close()
	c, err := chain.New(nil)
	if err != nil {
		panic(err)
	}
	err = c.Use(pii, &chain.HostPolicy{
		Required: map[string]interceptors.Type{"redact": interceptors.TypeMutation},
	})
	if err != nil {
		panic(err)
	}
}
