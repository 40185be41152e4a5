package httpapi

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A session is its cookie: who, until when, and a MAC under a key that only who knows the approver's token, or
// its hash, can have. So it outlives the program, holds for every replica with the same tokens, and ends with
// its token.

// handle names the approver in cookies, and tells nothing of the token.
func (a *Approver) handle() string {
	sum := sha256.Sum256(append([]byte("undolog approver "), a.Key[:]...))
	return hex.EncodeToString(sum[:8])
}

// seal is the MAC of a session's claims.
func (a *Approver) seal(claims string) string {
	mac := hmac.New(sha256.New, a.Key[:])
	fmt.Fprintf(mac, "undolog session %s %s %s", a.Name, a.Tenant, claims)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// newSession is the value of a cookie by which the approver is known until a time.
func (a *Approver) newSession(until time.Time) string {
	claims := a.handle() + "." + strconv.FormatInt(until.Unix(), 10)
	return claims + "." + a.seal(claims)
}

// visitor is who the request's cookie names; nil when it names nobody, or nobody any more.
func (h *Handler) visitor(r *http.Request) *Approver {
	cookie, err := r.Cookie(cookieName(r))
	if err != nil {
		return nil
	}
	parts := strings.Split(cookie.Value, ".")
	if len(parts) != 3 {
		return nil
	}
	a := h.sessions[parts[0]]
	until, err := strconv.ParseInt(parts[1], 10, 64)
	if a == nil || err != nil || time.Now().Unix() >= until {
		return nil
	}
	if !hmac.Equal([]byte(parts[2]), []byte(a.seal(parts[0]+"."+parts[1]))) {
		return nil
	}
	return a
}

// cookieName keeps programs at several ports of one machine apart: browsers do not.
func cookieName(r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		return "undolog_session"
	}
	return "undolog_session_" + port
}

func (h *Handler) cookie(r *http.Request, value string, maxAge int) *http.Cookie {
	secure := r.TLS != nil || h.opts.URL != nil && h.opts.URL.Scheme == "https"
	return &http.Cookie{
		Name: cookieName(r), Value: value, Path: "/", MaxAge: maxAge,
		HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode,
	}
}

type enterBody struct {
	Token string `json:"token"` // an approver's bearer token, or the code of an invitation
}

type sessionJSON struct {
	User   string `json:"user"`
	Tenant string `json:"tenant"`
}

// enter begins a session for who shows a token, or a code that was not used yet.
func (h *Handler) enter(w http.ResponseWriter, r *http.Request) {
	var body enterBody
	if err := h.readBody(w, r, &body); err != nil {
		h.fail(w, r, err)
		return
	}
	token := strings.TrimSpace(body.Token)
	a := h.approvers[sha256.Sum256([]byte(token))]
	invited := false
	if a == nil {
		a = h.codes.use(token)
		invited = a != nil
	}
	if a == nil {
		h.fail(w, r, &problem{Status: http.StatusUnauthorized, Outcome: "unauthorized", Message: "that is no approver's token, and no login code that can still be used"})
		return
	}
	http.SetCookie(w, h.cookie(r, a.newSession(time.Now().Add(h.opts.SessionFor)), int(h.opts.SessionFor/time.Second)))
	if invited {
		h.opts.Invited(a.Name)
	}
	writeJSON(w, http.StatusOK, sessionJSON{User: a.Name, Tenant: a.Tenant})
}

func (h *Handler) whoAmI(w http.ResponseWriter, _ *http.Request, who *caller) error {
	writeJSON(w, http.StatusOK, sessionJSON{User: who.name, Tenant: who.tenant})
	return nil
}

// leave takes the cookie from the browser. A copy of it made elsewhere holds until its time is over.
func (h *Handler) leave(w http.ResponseWriter, r *http.Request, who *caller) error {
	http.SetCookie(w, h.cookie(r, "", -1))
	writeJSON(w, http.StatusOK, sessionJSON{User: who.name, Tenant: who.tenant})
	return nil
}

// codes are invitations that were not used yet.
type codes struct {
	mu     sync.Mutex
	unused map[[32]byte]*Approver
}

// Invite returns a code with which one browser can log in once as an approver. It is forgotten when the
// program ends. It panics when there is no such approver.
func (h *Handler) Invite(name string) string {
	for _, a := range h.approvers {
		if a.Name == name {
			return h.codes.add(a)
		}
	}
	panic("httpapi: invite " + name + ": no such approver")
}

func (c *codes) add(a *Approver) string {
	code := rand.Text()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unused == nil {
		c.unused = map[[32]byte]*Approver{}
	}
	c.unused[sha256.Sum256([]byte(code))] = a
	return code
}

func (c *codes) use(code string) *Approver {
	key := sha256.Sum256([]byte(code))
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.unused[key]
	delete(c.unused, key)
	return a
}
