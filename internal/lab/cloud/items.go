package cloud

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Items is a Cosmos DB account with one write region. Use NewItems. It is safe for concurrent use.
type Items struct {
	Clock Clock

	mux        *http.ServeMux
	mu         sync.Mutex
	now        time.Time // of the answer that is being made
	databases  map[string]bool
	containers map[string]*itemContainer // by "database/container"
	etags      int64
}

type itemContainer struct {
	properties json.RawMessage
	items      map[string]*item // by id, which is the partition key too
}

type item struct {
	body    map[string]any // with _etag and _ts
	etag    string
	expires time.Time // zero: never
}

// NewItems returns an empty account. endpoint is its address, which it tells its clients.
func NewItems(endpoint string) *Items {
	s := &Items{
		mux:        http.NewServeMux(),
		databases:  map[string]bool{},
		containers: map[string]*itemContainer{},
	}

	region := fmt.Sprintf(`[{"name":"West Europe","databaseAccountEndpoint":%q}]`, endpoint)
	account := fmt.Sprintf(`{"writableLocations":%s,"readableLocations":%s}`, region, region)
	s.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, account) })
	s.mux.HandleFunc("POST /dbs", s.createDatabase)
	s.mux.HandleFunc("POST /dbs/{db}/colls", s.createContainer)
	s.mux.HandleFunc("GET /dbs/{db}/colls/{coll}", s.in(s.readContainer))
	s.mux.HandleFunc("POST /dbs/{db}/colls/{coll}/docs", s.in(s.createItem))
	s.mux.HandleFunc("GET /dbs/{db}/colls/{coll}/docs/{id}", s.in(s.readItem))
	s.mux.HandleFunc("PUT /dbs/{db}/colls/{coll}/docs/{id}", s.in(s.replaceItem))

	return s
}

// ServeHTTP does what a request asks, one at a time.
func (s *Items) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.now = s.Clock.next()
	date(w, s.now)
	w.Header().Set("X-Ms-Session-Token", fmt.Sprint("0:-1#", s.etags))
	s.mux.ServeHTTP(w, r)
}

// itemError answers with an error. sub is its sub-status, empty if it has none.
func itemError(w http.ResponseWriter, status int, sub string) {
	if sub != "" {
		w.Header().Set("X-Ms-Substatus", sub)
	}

	w.WriteHeader(status)
	fmt.Fprintf(w, `{"code":%q,"message":"…"}`, http.StatusText(status))
}

const noContainer = "1003" // a sub-status

// createDatabase makes an empty database, unless it is there.
func (s *Items) createDatabase(w http.ResponseWriter, r *http.Request) {
	var body struct{ ID string }
	_ = json.NewDecoder(r.Body).Decode(&body)

	if s.databases[body.ID] {
		itemError(w, http.StatusConflict, "")
		return
	}

	s.databases[body.ID] = true
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"id":%q}`, body.ID)
}

// createContainer makes an empty container in a database, unless it is there.
func (s *Items) createContainer(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	var body struct{ ID string }
	_ = json.Unmarshal(raw, &body)

	name := r.PathValue("db") + "/" + body.ID
	switch {
	case !s.databases[r.PathValue("db")]:
		itemError(w, http.StatusNotFound, noContainer)

	case s.containers[name] != nil:
		itemError(w, http.StatusConflict, "")

	default:
		s.containers[name] = &itemContainer{raw, map[string]*item{}}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(raw)
	}
}

// in does something in the container that a request names, or answers that there is none.
func (s *Items) in(do func(http.ResponseWriter, *http.Request, *itemContainer)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := s.containers[r.PathValue("db")+"/"+r.PathValue("coll")]
		if c == nil {
			itemError(w, http.StatusNotFound, noContainer)
			return
		}

		do(w, r, c)
	}
}

// readContainer answers with the properties of a container, as it was made with.
func (s *Items) readContainer(w http.ResponseWriter, _ *http.Request, c *itemContainer) {
	_, _ = w.Write(c.properties)
}

// item returns the one that is called id, nil if there is none, or if it is past its time to live.
func (s *Items) item(c *itemContainer, id string) *item {
	i := c.items[id]
	if i == nil || i.expires.IsZero() {
		return i
	}

	if s.now.Before(i.expires) {
		return i
	}

	delete(c.items, id)

	return nil
}

// Delete removes an item behind everybody's back.
func (s *Items) Delete(database, container, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.containers[database+"/"+container]; c != nil {
		delete(c.items, id)
	}
}

// inPartition answers with an error unless r is for the partition of the item id.
func inPartition(w http.ResponseWriter, r *http.Request, id string) bool {
	if r.Header.Get("X-Ms-Documentdb-Partitionkey") == `["`+id+`"]` {
		return true
	}

	itemError(w, http.StatusBadRequest, "1001")

	return false
}

// createItem adds an item, unless it is there.
func (s *Items) createItem(w http.ResponseWriter, r *http.Request, c *itemContainer) {
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)

	id, _ := body["id"].(string)
	switch {
	case !inPartition(w, r, id):
	case s.item(c, id) != nil:
		itemError(w, http.StatusConflict, "")
	default:
		s.put(w, c, id, body)
		answerItem(w, r, c.items[id], http.StatusCreated)
	}
}

// replaceItem puts an item in the place of one that is there, and that still has the ETag which the request names.
func (s *Items) replaceItem(w http.ResponseWriter, r *http.Request, c *itemContainer) {
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	id := r.PathValue("id")
	if !inPartition(w, r, id) {
		return
	}

	was := s.item(c, id)
	switch match := r.Header.Get("If-Match"); {
	case was == nil:
		itemError(w, http.StatusNotFound, "")
	case match != "" && match != was.etag:
		itemError(w, http.StatusPreconditionFailed, "")
	default:
		s.put(w, c, id, body)
		answerItem(w, r, c.items[id], http.StatusOK)
	}
}

// put stores an item, with a new ETag and for as long as it is to live.
func (s *Items) put(w http.ResponseWriter, c *itemContainer, id string, body map[string]any) {
	s.etags++
	i := &item{body: body, etag: strconv.Quote(fmt.Sprintf("%08x", s.etags))}
	body["_etag"] = i.etag
	body["_ts"] = s.now.Unix()

	ttl, _ := body["ttl"].(float64)
	if ttl > 0 {
		i.expires = s.now.Add(time.Duration(ttl) * time.Second)
	}

	c.items[id] = i
	w.Header().Set("Etag", i.etag)
}

// answerItem answers a write that has been made.
func answerItem(w http.ResponseWriter, r *http.Request, i *item, status int) {
	w.WriteHeader(status)
	if r.Header.Get("Prefer") != "return=minimal" {
		_ = json.NewEncoder(w).Encode(i.body)
	}
}

// readItem answers with an item.
func (s *Items) readItem(w http.ResponseWriter, r *http.Request, c *itemContainer) {
	i := s.item(c, r.PathValue("id"))
	if i == nil {
		itemError(w, http.StatusNotFound, "0")
		return
	}

	w.Header().Set("Etag", i.etag)
	_ = json.NewEncoder(w).Encode(i.body)
}
