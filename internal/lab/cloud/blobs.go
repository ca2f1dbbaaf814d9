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

// held reports whether somebody has the lease.
func (l nativeLease) held(now time.Time) bool {
	if l.id == "" {
		return false
	}

	return l.lasts < 0 || now.Before(l.until)
}

// is reports whether the lease was taken by this id, which has no case.
func (l nativeLease) is(id string) bool {
	return l.id != "" && strings.EqualFold(id, l.id)
}

// state returns what the headers of the service call the lease's state and its status.
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

// Answers that more than one request may get.
var (
	unsupported     = answer{http.StatusBadRequest, "UnsupportedHttpVerb"}
	invalidHeader   = answer{http.StatusBadRequest, "InvalidHeaderValue"}
	noSuchContainer = answer{http.StatusNotFound, "ContainerNotFound"}
	notMet          = answer{http.StatusPreconditionFailed, "ConditionNotMet"}
)

// send writes the answer. One without a status has been written.
func (a answer) send(w http.ResponseWriter, r *http.Request) {
	if a.status == 0 {
		return
	}

	if a.code == "" {
		w.WriteHeader(a.status)
		return
	}

	w.Header().Set("X-Ms-Error-Code", a.code)
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(a.status)

	if r.Method != http.MethodHead {
		fmt.Fprintf(w, "%s<Error><Code>%s</Code><Message>%s</Message></Error>", xml.Header, a.code, a.code)
	}
}

// ServeHTTP does what a request asks of a container or of a blob.
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
	if name == "" {
		s.onContainer(w, r, container, now).send(w, r)
		return
	}

	a := noSuchContainer
	if blobs := s.containers[container]; blobs != nil {
		a = s.onBlob(w, r, blobs, name, body, now)
	}

	a.send(w, r)
}

// onContainer does what r asks of a container, and answers as onBlob does.
func (s *Blobs) onContainer(w http.ResponseWriter, r *http.Request, name string, now time.Time) answer {
	isThere := s.containers[name] != nil
	switch {
	case r.Method == http.MethodPut && isThere:
		return answer{http.StatusConflict, "ContainerAlreadyExists"}

	case r.Method == http.MethodPut:
		if s.containers == nil {
			s.containers = map[string]map[string]*blob{}
		}

		s.containers[name] = map[string]*blob{}

		return answer{status: http.StatusCreated}

	case !isThere:
		return noSuchContainer

	case r.URL.Query().Get("comp") != "list":
		return unsupported
	}

	s.list(w, r, name, now)

	return answer{}
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

	b := s.containers[container][name]
	if b == nil {
		return nil
	}

	return bytes.Clone(b.content)
}

// Metadata returns that of a blob, nil if there is none. Names are as they are in headers.
func (s *Blobs) Metadata(container, name string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()

	b := s.containers[container][name]
	if b == nil {
		return nil
	}

	return maps.Clone(b.metadata)
}

// onBlob does what r asks of a blob, and writes the headers and the body of the answer. A status of 0 is a success
// that has been written.
func (s *Blobs) onBlob(
	w http.ResponseWriter,
	r *http.Request,
	blobs map[string]*blob,
	name string,
	body []byte,
	now time.Time,
) answer {
	b := blobs[name]
	comp := r.URL.Query().Get("comp")
	if a := admit(r, b, comp, now); a.code != "" {
		return a
	}

	switch {
	case reads(r):
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
		blobs[name] = b.replaced(r.Header, body)
		s.stamp(w, blobs[name], now)
		return answer{status: http.StatusCreated}
	}

	return unsupported
}

// replaced returns the blob that an upload puts in the place of b, nil if there is none. It keeps the lease.
func (b *blob) replaced(h http.Header, body []byte) *blob {
	next := &blob{
		content:  body,
		kind:     cmp.Or(h.Get("X-Ms-Blob-Content-Type"), "application/octet-stream"),
		metadata: metadataOf(h),
	}

	if b != nil {
		next.lease = b.lease
	}

	return next
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
			return notMet
		}
		return answer{}
	}

	if !slices.Contains([]string{"", "*", b.etag}, match) {
		return notMet
	}

	if r.Header.Get("If-None-Match") == "*" {
		return answer{http.StatusConflict, "BlobAlreadyExists"}
	}

	if comp == "lease" || reads(r) {
		return answer{}
	}

	return b.lease.admit(r.Header.Get("X-Ms-Lease-Id"), now)
}

// reads reports whether r changes nothing.
func reads(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead
}

// admit returns an error if a change under this lease id, which is empty if there is none, is not allowed.
func (l nativeLease) admit(id string, now time.Time) answer {
	held := l.held(now)
	code := ""

	switch {
	case id == "" && held:
		code = "LeaseIdMissing"
	case id == "":
		return answer{}
	case l.is(id) && held:
		return answer{}
	case l.is(id):
		code = "LeaseLost"
	case held:
		code = "LeaseIdMismatchWithBlobOperation"
	default:
		code = "LeaseNotPresentWithBlobOperation"
	}

	return answer{http.StatusPreconditionFailed, code}
}

// metadataOf returns the metadata that a request sets. Names are as they are in headers.
func metadataOf(h http.Header) map[string]string {
	metadata := map[string]string{}
	for name, values := range h {
		key, ok := strings.CutPrefix(name, metaPrefix)
		if ok {
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

// write answers with the blob: its headers, and its body if that is asked for.
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
	w.Header().Set("Etag", b.etag)
	w.Header().Set("Last-Modified", b.written.UTC().Format(http.TimeFormat))

	switch action := r.Header.Get("X-Ms-Lease-Action"); {
	case action == "acquire":
		return b.acquire(w, r, now)

	case action != "renew" && action != "release":
		return invalidHeader

	case !b.lease.is(id):
		return answer{http.StatusConflict, "LeaseIdMismatchWithLeaseOperation"}

	case action == "renew":
		b.lease.until = now.Add(b.lease.lasts)
		w.Header().Set("X-Ms-Lease-Id", id)

	default:
		b.lease = nativeLease{}
	}

	return answer{status: http.StatusOK}
}

// acquire takes the native lease of b, for as long as the service lets it last: 15 to 60 seconds, or for ever.
func (b *blob) acquire(w http.ResponseWriter, r *http.Request, now time.Time) answer {
	seconds, _ := strconv.Atoi(r.Header.Get("X-Ms-Lease-Duration"))
	isBounded := 15 <= seconds && seconds <= 60
	if !isBounded && seconds != -1 {
		return invalidHeader
	}

	proposed := cmp.Or(r.Header.Get("X-Ms-Proposed-Lease-Id"), uuid.NewString())
	if b.lease.held(now) && !b.lease.is(proposed) {
		return answer{http.StatusConflict, "LeaseAlreadyPresent"}
	}

	lasts := time.Duration(seconds) * time.Second
	b.lease = nativeLease{
		id:    proposed,
		until: now.Add(lasts),
		lasts: lasts,
	}
	w.Header().Set("X-Ms-Lease-Id", proposed)

	return answer{status: http.StatusCreated}
}

// list answers with a page of the blobs of a container. Of a blob's properties it has those that anybody reads: reading
// them is the most that a listing costs.
func (s *Blobs) list(w http.ResponseWriter, r *http.Request, container string, now time.Time) {
	q := r.URL.Query()
	size, _ := strconv.Atoi(q.Get("maxresults"))
	size = min(cmp.Or(size, maxPage), maxPage)
	blobs := s.containers[container]
	next := ""
	w.Header().Set("Content-Type", "application/xml")
	fmt.Fprintf(w, "%s<EnumerationResults><Blobs>", xml.Header)

	for _, name := range slices.Sorted(maps.Keys(blobs)) {
		isBefore := name < q.Get("marker")
		if isBefore || !strings.HasPrefix(name, q.Get("prefix")) {
			continue
		}

		if size == 0 {
			next = name
			break
		}

		blobs[name].list(w, name, now)
		size--
	}

	fmt.Fprintf(w, "</Blobs><NextMarker>%s</NextMarker></EnumerationResults>", escaped(next))
}

// list writes the blob's entry in a listing.
func (b *blob) list(w io.Writer, name string, now time.Time) {
	state, _ := b.lease.state(now)
	written := b.written.UTC().Format(http.TimeFormat)
	fmt.Fprintf(w, "<Blob><Name>%s</Name><Properties><Last-Modified>%s</Last-Modified>", escaped(name), written)
	fmt.Fprintf(w, "<Etag>%s</Etag><LeaseState>%s</LeaseState></Properties><Metadata>", strings.Trim(b.etag, `"`), state)

	for _, key := range slices.Sorted(maps.Keys(b.metadata)) {
		fmt.Fprintf(w, "<%s>%s</%[1]s>", key, escaped(b.metadata[key]))
	}

	_, _ = io.WriteString(w, "</Metadata></Blob>")
}

// escaped returns text as XML has it.
func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder takes everything
	return b.String()
}
