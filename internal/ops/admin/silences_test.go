package admin_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/muting"
	"alertworker/internal/ops/admin"
	"alertworker/internal/ops/status"
	"alertworker/internal/records"
	"alertworker/internal/rules"
)

// Who has the token silences, sees who has silenced what, and ends it; the page shows it to everybody.
func TestSilences(t *testing.T) {
	store := muting.Store{Records: &records.Memory{}, Name: "silences"}
	cache := muting.NewCache(store, zap.NewNop())
	a := admin.New(admin.Options{
		Token: "secret", Worker: &fakeWorker{}, Silences: cache, Recorder: &admin.Recorder{}, Log: zap.NewNop(),
		Self:  func() status.Statement { return status.Statement{} },
		Rules: rules.Set{Rules: []rules.Rule{{Name: "hot", Levels: []rules.Level{{Limit: 80}}}}},
	})
	ask := func(token, method, path, body string) (int, string) {
		r := httptest.NewRequest(method, "http://host"+path, strings.NewReader(body))
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	const good = `{"device": "oven-*", "where": "site=berlin", "for": "2h", "why": "service", "who": "ann"}`
	for _, test := range []struct {
		name, token, method, path, body string
		status                          int
		says                            string
	}{
		{"no token", "", "PUT", "/silences", good, 401, "HTTP_ADMIN_TOKEN"},
		{"another token", "wrong", "GET", "/silences", "", 401, "HTTP_ADMIN_TOKEN"},
		{"none yet", "secret", "GET", "/silences", "", 200, "[]"},
		{"no JSON", "secret", "PUT", "/silences", "oven-7", 400, "want JSON"},
		{"an unknown field", "secret", "PUT", "/silences", `{"devices": "oven-*"}`, 400, "want JSON"},
		{"nothing named", "secret", "PUT", "/silences", `{"for": "2h", "why": "service", "who": "ann"}`, 400, "say what to silence"},
		{"no duration", "secret", "PUT", "/silences", `{"rule": "hot", "why": "service", "who": "ann"}`, 400, "for must be a duration"},
		{"too long", "secret", "PUT", "/silences", `{"rule": "hot", "for": "9000h", "why": "service", "who": "ann"}`, 400, "a silence lasts"},
		{"nobody", "secret", "PUT", "/silences", `{"rule": "hot", "for": "2h", "why": "service"}`, 400, "say who"},
		{"no reason", "secret", "PUT", "/silences", `{"rule": "hot", "for": "2h", "who": "ann"}`, 400, "say why"},
		{"a rule that does not exist", "secret", "PUT", "/silences", `{"rule": "hott", "for": "2h", "why": "service", "who": "ann"}`, 400, "there is no rule hott: rule must be hot"},
		{"where without a value", "secret", "PUT", "/silences", `{"where": "site", "for": "2h", "why": "service", "who": "ann"}`, 400, "NAME=VALUE"},
		{"another method", "secret", "POST", "/silences", good, 405, "GET, HEAD, PUT"},
		{"another method of one", "secret", "GET", "/silences/1", "", 405, "DELETE"},
		{"an unknown one", "secret", "DELETE", "/silences/12345678", "", 404, "no silence has this id"},
	} {
		if code, got := ask(test.token, test.method, test.path, test.body); code != test.status || !strings.Contains(got, test.says) {
			t.Errorf("%s: %d %s, want %d and %q", test.name, code, got, test.status, test.says)
		}
	}
	if all, err := store.List(t.Context()); len(all) != 0 || err != nil {
		t.Fatalf("what is wrong silences: %v, %v", all, err)
	}

	code, got := ask("secret", "PUT", "/silences", good)
	var s muting.Mute
	if err := json.Unmarshal([]byte(got), &s); err != nil || code != http.StatusCreated || s.ID == "" || s.Property != "site" || s.Value != "berlin" || s.Who != "ann" {
		t.Fatalf("%d %s", code, got)
	}
	if code, got := ask("secret", "GET", "/silences", ""); code != 200 || !strings.Contains(got, s.ID) {
		t.Errorf("the list is %d %s", code, got)
	}
	_, page := ask("", "GET", "/", "")
	for _, part := range []string{"device oven-*, site=berlin", "service", "ann", `data-end="` + s.ID + `"`} {
		if !strings.Contains(page, part) {
			t.Errorf("the page has no %q", part)
		}
	}
	if code, got := ask("secret", "DELETE", "/silences/"+s.ID+"?who=a%0Ab", ""); code != 400 {
		t.Errorf("ending it by a name of two lines: %d %s", code, got)
	}
	if code, got := ask("secret", "DELETE", "/silences/"+s.ID+"?who=bob", ""); code != 200 || !strings.Contains(got, `"endedBy":"bob"`) {
		t.Errorf("ending it: %d %s", code, got)
	}
	if _, page := ask("", "GET", "/", ""); strings.Contains(page, s.ID) {
		t.Error("the page shows a silence that has ended")
	}
	if code, got := ask("secret", "DELETE", "/silences/"+s.ID, ""); code != 200 || !strings.Contains(got, `"endedBy":"bob"`) {
		t.Errorf("ending it again: %d %s", code, got)
	}
	_, got = ask("secret", "PUT", "/silences", good)
	if err := json.Unmarshal([]byte(got), &s); err != nil {
		t.Fatal(err)
	}
	if code, got := ask("secret", "DELETE", "/silences/"+s.ID, ""); code != 200 || !strings.Contains(got, `"endedBy":"HTTP_ADMIN_TOKEN"`) {
		t.Errorf("ending one without a name: %d %s", code, got)
	}
}

// Mute times that are in force are listed with the silences, on the page without a button, because nobody can end them.
func TestMuteTimesAreListed(t *testing.T) {
	always := &rules.Times{Days: rules.EveryDay, To: rules.MinutesOfDay, Zone: time.UTC}
	store := muting.Store{Records: &records.Memory{}, Name: "silences"}
	hot := rules.Rule{Name: "hot", Resolved: true, Levels: []rules.Level{{Limit: 80}}}
	a := admin.New(admin.Options{
		Token: "secret", Worker: &fakeWorker{}, Silences: muting.NewCache(store, zap.NewNop()), Recorder: &admin.Recorder{}, Log: zap.NewNop(),
		Self:  func() status.Statement { return status.Statement{} },
		Rules: rules.Set{Rules: []rules.Rule{hot}, Mutes: rules.Mutes{{Device: "lab-*", Times: always}}},
	})
	ask := func(method, path, body string) string {
		r := httptest.NewRequest(method, "http://host"+path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer secret")
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		return w.Body.String()
	}
	if got := ask("PUT", "/silences", `{"device": "oven-*", "for": "2h", "why": "known", "who": "ann"}`); !strings.Contains(got, `"device":"oven-*"`) {
		t.Errorf("a silence is %s", got)
	}
	list := ask("GET", "/silences", "")
	for _, part := range []string{`"id":""`, `"device":"lab-*"`, `"who":"the rules"`} {
		if !strings.Contains(list, part) {
			t.Errorf("the list has no %s: %s", part, list)
		}
	}
	page := ask("GET", "/", "")
	for _, part := range []string{
		"device lab-*<small>mute every day",
		"device oven-*<small>known</small><small>until",
	} {
		if !strings.Contains(page, part) {
			t.Errorf("the page has no %q", part)
		}
	}
	if n := strings.Count(page, "data-end="); n != 1 {
		t.Errorf("%d of them have a button, want one", n)
	}
}
