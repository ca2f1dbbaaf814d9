// Package web is what the HTTP handlers share: the devices' addresses, the
// bearer token, and answers in JSON.
package httpapi

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// BodyTimeout is how long a request's body may take.
const BodyTimeout = 10 * time.Second

// LimitBody gives r's body BodyTimeout from now. Every handler calls it first: what
// one leaves unread, the server waits for before it sends the answer. It replaces a
// ReadTimeout of the server.
func LimitBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		// It fails where there is no connection, and so nothing to wait for.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(BodyTimeout))
	}
}

// Device takes apart the path of r, /devices/{id} or /devices/{id}/{action}. The
// id is one segment, percent-encoded, and may be any string but the empty one: a/b is a%2Fb
// on the way, and ".." is itself. So handlers must be asked directly: http.ServeMux
// cleans paths, and would redirect from "..".
func Device(r *http.Request) (id, action string, ok bool) {
	// EscapedPath alone would do for URLs as RFC 3986 has them. In others it decodes
	// and encodes anew, and takes an id's %2F for a slash.
	rest, ok := strings.CutPrefix(cmp.Or(r.URL.RawPath, r.URL.EscapedPath()), "/devices/")
	if !ok {
		return "", "", false
	}
	segment, action, more := strings.Cut(rest, "/")
	id, err := url.PathUnescape(segment)
	if err != nil || id == "" || more && action == "" || strings.Contains(action, "/") {
		return "", "", false
	}
	return id, action, true
}

// Authorized says whether r has the bearer token, in a time that tells nothing
// about it. An empty token is nobody's.
func Authorized(r *http.Request, token string) bool {
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	a, b := sha256.Sum256([]byte(strings.TrimSpace(given))), sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && strings.EqualFold(scheme, "Bearer") && token != ""
}

// A Problem is an error as RFC 9457 writes it.
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"` // for people: what is wrong and what to do
	Reason string `json:"reason,omitempty"` // for programs, where the status does not say it all
}

// Fail answers with p, whose title is that of its status.
func Fail(w http.ResponseWriter, p Problem) {
	p.Title = http.StatusText(p.Status)
	write(w, p.Status, "application/problem+json", p)
}

// Unauthorized answers a request that is not Authorized; variable holds the token.
func Unauthorized(w http.ResponseWriter, variable string) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="alertworker"`)
	Fail(w, Problem{Status: http.StatusUnauthorized, Detail: "send Authorization: Bearer and the value of " + variable})
}

// NotAllowed answers a method that is not among allow.
func NotAllowed(w http.ResponseWriter, allow string) {
	w.Header().Set("Allow", allow)
	Fail(w, Problem{Status: http.StatusMethodNotAllowed, Detail: "only " + allow + " here"})
}

// Write answers with v in JSON.
func Write(w http.ResponseWriter, status int, v any) { write(w, status, "application/json", v) }

func write(w http.ResponseWriter, status int, contentType string, v any) {
	body, err := json.Marshal(v)
	if err != nil { // ours are of strings, numbers and times
		status, body = http.StatusInternalServerError, []byte("{}")
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a caller that has gone away does not listen
}
