package cloud

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	metaPrefix = "X-Ms-Meta-"
	maxBlob    = 4 << 20 // bytes of a request's body
	maxPage    = 5000
)

// Blobs is a blob service with one account. The zero value is empty. It is safe for concurrent use.
//
// Its URLs are those of an emulator: /ACCOUNT/CONTAINER/BLOB.
type Blobs struct {
	Clock Clock

	mu         sync.Mutex
	containers map[string]map[string]*blob
	etags      int64
}

// A blob is one of a container.
type blob struct {
	content  []byte
	kind     string // its media type
	metadata map[string]string
	etag     string // in quotes
	written  time.Time
	lease    nativeLease
}

// A nativeLease is the lock that the service keeps of a blob.
type nativeLease struct {
	id    string // empty: it was never taken, or given back
	until time.Time
	lasts time.Duration // negative: for ever
}

func (l nativeLease) held(now time.Time) bool {
	return l.id != "" && (l.lasts < 0 || now.Before(l.until))
}

func (l nativeLease) state(now time.Time) (state, status string) {
	switch {
	case l.held(now):
		return "leased", "locked"
	case l.id != "":
		return "expired", "unlocked"
	}
	return "available", "unlocked"
}

// An answer is a status with a code of the service, if it is an error.
type answer struct {
	status int
	code   string
}

func (s *Blobs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBlob))
	if err != nil {
		return // the request broke off: there is nobody to answer
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	now := s.Clock.next()
	date(w, now)
	_, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	container, name, _ := strings.Cut(path, "/")
	a := answer{http.StatusBadRequest, "UnsupportedHttpVerb"}
	switch {
	case container == "":
	case name == "" && r.Method == http.MethodPut:
		a = s.createContainer(container)
	case s.containers[container] == nil:
		a = answer{http.StatusNotFound, "ContainerNotFound"}
	case name == "" && r.URL.Query().Get("comp") == "list":
		s.list(w, r, container, now)
		return
	case name == "":
	default:
		a = s.onBlob(w, r, s.containers[container], name, body, now)
	}

	if a.code != "" {
		w.Header().Set("X-Ms-Error-Code", a.code)
		w.Header().Set("Content-Type", "application/xml")
	}

	if a.status != 0 {
		w.WriteHeader(a.status)
	}

	if a.code != "" && r.Method != http.MethodHead {
		fmt.Fprintf(w, "%s<Error><Code>%s</Code><Message>%s</Message></Error>", xml.Header, a.code, a.code)
	}
}

func (s *Blobs) createContainer(name string) answer {
	if s.containers[name] != nil {
		return answer{http.StatusConflict, "ContainerAlreadyExists"}
	}

	if s.containers == nil {
		s.containers = map[string]map[string]*blob{}
	}

	s.containers[name] = map[string]*blob{}

	return answer{status: http.StatusCreated}
}

// DeleteContainer removes a container with all that is in it, as an operator might.
func (s *Blobs) DeleteContainer(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.containers, name)
}

// Delete removes a blob behind everybody's back, whatever locks it.
func (s *Blobs) Delete(container, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.containers[container], name)
}

// Names returns the names of a container's blobs, in their order.
func (s *Blobs) Names(container string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.containers[container]))
}

// Content returns what is in a blob, nil if there is none.
func (s *Blobs) Content(container, name string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()

	if b := s.containers[container][name]; b != nil {
		return bytes.Clone(b.content)
	}

	return nil
}

// Metadata returns that of a blob, nil if there is none. Names are as they are in headers.
func (s *Blobs) Metadata(container, name string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()

	if b := s.containers[container][name]; b != nil {
		return maps.Clone(b.metadata)
	}

	return nil
}

// onBlob does what r asks of a blob, and writes the headers and the body of the answer. A status of 0 is a success
// that has been written.
func (s *Blobs) onBlob(
	w http.ResponseWriter, r *http.Request, blobs map[string]*blob, name string, body []byte, now time.Time,
) answer {
	b := blobs[name]
	comp := r.URL.Query().Get("comp")
	if a := admit(r, b, comp, now); a.code != "" {
		return a
	}

	switch {
	case r.Method == http.MethodGet, r.Method == http.MethodHead:
		b.write(w, r.Method == http.MethodGet, now)
		return answer{}

	case r.Method == http.MethodDelete:
		delete(blobs, name)
		return answer{status: http.StatusAccepted}

	case r.Method == http.MethodPut && comp == "lease":
		return b.changeLease(w, r, now)

	case r.Method == http.MethodPut && comp == "metadata":
		b.metadata = metadataOf(r.Header)
		s.stamp(w, b, now)
		return answer{status: http.StatusOK}

	case r.Method == http.MethodPut && comp == "":
		lease := nativeLease{}
		if b != nil {
			lease = b.lease
		}

		kind := cmp.Or(r.Header.Get("X-Ms-Blob-Content-Type"), "application/octet-stream")
		b = &blob{content: body, kind: kind, metadata: metadataOf(r.Header), lease: lease}
		blobs[name] = b
		s.stamp(w, b, now)

		return answer{status: http.StatusCreated}
	}

	return answer{http.StatusBadRequest, "UnsupportedHttpVerb"}
}

// admit returns an error if the conditions of r do not hold for b, which is nil if there is none.
func admit(r *http.Request, b *blob, comp string, now time.Time) answer {
	upload := r.Method == http.MethodPut && comp == ""
	match := r.Header.Get("If-Match")
	if b == nil {
		switch {
		case !upload:
			return answer{http.StatusNotFound, "BlobNotFound"}
		case match != "":
			return answer{http.StatusPreconditionFailed, "ConditionNotMet"}
		}
		return answer{}
	}

	switch {
	case match != "" && match != "*" && match != b.etag:
		return answer{http.StatusPreconditionFailed, "ConditionNotMet"}
	case r.Header.Get("If-None-Match") == "*":
		return answer{http.StatusConflict, "BlobAlreadyExists"}
	case comp == "lease" || r.Method == http.MethodGet || r.Method == http.MethodHead:
		return answer{}
	}

	return b.lease.admit(r.Header.Get("X-Ms-Lease-Id"), now)
}

// admit returns an error if a change under this lease id, which is empty if there is none, is not allowed.
func (l nativeLease) admit(id string, now time.Time) answer {
	switch held := l.held(now); {
	case held && id == "":
		return answer{http.StatusPreconditionFailed, "LeaseIdMissing"}
	case held && !strings.EqualFold(id, l.id):
		return answer{http.StatusPreconditionFailed, "LeaseIdMismatchWithBlobOperation"}
	case !held && id != "" && strings.EqualFold(id, l.id):
		return answer{http.StatusPreconditionFailed, "LeaseLost"}
	case !held && id != "":
		return answer{http.StatusPreconditionFailed, "LeaseNotPresentWithBlobOperation"}
	}

	return answer{}
}

func metadataOf(h http.Header) map[string]string {
	metadata := map[string]string{}
	for name, values := range h {
		if key, ok := strings.CutPrefix(name, metaPrefix); ok {
			metadata[key] = values[0]
		}
	}

	return metadata
}

// stamp gives b, which has changed, an ETag.
func (s *Blobs) stamp(w http.ResponseWriter, b *blob, now time.Time) {
	s.etags++
	b.etag = fmt.Sprintf("%q", fmt.Sprintf("0x%015X", s.etags))
	b.written = now
	w.Header().Set("Etag", b.etag)
	w.Header().Set("Last-Modified", b.written.UTC().Format(http.TimeFormat))
}

func (b *blob) write(w http.ResponseWriter, body bool, now time.Time) {
	h := w.Header()
	for name, value := range b.metadata {
		h.Set(metaPrefix+name, value)
	}

	state, status := b.lease.state(now)
	h.Set("X-Ms-Lease-State", state)
	h.Set("X-Ms-Lease-Status", status)
	h.Set("X-Ms-Blob-Type", "BlockBlob")
	h.Set("Etag", b.etag)
	h.Set("Last-Modified", b.written.UTC().Format(http.TimeFormat))
	h.Set("Content-Type", b.kind)
	h.Set("Content-Length", strconv.Itoa(len(b.content)))
	if body {
		_, _ = w.Write(b.content)
	}
}

// changeLease takes, renews or gives back the native lease of b. Taking it again under the same id is allowed.
func (b *blob) changeLease(w http.ResponseWriter, r *http.Request, now time.Time) answer {
	id := r.Header.Get("X-Ms-Lease-Id")
	held := b.lease.held(now)
	w.Header().Set("Etag", b.etag)
	w.Header().Set("Last-Modified", b.written.UTC().Format(http.TimeFormat))

	switch r.Header.Get("X-Ms-Lease-Action") {
	case "acquire":
		seconds, _ := strconv.Atoi(r.Header.Get("X-Ms-Lease-Duration"))
		proposed := cmp.Or(r.Header.Get("X-Ms-Proposed-Lease-Id"), uuid.NewString())
		if seconds != -1 && (seconds < 15 || seconds > 60) {
			return answer{http.StatusBadRequest, "InvalidHeaderValue"}
		}

		if held && !strings.EqualFold(proposed, b.lease.id) {
			return answer{http.StatusConflict, "LeaseAlreadyPresent"}
		}

		lasts := time.Duration(seconds) * time.Second
		b.lease = nativeLease{proposed, now.Add(lasts), lasts}
		w.Header().Set("X-Ms-Lease-Id", proposed)

		return answer{status: http.StatusCreated}

	case "renew":
		if !strings.EqualFold(id, b.lease.id) || b.lease.id == "" {
			return answer{http.StatusConflict, "LeaseIdMismatchWithLeaseOperation"}
		}

		b.lease.until = now.Add(b.lease.lasts)
		w.Header().Set("X-Ms-Lease-Id", id)

		return answer{status: http.StatusOK}

	case "release":
		if b.lease.id == "" || !strings.EqualFold(id, b.lease.id) {
			return answer{http.StatusConflict, "LeaseIdMismatchWithLeaseOperation"}
		}

		b.lease = nativeLease{}

		return answer{status: http.StatusOK}
	}

	return answer{http.StatusBadRequest, "InvalidHeaderValue"}
}

// list answers with a page of the blobs of a container.
func (s *Blobs) list(w http.ResponseWriter, r *http.Request, container string, now time.Time) {
	q := r.URL.Query()
	size, _ := strconv.Atoi(q.Get("maxresults"))
	size = min(cmp.Or(size, maxPage), maxPage)
	blobs := s.containers[container]
	var page []listedBlob

	next := ""
	for _, name := range slices.Sorted(maps.Keys(blobs)) {
		if !strings.HasPrefix(name, q.Get("prefix")) || name < q.Get("marker") {
			continue
		}

		if len(page) == size {
			next = name
			break
		}

		page = append(page, blobs[name].listed(name, now))
	}

	w.Header().Set("Content-Type", "application/xml")
	_, _ = io.WriteString(w, xml.Header)
	_ = xml.NewEncoder(w).Encode(listing{Container: container, Blobs: page, Next: next})
}

func (b *blob) listed(name string, now time.Time) listedBlob {
	l := listedBlob{Name: name}
	l.Written, l.ETag = b.written.UTC().Format(http.TimeFormat), strings.Trim(b.etag, `"`)
	l.Length, l.Type, l.Kind = len(b.content), b.kind, "BlockBlob"
	l.LeaseState, l.LeaseStatus = b.lease.state(now)

	for _, key := range slices.Sorted(maps.Keys(b.metadata)) {
		l.Metadata.Values = append(l.Metadata.Values, metadatum{xml.Name{Local: key}, b.metadata[key]})
	}

	return l
}

// A listing is a page in XML.
type listing struct {
	XMLName   xml.Name     `xml:"EnumerationResults"`
	Container string       `xml:"ContainerName,attr"`
	Blobs     []listedBlob `xml:"Blobs>Blob"`
	Next      string       `xml:"NextMarker"`
}

type listedBlob struct {
	Name        string
	Written     string `xml:"Properties>Last-Modified"`
	ETag        string `xml:"Properties>Etag"`
	Length      int    `xml:"Properties>Content-Length"`
	Type        string `xml:"Properties>Content-Type"`
	Kind        string `xml:"Properties>BlobType"`
	LeaseStatus string `xml:"Properties>LeaseStatus"`
	LeaseState  string `xml:"Properties>LeaseState"`
	Metadata    struct{ Values []metadatum }
}

type metadatum struct {
	XMLName xml.Name
	Value   string `xml:",chardata"`
}
