package cosmoslease_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/lease/cosmoslease"
)

// retention is not the default of LEASE_RETENTION.
const retention = 40 * 24 * time.Hour

// A fake is an account in memory that answers as the documentation of the real
// one says, for what the stand-in cannot do: throttle, fail, lose answers, lag
// behind, delete by time to live, tell another time, have several write regions,
// refuse what an identity may not do. It is a http.RoundTripper and needs no
// network, so that its tests run in bubbles of synctest.
type fake struct {
	mux *http.ServeMux

	mu         sync.Mutex
	account    string        // the answer to GET /
	ahead      time.Duration // of the service's clock before this machine's
	noDate     bool
	body       []byte // if not nil, of every item that is read
	readOnly   bool   // databases and containers cannot be created
	databases  map[string]bool
	containers map[string]json.RawMessage  // by "database/container"
	items      map[string][]map[string]any // by id: all versions, the newest last; nil: deleted
	etags      int
	created    string // the container that the store was told of
	faults     []fault
	calls      []string // of items, by method
	others     int      // other calls
	auth       []string // Authorization headers
}

// A fault befalls the next request for an item with the method, or one that
// comes later if another fault was there first.
type fault struct {
	method   string // QUERY for a page of a list
	executed bool   // the request does its work all the same
	stale    bool   // a read is answered by a replica that has not heard of the last write; it refuses one with the session of that
	hang     bool   // no answer until the request's context ends
	status   int    // of the answer; 0: the connection is reset
	header   http.Header
}

const (
	fakeEndpoint = "https://fake.documents.azure.com:443/"
	fakeKey      = "dGhpcyBpcyBhIHNlY3JldCwgZG8gbm90IHRlbGw="
	fakeAccount  = "AccountEndpoint=" + fakeEndpoint + ";AccountKey=" + fakeKey + ";"

	singleWriter = `{"writableLocations":[{"name":"West Europe","databaseAccountEndpoint":"https://fake-westeurope.documents.azure.com:443/"}],
		"readableLocations":[{"name":"West Europe","databaseAccountEndpoint":"https://fake-westeurope.documents.azure.com:443/"},
		{"name":"North Europe","databaseAccountEndpoint":"https://fake-northeurope.documents.azure.com:443/"}],"enableMultipleWriteLocations":false}`
	severalWriters = `{"writableLocations":[{"name":"West Europe","databaseAccountEndpoint":"https://fake-westeurope.documents.azure.com:443/"},
		{"name":"North Europe","databaseAccountEndpoint":"https://fake-northeurope.documents.azure.com:443/"}],"enableMultipleWriteLocations":true}`
)

func newFake() *fake {
	f := &fake{
		mux:        http.NewServeMux(),
		account:    singleWriter,
		databases:  map[string]bool{},
		containers: map[string]json.RawMessage{},
		items:      map[string][]map[string]any{},
	}
	f.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, f.account) })
	f.mux.HandleFunc("POST /dbs", f.createDatabase)
	f.mux.HandleFunc("POST /dbs/{db}/colls", f.createContainer)
	f.mux.HandleFunc("GET /dbs/{db}/colls/{coll}", f.readContainer)
	f.mux.HandleFunc("POST /dbs/{db}/colls/{coll}/docs", f.createItem)
	f.mux.HandleFunc("GET /dbs/{db}/colls/{coll}/docs/{id}", f.readItem)
	f.mux.HandleFunc("PUT /dbs/{db}/colls/{coll}/docs/{id}", f.replaceItem)
	return f
}

// open opens a store on the fake.
func (f *fake) open(t testing.TB) lease.Store {
	t.Helper()
	s, err := f.tryOpen(t)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (f *fake) tryOpen(t testing.TB) (lease.Store, error) {
	t.Helper()
	account, err := cosmoslease.WithKey(fakeAccount)
	if err != nil {
		t.Fatal(err)
	}
	return cosmoslease.Open(t.Context(), cosmoslease.Config{Account: account, Database: "alertworker", Container: "leases", Retention: retention, Client: &http.Client{Transport: f},
		Created: func(container string) { f.created = container }})
}

// will adds faults, and forgets the calls so far.
func (f *fake) will(faults ...fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = faults
	f.calls = nil
}

// left returns the calls for items since will, and how many faults did not befall any.
func (f *fake) left() (calls []string, faults int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls), len(f.faults)
}

// newest returns the item that is called id, nil if there is none.
func (f *fake) newest(id string) map[string]any {
	versions := f.items[id]
	if len(versions) == 0 {
		return nil
	}
	item := versions[len(versions)-1]
	if ttl, ok := item["ttl"].(float64); ok && !f.now().Before(time.Unix(item["_ts"].(int64)+int64(ttl), 0)) {
		return nil
	}
	return item
}

func (f *fake) now() time.Time { return time.Now().Add(f.ahead).Truncate(time.Second) }

func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	method, item := r.Method, r.URL.Path != "/dbs" && r.Header.Get("X-Ms-Documentdb-Partitionkey") != ""
	if isQuery(r) {
		method, item = "QUERY", true
	}
	hit := fault{status: -1}
	f.mu.Lock()
	f.auth = append(f.auth, r.Header.Get("Authorization"))
	if item {
		f.calls = append(f.calls, method)
		if i := slices.IndexFunc(f.faults, func(x fault) bool { return x.method == method }); i >= 0 {
			hit = f.faults[i]
			f.faults = slices.Delete(f.faults, i, i+1)
		}
	} else {
		f.others++
	}
	answer := httptest.NewRecorder()
	if !f.noDate {
		answer.Header().Set("Date", f.now().UTC().Format(http.TimeFormat))
	}
	if hit.status < 0 || hit.executed || hit.stale {
		var removed []map[string]any
		id := path.Base(r.URL.Path)
		if versions := f.items[id]; hit.stale && len(versions) > 0 {
			removed = versions[len(versions)-1:]
			f.items[id] = versions[:len(versions)-1]
		}
		if r.Method == http.MethodPut {
			answer.Header().Set("X-Ms-Session-Token", f.session())
		}
		if hit.stale && r.Header.Get("X-Ms-Session-Token") == f.session() {
			fail(answer, http.StatusNotFound, "1002")
		} else {
			f.mux.ServeHTTP(answer, r)
		}
		if removed != nil {
			f.items[id] = append(f.items[id], removed...)
		}
	}
	f.mu.Unlock()
	if r.Body != nil {
		_ = r.Body.Close()
	}
	switch {
	case hit.hang:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case hit.status == 0 && !hit.stale:
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	case hit.status > 0:
		date := answer.Header().Get("Date")
		answer = httptest.NewRecorder()
		for name, values := range hit.header {
			answer.Header()[name] = values
		}
		answer.Header().Set("Date", date)
		answer.WriteHeader(hit.status)
		// As the real one does for 401: with what was signed.
		_, _ = io.WriteString(answer, `{"message":"`+r.Header.Get("Authorization")+`"}`)
	}
	resp := answer.Result()
	resp.Request = r
	return resp, nil
}

func fail(w http.ResponseWriter, status int, sub string) {
	if sub != "" {
		w.Header().Set("X-Ms-Substatus", sub)
	}
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"code":%q,"message":"…"}`, http.StatusText(status))
}

func (f *fake) createDatabase(w http.ResponseWriter, r *http.Request) {
	var body struct{ ID string }
	_ = json.NewDecoder(r.Body).Decode(&body)
	switch {
	case f.readOnly:
		fail(w, http.StatusForbidden, "5300")
	case f.databases[body.ID]:
		fail(w, http.StatusConflict, "")
	default:
		f.databases[body.ID] = true
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"id":%q}`, body.ID)
	}
}

func (f *fake) createContainer(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	var body struct{ ID string }
	_ = json.Unmarshal(raw, &body)
	name := r.PathValue("db") + "/" + body.ID
	switch {
	case f.readOnly:
		fail(w, http.StatusForbidden, "5300")
	case !f.databases[r.PathValue("db")]:
		fail(w, http.StatusNotFound, "1003")
	case f.containers[name] != nil:
		fail(w, http.StatusConflict, "")
	default:
		f.containers[name] = raw
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(raw)
	}
}

func (f *fake) container(r *http.Request) json.RawMessage {
	return f.containers[r.PathValue("db")+"/"+r.PathValue("coll")]
}

func (f *fake) readContainer(w http.ResponseWriter, r *http.Request) {
	if c := f.container(r); c != nil {
		_, _ = w.Write(c)
		return
	}
	fail(w, http.StatusNotFound, "1003")
}

func isQuery(r *http.Request) bool { return r.Header.Get("Content-Type") == "application/query+json" }

// query answers the one query that a store makes, in pages of what the request asks for, with an
// empty one in between: a gateway does that.
func (f *fake) query(w http.ResponseWriter, r *http.Request) {
	var body struct{ Query string }
	_ = json.NewDecoder(r.Body).Decode(&body)
	switch {
	case f.container(r) == nil:
		fail(w, http.StatusNotFound, "1003")
		return
	case body.Query != "SELECT * FROM c" || !strings.EqualFold(r.Header.Get("X-Ms-Documentdb-Query-Enablecrosspartition"), "true"):
		fail(w, http.StatusBadRequest, "")
		return
	}
	from := r.Header.Get("X-Ms-Continuation")
	size, _ := strconv.Atoi(r.Header.Get("X-Ms-Max-Item-Count"))
	page, next := []any{}, ""
	if empty, ok := strings.CutPrefix(from, "empty "); ok {
		next = empty
	} else {
		for _, id := range slices.Sorted(maps.Keys(f.items)) {
			if item := f.newest(id); item == nil || id < from {
				continue
			} else if len(page) == size {
				next = "empty " + id
				break
			} else {
				page = append(page, item)
			}
		}
	}
	if next != "" {
		w.Header().Set("X-Ms-Continuation", next)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"Documents": page, "_count": len(page)})
}

func (f *fake) createItem(w http.ResponseWriter, r *http.Request) {
	if isQuery(r) {
		f.query(w, r)
		return
	}
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	id, _ := body["id"].(string)
	switch {
	case f.container(r) == nil:
		fail(w, http.StatusNotFound, "1003")
	case r.Header.Get("X-Ms-Documentdb-Partitionkey") != `["`+id+`"]`:
		fail(w, http.StatusBadRequest, "1001")
	case f.newest(id) != nil:
		fail(w, http.StatusConflict, "")
	default:
		f.put(w, r, id, body, http.StatusCreated)
	}
}

func (f *fake) replaceItem(w http.ResponseWriter, r *http.Request) {
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	id := r.PathValue("id")
	switch {
	case f.container(r) == nil:
		fail(w, http.StatusNotFound, "1003")
	case r.Header.Get("X-Ms-Documentdb-Partitionkey") != `["`+id+`"]` || body["id"] != id:
		fail(w, http.StatusBadRequest, "1001")
	case f.newest(id) == nil:
		fail(w, http.StatusNotFound, "")
	case r.Header.Get("If-Match") != f.newest(id)["_etag"]:
		fail(w, http.StatusPreconditionFailed, "")
	default:
		f.put(w, r, id, body, http.StatusOK)
	}
}

// session is the token of answers to writes that fail.
func (f *fake) session() string { return fmt.Sprint("0:-1#", f.etags) }

func (f *fake) put(w http.ResponseWriter, r *http.Request, id string, body map[string]any, status int) {
	f.etags++
	etag := strconv.Quote(fmt.Sprintf("0000%d", f.etags))
	body["_etag"], body["_ts"] = etag, f.now().Unix()
	f.items[id] = append(f.items[id], body)
	w.Header().Set("Etag", etag)
	w.WriteHeader(status)
	if r.Header.Get("Prefer") != "return=minimal" {
		_ = json.NewEncoder(w).Encode(body)
	}
}

func (f *fake) readItem(w http.ResponseWriter, r *http.Request) {
	item := f.newest(r.PathValue("id"))
	switch {
	case f.container(r) == nil:
		fail(w, http.StatusNotFound, "1003")
	case item == nil:
		fail(w, http.StatusNotFound, "0")
	default:
		w.Header().Set("Etag", item["_etag"].(string))
		if f.body != nil {
			_, _ = w.Write(f.body)
		} else {
			_ = json.NewEncoder(w).Encode(item)
		}
	}
}

func with(note string) func(lease.Record) (string, error) {
	return func(lease.Record) (string, error) { return note, nil }
}
