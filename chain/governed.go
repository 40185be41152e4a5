package chain

import "strings"

// ungoverned are the requests that no interceptor sees: the protocol's own upkeep, and the interceptors'
// methods, which would call themselves.
var ungoverned = map[string]bool{
	"":                     true,
	"initialize":           true,
	"ping":                 true,
	"server/discover":      true,
	"subscriptions/listen": true,
	"interceptors/list":    true,
	"interceptor/invoke":   true,
	"interceptors/invoke":  true,
}

// Governed reports whether interceptors run on a request of this method. Notifications, the handshake,
// liveness checks, task polling and the interceptors' own methods are never governed, whatever a hook
// says; every other request is, custom ones included.
func Governed(method string) bool {
	return !ungoverned[method] &&
		!strings.HasPrefix(method, "notifications/") &&
		!strings.HasPrefix(method, "tasks/")
}
