// Package ingest is the HTTP trigger: POST /devices/{id}/telemetry hands a reading to the
// worker, through the same decoder, gates and notifiers as the hub's readings, and
// answers with the outcome.
package ingest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"sync"
	"time"

	"github.com/google/uuid"

	"alertworker/internal/httpapi"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

const (
	maxBody   = 256 << 10 // bytes, as IoT Hub's
	maxDevice = 1 << 10   // bytes
	maxKey    = 255       // bytes of an Idempotency-Key
	maxBodies = 256       // being read at a time

	// Retry-After, in seconds.
	retryBusy   = "5"
	retryFailed = "10"
)

// Config is what a Handler needs. All fields are required.
type Config struct {
	Intake  telemetry.Intake
	Token   string        // HTTP_INGEST_TOKEN, which callers send as Authorization: Bearer
	Timeout time.Duration // for the claim of another replica to end: at least as long as that may last
}

// A Handler serves POST /devices/{id}/telemetry and answers 404 to other paths. It must
// not be behind an http.ServeMux, which cleans paths. Its server needs no ReadTimeout,
// and must not have a WriteTimeout shorter than Timeout, a claim and httpapi.BodyTimeout together.
//
// A settled reading is answered with 200 and a status: "ok", an alert about it was taken;
// "throttled", its device had an alert within the window; "normal", it is below the
// threshold. The status "failed" comes with 503 and why: the reading may be sent again, with
// the same Idempotency-Key, so that an alert that was taken after all is not taken twice.
type Handler struct {
	config  Config
	bodies  chan struct{}   // one for each body being read
	waiting context.Context // for bodies and for other claims
	cut     context.CancelFunc

	mu       sync.Mutex
	stopping bool
	requests sync.WaitGroup // under way; none is added once stopping
}

func New(c Config) *Handler {
	h := &Handler{config: c, bodies: make(chan struct{}, maxBodies)}
	h.waiting, h.cut = context.WithCancel(context.Background())
	return h
}

// Close refuses new requests and waits for those under way; once ctx has ended, these no
// longer wait for other claims to end. Call it once, before the Intake's Close.
func (h *Handler) Close(ctx context.Context) {
	h.mu.Lock()
	h.stopping = true
	h.mu.Unlock()
	stop := context.AfterFunc(ctx, h.cut)
	h.requests.Wait()
	stop()
	h.cut()
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	httpapi.LimitBody(w, r)
	device, action, ok := httpapi.Device(r)
	switch {
	case !ok || action != "telemetry":
		fail(w, http.StatusNotFound, "readings go to /devices/{id}/telemetry, where a / in the id is %%2F")
		return

	case !httpapi.Authorized(r, h.config.Token):
		httpapi.Unauthorized(w, "HTTP_INGEST_TOKEN")
		return

	case r.Method != http.MethodPost:
		httpapi.NotAllowed(w, http.MethodPost)
		return

	case len(device) > maxDevice:
		fail(w, http.StatusRequestURITooLong, "a device id has at most %d bytes", maxDevice)
		return
	}

	key, err := alertKey(device, r.Header.Values("Idempotency-Key"))
	if err != nil {
		fail(w, http.StatusBadRequest, "%v", err)
		return
	}

	h.mu.Lock()
	stopping := h.stopping
	if !stopping {
		h.requests.Add(1)
	}
	h.mu.Unlock()
	if stopping {
		refuse(w, errStopping)
		return
	}
	defer h.requests.Done()

	h.take(w, r, device, key)
}

// take answers an accepted request.
func (h *Handler) take(w http.ResponseWriter, r *http.Request, device, key string) {
	arrived := time.Now()
	body, err := h.readBody(w, r)
	if err != nil {
		refuse(w, err)
		return
	}

	ctx, cancel := context.WithTimeout(r.Context(), h.config.Timeout)
	defer cancel()
	defer context.AfterFunc(h.waiting, cancel)()
	verdict, sensors, err := h.config.Intake.Handle(ctx, telemetry.Event{
		Device:   sensor.Device(device),
		Body:     body,
		Enqueued: arrived,
	}, key)

	if errors.As(err, new(*telemetry.DecodeError)) || errors.Is(err, telemetry.ErrBusy) {
		refuse(w, err)
		return
	}

	code, a := http.StatusOK, answer{Status: statusOf[verdict], Sensors: map[string]string{}}
	for name, v := range sensors {
		a.Sensors[name] = statusOf[v]
	}

	if verdict == telemetry.VerdictFailed {
		code = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", retryFailed)
		if unsettled, ok := errors.AsType[*telemetry.UnsettledError](err); ok {
			a.Reason, a.Detail = unsettled.Reason, unsettled.Detail
		}
	}

	httpapi.Write(w, code, a)
}

// An answer to a reading that was taken. Reason and Detail are those of "failed", named
// as in a Problem.
type answer struct {
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`
	// by the name of each sensor that the message has readings of
	Sensors map[string]string `json:"sensors,omitempty"`
}

var statusOf = [...]string{
	telemetry.VerdictFailed:    "failed",
	telemetry.VerdictNormal:    "normal",
	telemetry.VerdictThrottled: "throttled",
	telemetry.VerdictAlerted:   "ok",
}

// errStopping means that the handler takes no more requests.
var errStopping = errors.New("the handler is closed")

// refuse answers with why a body could not be read, or its reading was not taken.
func refuse(w http.ResponseWriter, err error) {
	var undecodable *telemetry.DecodeError
	switch {
	case errors.As(err, &undecodable):
		reason := undecodable.Reason
		httpapi.Fail(w, httpapi.Problem{Status: cmp.Or(codes[reason], http.StatusUnprocessableEntity), Detail: err.Error(), Reason: reason.String()})

	case errors.Is(err, errStopping):
		w.Header().Set("Retry-After", retryFailed)
		fail(w, http.StatusServiceUnavailable, "this replica is stopping: send it again, another will take it")

	case errors.Is(err, telemetry.ErrBusy):
		w.Header().Set("Retry-After", retryBusy)
		fail(w, http.StatusTooManyRequests, "too many readings wait to be settled: send it again later")

	case errors.As(err, new(*http.MaxBytesError)):
		fail(w, http.StatusRequestEntityTooLarge, "a reading has at most %d bytes", maxBody)

	case errors.Is(err, os.ErrDeadlineExceeded):
		fail(w, http.StatusRequestTimeout, "the body did not arrive within %v", httpapi.BodyTimeout)

	default:
		fail(w, http.StatusBadRequest, "the body broke off")
	}
}

// codes are those of HTTP for bodies without a reading that have one of their own.
var codes = map[telemetry.Reason]int{
	telemetry.ReasonTooLarge:            http.StatusRequestEntityTooLarge,
	telemetry.ReasonUnsupportedEncoding: http.StatusUnsupportedMediaType,
}

func fail(w http.ResponseWriter, status int, format string, args ...any) {
	httpapi.Fail(w, httpapi.Problem{Status: status, Detail: fmt.Sprintf(format, args...)})
}

// readBody reads at most maxBody bytes, until httpapi.LimitBody's limit or until Close
// no longer waits. Neither applies to the wait for the outcome. It fails with
// telemetry.ErrBusy while maxBodies others are being read.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	select {
	case h.bodies <- struct{}{}:
		defer func() { <-h.bodies }()
	default:
		return nil, telemetry.ErrBusy
	}

	ended := make(chan struct{})
	stop := context.AfterFunc(h.waiting, func() {
		defer close(ended)
		_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // as in httpapi.LimitBody
	})

	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if !stop() {
		<-ended // it must not use the connection after the handler has returned
		if err != nil {
			err = errStopping
		}
	}

	return body, err
}

// keys are what an Idempotency-Key may be: with the quotes that the header's draft standard has, or without.
var keys = regexp.MustCompile(fmt.Sprintf(`^("?)([!#-[\]-~]{1,%d})("?)$`, maxKey))

// alertKey returns the part of the alert's id that identifies the reading. It is the same
// for requests of a device with the same Idempotency-Key, and otherwise unique over all
// replicas. Receivers compare only the ids of alerts, so it includes the device; as a
// digest it has no special characters.
func alertKey(device string, headers []string) (string, error) {
	if len(headers) == 0 {
		return uuid.NewString(), nil
	}

	key := keys.FindStringSubmatch(headers[0])
	if len(headers) > 1 || key == nil || key[1] != key[3] {
		return "", fmt.Errorf(
			"an Idempotency-Key has 1 to %d visible ASCII characters, without quotes and backslashes",
			maxKey,
		)
	}

	sum := sha256.Sum256([]byte(key[2] + " " + device)) // no key has a space

	return hex.EncodeToString(sum[:16]), nil
}
