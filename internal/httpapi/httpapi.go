// Package httpapi is what the HTTP handlers share: the paths of devices, the
// bearer token, and responses in JSON.
package httpapi

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// BodyTimeout is how long reading a request's body may take.
const BodyTimeout = 10 * time.Second

// LimitBody limits reading r's body to BodyTimeout from now. Every handler calls it first: the server
// waits for what the handler leaves unread before it sends the response. It replaces the server's
// ReadTimeout.
func LimitBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		// An error means that there is no connection, and so nothing to wait for.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(BodyTimeout))
	}
}

// Device parses the path of r, /devices/{id} or /devices/{id}/{action}. The
// id is one percent-encoded segment and may be any string but the empty one: a/b is encoded as a%2Fb,
// and ".." stays as it is. So handlers must not be behind an http.ServeMux, which
// cleans paths and would redirect from "..". Browsers do that too, also from "%2E%2E", so /devices?id=.. is the same as
// /devices/{id}.
func Device(r *http.Request) (id, action string, ok bool) {
	if id := r.URL.Query().Get("id"); r.URL.EscapedPath() == "/devices" && id != "" {
		return id, "", true
	}

	// EscapedPath alone suffices for URLs that conform to RFC 3986. Others it decodes
	// and encodes again, which makes the %2F of an id a slash.
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

// Authorized reports, in constant time, whether r has the bearer token. With an empty token
// no request is authorized.
func Authorized(r *http.Request, token string) bool {
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	a, b := sha256.Sum256([]byte(strings.TrimSpace(given))), sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && strings.EqualFold(scheme, "Bearer") && token != ""
}

// OwnHost reports whether host, the Host of a request, is one that no page of another site can have: an address,
// localhost, a name without a dot, that of a Kubernetes service, or one of own. A site whose name is made to resolve to
// this server's address (DNS rebinding) could otherwise have a visitor's browser read what only its network may.
// Names are compared without case, port and the dot at the end. HTTP/1.0 may have none.
func OwnHost(host string, own []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}

	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil || !strings.Contains(host, ".") {
		return true
	}

	for _, private := range []string{".localhost", ".svc", ".svc.cluster.local"} { // nobody can register these
		if strings.HasSuffix(host, private) {
			return true
		}
	}

	return slices.ContainsFunc(own, func(name string) bool {
		return strings.EqualFold(strings.TrimSuffix(name, "."), host)
	})
}

// A Problem is an error response as defined by RFC 9457.
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"` // for people: what is wrong and what to do about it
	Reason string `json:"reason,omitempty"` // for programs, where the status is not enough
}

// Fail responds with p, and sets its title from the status.
func Fail(w http.ResponseWriter, p Problem) {
	p.Title = http.StatusText(p.Status)
	write(w, p.Status, "application/problem+json", p)
}

// Unauthorized responds to a request that is not Authorized; variable names the setting with the token.
func Unauthorized(w http.ResponseWriter, variable string) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="alertworker"`)
	Fail(
		w,
		Problem{
			Status: http.StatusUnauthorized,
			Detail: "send the header \"Authorization: Bearer <token>\" with the value of " + variable,
		},
	)
}

// NotAllowed responds to a request whose method is not among allow.
func NotAllowed(w http.ResponseWriter, allow string) {
	w.Header().Set("Allow", allow)
	Fail(w, Problem{Status: http.StatusMethodNotAllowed, Detail: "method not allowed: use " + allow})
}

// Write responds with v as JSON.
func Write(w http.ResponseWriter, status int, v any) { write(w, status, "application/json", v) }

// Text responds with text.
func Text(w http.ResponseWriter, status int, text string) {
	respond(w, status, "text/plain; charset=utf-8", []byte(text))
}

func write(w http.ResponseWriter, status int, contentType string, v any) {
	body, err := json.Marshal(v)
	if err != nil { // cannot happen: ours consist of strings, numbers and times
		status, body = http.StatusInternalServerError, []byte("{}")
	}
	respond(w, status, contentType, append(body, '\n'))
}

func respond(w http.ResponseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // fails only if the caller has gone
}
