package muting_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"alertworker/internal/muting"
	"alertworker/internal/records"
	"alertworker/internal/rules"
)

// A silence is in force from its begin to its end, for every replica, and is forgotten a day later.
func TestSilences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := muting.Store{Records: &records.Memory{}, Name: "ns/hub/group/silences"}
		core, logged := observer.New(zap.InfoLevel)
		cache := muting.NewCache(store, zap.New(core))
		refresh := func(mutes int, log string) {
			t.Helper()
			if err := cache.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			var lines []string
			for _, e := range logged.TakeAll() {
				lines = append(lines, e.Message+" "+e.ContextMap()["why"].(string))
			}
			if got := strings.Join(lines, ", "); len(cache.Mutes()) != mutes || got != log {
				t.Errorf("%d mutes, %q; want %d, %q", len(cache.Mutes()), got, mutes, log)
			}
		}
		inForce := func(want int) {
			t.Helper()
			if all, err := store.List(t.Context()); err != nil || len(all) != want {
				t.Errorf("%v in force, %v; want %d", all, err, want)
			}
		}
		if cache.Mutes() != nil {
			t.Error("something is muted before anything is known")
		}
		refresh(0, "")
		first, err := store.Add(t.Context(), muting.Mute{Device: "oven-*", Why: "service", Who: "eva"}, time.Hour)
		if err != nil || !first.Until.Equal(first.From.Add(time.Hour)) {
			t.Fatalf("%+v, %v", first, err)
		}
		second, err := store.Add(t.Context(), muting.Mute{Rule: "hot", Property: "site", Value: "berlin", Why: "move", Who: "eva"}, 2*time.Hour)
		if err != nil || second.String() != "rule hot, site=berlin" {
			t.Fatalf("%v, %v", second, err)
		}
		refresh(2, "alerts are silenced service, alerts are silenced move")
		refresh(2, "")
		inForce(2)
		time.Sleep(time.Hour + time.Second)
		refresh(2, "a silence has ended service") // readings of its time may be read late
		inForce(1)
		if over, err := store.End(t.Context(), first.ID, "ann"); err != nil || over.EndedBy != "" || !over.Until.Equal(first.Until) {
			t.Errorf("one that has ended by itself is ended again: %+v, %v", over, err)
		}
		if _, err := store.End(t.Context(), second.ID, "ann"); err != nil {
			t.Error(err)
		}
		if err := cache.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if lines := logged.FilterMessage("a silence has ended").TakeAll(); len(lines) != 1 || lines[0].ContextMap()["ended_by"] != "ann" || lines[0].ContextMap()["who"] != "eva" {
			t.Errorf("that ann ended what eva began is logged as %+v", lines)
		}
		logged.TakeAll()
		if all, err := store.Recent(t.Context()); err != nil || len(all) != 2 || all[0].EndedBy != "" || all[1].EndedBy != "ann" {
			t.Errorf("of late there were %+v, %v", all, err)
		}
		if m := cache.Mutes()[1]; !m.Until.Equal(time.Now().UTC().Truncate(time.Second)) {
			t.Errorf("it ends at %v, not now, %v", m.Until, time.Now())
		}
		inForce(0)
		time.Sleep(25 * time.Hour)
		if _, err := store.Add(t.Context(), muting.Mute{Device: "oven", Why: "service", Who: "eva"}, time.Hour); err != nil {
			t.Error(err)
		}
		refresh(1, "alerts are silenced service")
		for range 99 {
			if _, err := store.Add(t.Context(), muting.Mute{Device: "oven", Why: "service", Who: "eva"}, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := store.Add(t.Context(), muting.Mute{Device: "oven", Why: "service", Who: "eva"}, time.Hour); err == nil {
			t.Error("there may be any number of silences")
		}
	})
}

// A silence of version 1.0 that was to last until normal would mute what begins later, too: it mutes nothing.
func TestSilenceUntilNormalOfAnOlderVersion(t *testing.T) {
	store := muting.Store{Records: &records.Memory{}, Name: "silences"}
	content := []byte(`[{"id":"1","device":"oven","from":"2026-11-01T00:00:00Z","until":"2099-01-01T00:00:00Z","why":"known","who":"eva","untilNormal":true}]`)
	if _, err := store.Records.Write(t.Context(), records.Record{Name: store.Name, Content: content}); err != nil {
		t.Fatal(err)
	}
	if mutes, err := store.Mutes(t.Context()); err != nil || len(mutes) > 0 {
		t.Errorf("it mutes %+v, %v", mutes, err)
	}
	if all, err := store.List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("listed are %+v, %v", all, err)
	}
}

// Mute times are listed while they last, as silences that nobody can end.
func TestPlanned(t *testing.T) {
	once := rules.Set{Mutes: rules.Mutes{{Property: "site", Value: "x", From: time.Date(2026, 12, 1, 22, 0, 0, 0, time.UTC), Until: time.Date(2026, 12, 2, 4, 0, 0, 0, time.UTC)}}}
	for at, want := range map[time.Time]int{
		once.Mutes[0].From.Add(-1): 0, once.Mutes[0].From: 1, once.Mutes[0].Until.Add(-1): 1, once.Mutes[0].Until: 0,
	} {
		if all := muting.Planned(&once, at); len(all) != want || want == 1 && all[0].Why != "mute from 2026-12-01 22:00 UTC to 2026-12-02 04:00 UTC" {
			t.Errorf("at %v: %+v", at, all)
		}
	}

	saturday := &rules.Times{Days: [7]bool{time.Saturday: true}, From: 22 * 60, To: 6 * 60, Zone: time.UTC}
	set := rules.Set{Mutes: rules.Mutes{
		{Times: saturday},
		{Rule: "hot", Property: "site", Value: "berlin", Times: saturday},
	}}
	begin := time.Date(2026, 11, 28, 22, 0, 0, 0, time.UTC)
	for at, want := range map[time.Duration]int{-time.Second: 0, 0: 2, 8*time.Hour - 1: 2, 8 * time.Hour: 0} {
		all := muting.Planned(&set, begin.Add(at))
		if len(all) != want {
			t.Errorf("at %v there are %v", at, all)
			continue
		}
		for i, s := range all {
			about := []string{"everything", "rule hot, site=berlin"}[i]
			lasts := s.From.Equal(begin) && s.Until.Equal(begin.Add(8*time.Hour))
			if s.ID != "" || s.String() != about || !lasts || s.Who != "the rules" {
				t.Errorf("%+v", s)
			}
		}
	}
}

func TestSilencesThatAreNone(t *testing.T) {
	for _, tt := range []struct {
		silence muting.Mute
		lasts   time.Duration
		want    string
	}{
		{muting.Mute{Why: "service"}, time.Hour, "say what to silence"},
		{muting.Mute{Device: "oven"}, time.Hour, "say why"},
		{muting.Mute{Device: "oven", Why: "service"}, time.Hour, "say who"},
		{muting.Mute{Device: "oven", Why: "service"}, 0, "a silence lasts"},
		{muting.Mute{Device: "oven", Why: "service"}, 31 * 24 * time.Hour, "a silence lasts"},
		{muting.Mute{Property: "site", Why: "service"}, time.Hour, "NAME=VALUE"},
		{muting.Mute{Device: "oven", Why: "ser\x1bvice"}, time.Hour, "printable"},
		{muting.Mute{Device: strings.Repeat("x", 201), Why: "service"}, time.Hour, "printable"},
	} {
		if err := tt.silence.Check(tt.lasts); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v for %v: %v, want %q", tt.silence, tt.lasts, err, tt.want)
		}
	}
}

// A record that holds something else mutes nothing, and is not replaced.
func TestUnreadable(t *testing.T) {
	store := muting.Store{Records: &records.Memory{}, Name: "silences"}
	if _, err := store.Records.Write(t.Context(), records.Record{Name: "silences", Content: []byte("?")}); err != nil {
		t.Fatal(err)
	}
	cache := muting.NewCache(store, zap.NewNop())
	if err := cache.Refresh(t.Context()); err == nil || cache.Mutes() != nil {
		t.Errorf("%v, %v", err, cache.Mutes())
	}
	if _, err := store.Add(t.Context(), muting.Mute{Device: "oven", Why: "service"}, time.Hour); err == nil {
		t.Error("it was replaced")
	}
}

// Whatever becomes of the answers, a silence is there once, and can be ended.
func TestLostAnswersBesideAnotherWriter(t *testing.T) {
	var memory records.Memory
	plain := muting.Store{Records: &memory, Name: "n"}
	lost := false // the next answer to a write is, and somebody else writes
	lossy := records.Around(&memory, func(ctx context.Context, op records.Op, _ string, call func(context.Context) error) error {
		err := call(ctx)
		if op != records.OpWrite || !lost {
			return err
		}
		lost = false
		if _, err := plain.Add(ctx, muting.Mute{Device: "kiln", Why: "w", Who: "b"}, time.Hour); err != nil {
			t.Error(err)
		}
		return errors.New("connection reset")
	})
	s := muting.Store{Records: records.Reliable(lossy), Name: "n"}
	lost = true
	one, err := s.Add(t.Context(), muting.Mute{Device: "oven", Why: "w", Who: "a"}, time.Hour)
	if err != nil || lost {
		t.Fatal(err)
	}
	if all, err := s.List(t.Context()); err != nil || len(all) != 2 || all[0] != one {
		t.Errorf("%+v, %v, want %+v", all, err, one)
	}
	lost = true
	ended, err := s.End(t.Context(), one.ID, "a")
	if err != nil || ended.ID != one.ID {
		t.Errorf("%+v, %v", ended, err)
	}
	all, err := s.List(t.Context())
	if err != nil || slices.ContainsFunc(all, func(s muting.Mute) bool { return s.ID == one.ID }) {
		t.Errorf("the silence %s was ended, and is still in force: %+v, %v", one.ID, all, err)
	}
	if again, err := s.End(t.Context(), one.ID, "b"); err != nil || again != ended {
		t.Errorf("ending it again: %+v, %v, want %+v", again, err, ended)
	}
	if _, err := s.End(t.Context(), "another", "a"); !errors.Is(err, muting.ErrUnknown) {
		t.Error(err)
	}
}

// A planned silence mutes what is taken from its beginning on, is logged when it begins, and may be ended before.
func TestPlannedSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zap.InfoLevel)
		store := muting.Store{Records: &records.Memory{}, Name: "silences"}
		cache := muting.NewCache(store, zap.New(core))
		berlin, err := time.LoadLocation("Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		add := func(from string) (muting.Mute, error) {
			s, lasts, err := muting.Request{Device: "oven", From: from, For: "6h", Why: "pipes", Who: "eva"}.Mute(rules.Set{}, berlin)
			if err != nil {
				return s, err
			}
			return cache.Add(t.Context(), s, lasts)
		}
		for from, want := range map[string]string{
			"tomorrow": "from must be a time such as 2026-12-01 22:00", "1999-12-31 22:00": "a silence begins now or within 90 days", "2001-01-01T00:00:00Z": "within 90 days",
		} {
			if _, err := add(from); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("from %s: %v", from, err)
			}
		}
		one, err := add("2000-01-01 22:00") // it is midnight by UTC, 01:00 in Berlin
		if begin := time.Date(2000, 1, 1, 21, 0, 0, 0, time.UTC); err != nil || !one.From.Equal(begin) || !one.Until.Equal(begin.Add(6*time.Hour)) {
			t.Fatalf("%+v, %v", one, err)
		}
		if got := one.Text(berlin); got != "from 2000-01-01 22:00:00 CET until 2000-01-02 04:00:00 CET" {
			t.Errorf("it mutes %s", got)
		}
		mutes := func(want bool) {
			t.Helper()
			about := rules.Subject{Device: "oven", Rule: "hot", Enqueued: time.Now()}
			if got := cache.Mutes().Match(&about); got != want {
				t.Errorf("at %v it mutes: %v", time.Now().UTC(), got)
			}
		}
		refresh := func(want ...string) {
			t.Helper()
			if err := cache.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range logged.TakeAll() {
				got = append(got, e.Message)
			}
			if !slices.Equal(got, want) {
				t.Errorf("at %v it logs %q, want %q", time.Now().UTC(), got, want)
			}
		}
		refresh()
		mutes(false)
		time.Sleep(21*time.Hour + time.Second)
		refresh("alerts are silenced")
		mutes(true)
		time.Sleep(6 * time.Hour)
		refresh("a silence has ended")
		mutes(false)

		two, err := add("2000-01-03 08:00")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cache.End(t.Context(), two.ID, "ann"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(48 * time.Hour)
		refresh()
		mutes(false)
	})
}
