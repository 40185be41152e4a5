package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// writeTimeout bounds the writing of an answer, or of one event of a stream.
const writeTimeout = 60 * time.Second

// contentPolicy lets a page load what we serve ourselves, and nothing else; nobody may frame it.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// guard keeps away what no honest client sends: requests under a host name that is not ours (a page that has
// rebound its own name to us), changes that a page of others makes, bodies that never end.
func (h *Handler) guard(next http.Handler) http.Handler {
	foreign := http.NewCrossOriginProtection()
	foreign.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.fail(w, r, &problem{Status: http.StatusForbidden, Outcome: "forbidden", Message: "a page of another origin cannot do this"})
	}))
	if h.opts.URL != nil { // behind a proxy the Host header can be another than the browser's
		_ = foreign.AddTrustedOrigin(h.opts.URL.Scheme + "://" + h.opts.URL.Host) // one that is none is trusted nowhere
	}
	guarded := foreign.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header())
		if !h.isOurs(r.Host) {
			h.fail(w, r, &problem{
				Status: http.StatusForbidden, Outcome: "forbidden",
				Message: "this host name is not known here: start the program with its URL, or ask by address",
			})
			return
		}
		control := http.NewResponseController(w) // a server that has no deadlines keeps its own
		if r.Body != http.NoBody {
			_ = control.SetReadDeadline(time.Now().Add(h.opts.ReadTimeout)) // passed, it would end a request that is answered slowly
		}
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
		guarded.ServeHTTP(w, r)
	})
}

func secure(header http.Header) {
	header.Set("Content-Security-Policy", contentPolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
}

// isOurs reports whether a Host header can be meant for us: an address, which nobody can rebind, this machine,
// or the name of Options.URL.
func (h *Handler) isOurs(hostport string) bool {
	if h.opts.URL != nil && strings.EqualFold(hostport, h.opts.URL.Host) {
		return true
	}
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	_, err = netip.ParseAddr(host)
	return err == nil
}
