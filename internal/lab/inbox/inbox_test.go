package inbox_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"alertworker/internal/lab/inbox"
	_ "alertworker/internal/lab/seeded"
	"alertworker/internal/notify"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/notify/wording"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func post(h http.Handler, contentType string, body io.Reader) *http.Response {
	r := httptest.NewRequest(http.MethodPost, "/", body)
	r.Header.Set("Content-Type", contentType)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// deliver posts a to in, which must accept it.
func deliver(t *testing.T, in *inbox.Inbox, a notify.Alert) {
	t.Helper()
	body, err := webhook.Encode(a, wording.Style{})
	if err != nil {
		t.Error(err)
	}
	if resp := post(in, webhook.ContentType, bytes.NewReader(body)); resp.StatusCode != http.StatusNoContent {
		t.Error("answered", resp.Status)
	}
}

func TestDrops(t *testing.T) {
	alert := func(id, device string, token int64) notify.Alert {
		a := notifytest.Alert(1)
		a.ID, a.Device, a.Token, a.Remember = id, device, token, 0
		return a
	}
	type step struct {
		after   time.Duration // since the step before
		alert   notify.Alert
		dropped bool
	}
	from := func(a notify.Alert, source string) notify.Alert { a.Source = source; return a }
	claimed := func(a notify.Alert, remember time.Duration) notify.Alert { a.Remember = remember; return a }
	for name, steps := range map[string][]step{
		"same id": {
			{0, alert("a", "d", 5), false},
			{59 * time.Second, alert("a", "d", 6), true},
		},
		"same id after the window": {
			{0, alert("a", "d", 5), false},
			{60 * time.Second, alert("a", "d", 6), false},
		},
		"smaller token": {
			{0, alert("b", "d", 6), false},
			{59 * time.Second, alert("a", "d", 5), true},
		},
		"smaller token after the window": {
			{0, alert("b", "d", 6), false},
			{60 * time.Second, alert("a", "d", 5), false},
		},
		"same and greater token are new": {
			{0, alert("a", "d", 5), false},
			{0, alert("b", "d", 5), false},
			{0, alert("c", "d", 6), false},
		},
		"smaller token of another device": {
			{0, alert("b", "d", 6), false},
			{0, alert("a", "D", 5), false},
		},
		"another source": {
			{0, alert("a", "d", 5), false},
			{0, from(alert("a", "d", 4), "/other"), false},
		},
		"a token that was dropped counts": { // 5's answer is lost, 6 hangs, 7 is a repeat, and then 6 arrives
			{0, alert("a", "d", 5), false},
			{30 * time.Second, alert("a", "d", 7), true},
			{31 * time.Second, alert("a", "d", 6), true},
			{30 * time.Second, alert("b", "d", 6), false},
		},
		"a token counts for as long as a claim": {
			{0, claimed(alert("b", "d", 6), 90*time.Second), false},
			{80 * time.Second, alert("a", "d", 5), true},
			{10 * time.Second, alert("a", "d", 5), false},
		},
		"an id does not": {
			{0, claimed(alert("a", "d", 5), 90*time.Second), false},
			{60 * time.Second, alert("a", "d", 6), false},
		},
		"what was dropped starts no window": {
			{0, alert("a", "d", 5), false},
			{59 * time.Second, alert("a", "d", 5), true},
			{1 * time.Second, alert("a", "d", 5), false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []inbox.Delivery
				in := inbox.New(webhook.Secret{}, func(d inbox.Delivery) { got = append(got, d) })
				for i, s := range steps {
					time.Sleep(s.after)
					deliver(t, in, s.alert)
					d := got[len(got)-1]
					if len(got) != i+1 || d.Dropped != s.dropped || !d.At.Equal(time.Now()) || d.Alert.ID != s.alert.ID {
						t.Errorf("step %d: got %+v, want dropped %v", i, d, s.dropped)
					}
				}
			})
		})
	}
}

// Whatever comes, the inbox does what a list of everything ever taken says.
func TestRule(t *testing.T) {
	type step struct {
		after time.Duration
		alert notify.Alert
	}
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		a := notifytest.Alert(1)
		a.ID = rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "id")
		a.Device = rapid.SampledFrom([]string{"x", "y"}).Draw(t, "device")
		a.Token = rapid.Int64Range(1, 6).Draw(t, "token")
		a.Remember = time.Duration(rapid.IntRange(0, 120).Draw(t, "remember")) * time.Second
		return step{time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second, a}
	}), 1, 60)

	rapid.Check(t, func(rt *rapid.T) {
		steps := steps.Draw(rt, "steps")
		var got []inbox.Delivery
		synctest.Test(t, func(t *testing.T) {
			in := inbox.New(webhook.Secret{}, func(d inbox.Delivery) { got = append(got, d) })
			for _, s := range steps {
				time.Sleep(s.after)
				deliver(t, in, s.alert)
			}
		})
		for i, d := range got {
			// The greatest token of the device, if any that counts is remembered.
			want, greatest, until := false, int64(0), time.Time{}
			for _, before := range got[:i] {
				a := before.Alert
				end := before.At.Add(a.Window)
				if a.ID == d.Alert.ID && !before.Dropped && d.At.Before(end) {
					want = true
				}
				if a.Device != d.Alert.Device {
					continue
				}
				if keep := before.At.Add(a.Remember); keep.After(end) {
					end = keep
				}
				if !before.At.Before(until) {
					greatest, until = 0, time.Time{}
				}
				if !before.Dropped || a.Token > greatest {
					greatest = max(greatest, a.Token)
					if end.After(until) {
						until = end
					}
				}
			}
			if d.At.Before(until) && greatest > d.Alert.Token {
				want = true
			}
			if d.Dropped != want {
				rt.Fatalf("step %d: dropped %v, want %v", i, d.Dropped, want)
			}
		}
	})
}

func TestRefuses(t *testing.T) {
	good, err := os.ReadFile("../../notify/webhook/testdata/alert.json")
	if err != nil {
		t.Fatal(err)
	}
	in := inbox.New(webhook.Secret{}, func(d inbox.Delivery) { t.Errorf("took %+v", d) })
	for name, tt := range map[string]struct {
		contentType string
		body        io.Reader
		want        int
	}{
		"plain JSON":    {"application/json", bytes.NewReader(good), http.StatusUnsupportedMediaType},
		"no type":       {"", bytes.NewReader(good), http.StatusUnsupportedMediaType},
		"nothing":       {webhook.ContentType, strings.NewReader(""), http.StatusBadRequest},
		"other type":    {webhook.ContentType, bytes.NewReader(bytes.ReplaceAll(good, []byte("temperature.high"), []byte("temperature.summary"))), http.StatusNoContent},
		"half":          {webhook.ContentType, bytes.NewReader(good[:len(good)/2]), http.StatusBadRequest},
		"too much":      {webhook.ContentType, strings.NewReader(strings.Repeat(" ", 1<<17)), http.StatusRequestEntityTooLarge},
		"breaks off":    {webhook.ContentType, io.MultiReader(bytes.NewReader(good[:9]), brokenReader{}), http.StatusRequestTimeout},
		"other charset": {"application/xml", bytes.NewReader(good), http.StatusUnsupportedMediaType},
	} {
		if resp := post(in, tt.contentType, tt.body); resp.StatusCode != tt.want {
			t.Errorf("%s: answered %s, want %d", name, resp.Status, tt.want)
		}
	}
	w := httptest.NewRecorder()
	in.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "POST" {
		t.Errorf("GET: answered %d, Allow %q", w.Code, w.Header().Get("Allow"))
	}
	signed, err := webhook.ParseSecret("whsec_" + strings.Repeat("YWJj", 8))
	if err != nil {
		t.Fatal(err)
	}
	if resp := post(inbox.New(signed, func(inbox.Delivery) {}), webhook.ContentType, bytes.NewReader(good)); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("no signature: answered %s, want 401", resp.Status)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestTakesWithParameters(t *testing.T) {
	good, err := os.ReadFile("../../notify/webhook/testdata/alert.json")
	if err != nil {
		t.Fatal(err)
	}
	if resp := post(inbox.New(webhook.Secret{}, func(inbox.Delivery) {}), "Application/CloudEvents+JSON; charset=utf-8", bytes.NewReader(good)); resp.StatusCode != http.StatusNoContent {
		t.Errorf("answered %s, want 204", resp.Status)
	}
}

// Of the same alert, however often and however simultaneous, one is taken.
func TestConcurrent(t *testing.T) {
	taken := 0 // record is called one at a time
	in := inbox.New(webhook.Secret{}, func(d inbox.Delivery) {
		if !d.Dropped {
			taken++
		}
	})
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() { deliver(t, in, notifytest.Alert(1)) })
	}
	wg.Wait()
	if taken != 1 {
		t.Errorf("took %d, want 1", taken)
	}
}

// Sweeping must lose nothing that is still within its window.
func TestSweepForgetsOnlyWhatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last inbox.Delivery
		in := inbox.New(webhook.Secret{}, func(d inbox.Delivery) { last = d })
		send := func(i int) bool {
			a := notifytest.Alert(i)
			a.ID = fmt.Sprint(i)
			deliver(t, in, a)
			return last.Dropped
		}
		const n = 3000 // several sweeps
		for i := range n {
			send(i)
			time.Sleep(50 * time.Millisecond) // 1200 to the window
		}
		for i := n - 1; i > n-1200; i-- {
			if !send(i) {
				t.Fatalf("alert %d of %d was forgotten too early", i, n)
			}
		}
		if send(n - 1201) {
			t.Error("an alert was remembered too long")
		}
	})
}

func FuzzInbox(f *testing.F) {
	good, err := os.ReadFile("../../notify/webhook/testdata/alert.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(webhook.ContentType, good)
	f.Add("application/cloudevents+json; charset", []byte("{}"))
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		records := 0
		in := inbox.New(webhook.Secret{}, func(inbox.Delivery) { records++ })
		resp := post(in, contentType, bytes.NewReader(body))
		switch resp.StatusCode {
		case http.StatusNoContent:
			want := 1
			if _, err := webhook.Decode(body); errors.Is(err, webhook.ErrNoAlert) {
				want = 0
			}
			if records != want {
				t.Fatalf("204 and %d deliveries, want %d", records, want)
			}
		case http.StatusBadRequest, http.StatusUnsupportedMediaType, http.StatusRequestEntityTooLarge:
			if records != 0 {
				t.Fatalf("%s and %d deliveries", resp.Status, records)
			}
		default:
			t.Fatalf("answered %s", resp.Status)
		}
	})
}

// An alert that is refused is not taken: it is none that is remembered.
func TestRefuse(t *testing.T) {
	var got []inbox.Delivery
	in := inbox.New(webhook.Secret{}, func(d inbox.Delivery) { got = append(got, d) })
	body, err := webhook.Encode(notifytest.Alert(1), wording.Style{})
	if err != nil {
		t.Fatal(err)
	}
	for i, refuse := range []bool{true, false} {
		in.Refuse(refuse)
		want := map[bool]int{true: http.StatusUnprocessableEntity, false: http.StatusNoContent}[refuse]
		if resp := post(in, webhook.ContentType, bytes.NewReader(body)); resp.StatusCode != want {
			t.Errorf("answered %s, want %d", resp.Status, want)
		}
		if len(got) != i+1 || got[i].Refused != refuse || got[i].Dropped {
			t.Errorf("recorded %+v", got)
		}
	}
}
