// Package httpapi lets people see and decide, over HTTP, what waits for them in the effect log: a JSON API
// under /v1, described by /openapi.json, a stream of what changes, and a plain page.
//
//	h, err := httpapi.New(log, &httpapi.Options{Approvers: approvers})
//	http.ListenAndServe("127.0.0.1:8480", h)
//
// Who asks shows a bearer token, or the cookie of a session that was begun with one. The token's holder is who
// decides: no name in a request counts. How calls are made, and how an agent is answered, it does not know: it
// reads and writes the log, and any number of gateways on the same log act on what is decided.
package httpapi
