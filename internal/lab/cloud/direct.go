package cloud

import (
	"net/http"
	"net/http/httptest"
	"time"
)

// Direct carries requests to Service without a network. It is for bubbles of testing/synctest.
type Direct struct {
	Service http.Handler
	Latency time.Duration // of every request
}

// RoundTrip implements http.RoundTripper.
func (d Direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}

	served := r.Clone(r.Context())
	served.Header = http.Header{}
	for name, values := range r.Header { // as they are once they have been over a network
		served.Header[http.CanonicalHeaderKey(name)] = values
	}

	if r.Body == nil {
		served.Body = http.NoBody
	}

	time.Sleep(d.Latency)
	w := httptest.NewRecorder()
	d.Service.ServeHTTP(w, served)
	answer := w.Result()
	answer.Request = r

	return answer, nil
}
