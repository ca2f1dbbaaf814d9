package devices_test

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lab/devhub/devices"
)

// replay runs a file of the given text.
func replay(t *testing.T, text string, speed float64) (all []sent, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "boiler.csv")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var r *devices.Replay
		if r, err = devices.OpenReplay(file, speed); err != nil {
			return
		}
		defer r.Close()
		start := time.Now()
		err = r.Run(t.Context(), func(_ context.Context, m devices.Message) error {
			all = append(all, sent{m, time.Since(start)})
			return nil
		})
	})
	return all, err
}

func TestReplay(t *testing.T) {
	type reading struct {
		device string
		value  float64
		at     time.Duration
	}
	tests := []struct {
		name, text string
		speed      float64
		want       []reading
	}{
		{
			name:  "one device, called like the file",
			text:  "timestamp,value\n2013-12-02 21:15:00,73.5\n2013-12-02 21:20:00,74\n",
			speed: 60,
			want:  []reading{{"boiler", 73.5, 0}, {"boiler", 74, 5 * time.Second}},
		},
		{
			name:  "several devices, other columns, another order, quotes, CRLF, BOM",
			text:  "\ufeffvalue,Device,site,\"timestamp\"\r\n1, \"a,b\",x,2026-03-01T12:00:00Z\r\n-2e3,B#,y,2026-03-01T14:00:01.5+02:00\r\n",
			speed: 1,
			want:  []reading{{"a,b", 1, 0}, {"B#", -2000, 1500 * time.Millisecond}},
		},
		{
			name:  "duplicates and disorder keep their order and do not wait",
			text:  "timestamp,value\n2026-01-01 00:00:10,1\n2026-01-01 00:00:12,2\n2026-01-01 00:00:12,3\n2026-01-01 00:00:09,4\n2026-01-01 00:00:11,5\n2026-01-01 00:00:13,6",
			speed: 1,
			want: []reading{
				{"boiler", 1, 0}, {"boiler", 2, 2 * time.Second}, {"boiler", 3, 2 * time.Second},
				{"boiler", 4, 2 * time.Second}, {"boiler", 5, 2 * time.Second}, {"boiler", 6, 3 * time.Second},
			},
		},
		{
			name:  "as fast as possible",
			text:  "timestamp,value\n2026-01-01 00:00:00,1\n2027-01-01 00:00:00,2\n",
			speed: 0,
			want:  []reading{{"boiler", 1, 0}, {"boiler", 2, 0}},
		},
		{name: "no rows", text: "timestamp,value\n", speed: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			all, err := replay(t, tt.text, tt.speed)
			if err != nil {
				t.Fatal(err)
			}
			var got []reading
			for _, m := range all {
				if v, err := decode(m.Body); err != nil || v != m.Temperature || !m.IsTelemetry || m.MessageSource != "Telemetry" {
					t.Errorf("body %q of %+v says %v, %v", m.Body, m, v, err)
				}
				got = append(got, reading{m.Device, m.Temperature, m.at})
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("\n got %v\nwant %v", got, tt.want)
			}
		})
	}
}

// TestReplayIsLong reads far more than a row may be long.
func TestReplayIsLong(t *testing.T) {
	const n = 20_000
	all, err := replay(t, "timestamp,value\n"+strings.Repeat("2026-01-01 00:00:00,41.5\n", n), 0)
	if err != nil || len(all) != n {
		t.Errorf("%d readings, %v, want %d", len(all), err, n)
	}
}

func TestReplayErrorsNameTheLine(t *testing.T) {
	const good = "timestamp,device,value\n2026-01-01 00:00:00,a,1\n"
	tests := []struct{ name, text, want string }{
		{"empty file", "", "boiler.csv:1: the first line must name the columns"},
		{"no header", "2026-01-01 00:00:00,1\n", "boiler.csv:1: the first line must name the columns"},
		{"broken header", "\"timestamp,value\n", "boiler.csv:"},
		{"endless header", strings.Repeat("x", 1<<20), "boiler.csv:1: row longer than"},
		{"timestamp", good + "yesterday,a,1\n", `boiler.csv:3: timestamp "yesterday"`},
		{"value", good + "2026-01-01 00:00:00,a,warm\n", `boiler.csv:3: value "warm"`},
		{"NaN", good + "2026-01-01 00:00:00,a,NaN\n", `boiler.csv:3: value "NaN"`},
		{"infinite", good + "2026-01-01 00:00:00,a,+Inf\n", `boiler.csv:3: value "+Inf"`},
		{"no device", good + "2026-01-01 00:00:00,,1\n", `boiler.csv:3: device ""`},
		{"not UTF-8", good + "2026-01-01 00:00:00,a\xff,1\n", `boiler.csv:3: device "a\xff"`},
		{"columns", good + "\n2026-01-01 00:00:00,1\n", "boiler.csv:4: wrong number of fields"},
		{"quote", good + "2026-01-01 00:00:00,a\"b,1\n", "boiler.csv:3: "},
		{"endless quote", good + "2026-01-01 00:00:00,\"" + strings.Repeat("a\n", 1<<20), "boiler.csv:3: row longer than"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			all, err := replay(t, tt.text, 1)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
			if rows := strings.HasPrefix(tt.text, good); rows && len(all) != 1 {
				t.Errorf("%d readings before the bad line, want 1", len(all))
			}
		})
	}
	if _, err := devices.OpenReplay(filepath.Join(t.TempDir(), "none.csv"), 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("OpenReplay of no file = %v", err)
	}
}

func TestReplayStops(t *testing.T) {
	file := filepath.Join(t.TempDir(), "boiler.csv")
	os.WriteFile(file, []byte("timestamp,value\n0001-01-01 00:00:00,1\n9999-01-01 00:00:00,2\n"), 0o600)
	for _, speed := range []float64{1, math.SmallestNonzeroFloat64} {
		synctest.Test(t, func(t *testing.T) {
			r, err := devices.OpenReplay(file, speed)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			n := 0
			err = r.Run(ctx, func(context.Context, devices.Message) error { n++; return nil })
			if err != nil || n != 1 || ctx.Err() == nil {
				t.Errorf("Run = %v after %d readings, context %v, want nil after 1, by the context", err, n, ctx.Err())
			}
		})
	}
}

func TestReplayReturnsPublishError(t *testing.T) {
	r, err := devices.NewReplay("boiler.csv", io.NopCloser(strings.NewReader("timestamp,value\n2026-01-01 00:00:00,1\n")), 0)
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("full")
	err = r.Run(t.Context(), func(context.Context, devices.Message) error { return full })
	if !errors.Is(err, full) || !strings.Contains(err.Error(), "boiler.csv:2") {
		t.Errorf("Run = %v, want %v with the line", err, full)
	}
}

func TestParseSpeed(t *testing.T) {
	for text, want := range map[string]float64{"1": 1, "0.5": 0.5, "3600": 3600, "max": 0, "0": 0, "-1": -1} {
		if got, err := devices.ParseSpeed(text); err != nil || got != want {
			t.Errorf("ParseSpeed(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "fast", "NaN", "inf", "1x"} {
		if got, err := devices.ParseSpeed(text); err == nil {
			t.Errorf("ParseSpeed(%q) = %v, want an error", text, got)
		}
	}
}

func FuzzReplay(f *testing.F) {
	f.Add("timestamp,value\n2013-12-02 21:15:00,73.96732207\n")
	f.Add("timestamp,device,value\r\n2026-03-01T12:00:00Z,\"line#3/oven%1\",1e3\r\n")
	f.Add("value,timestamp\n0x1p-2,0000-01-01 00:00:00\n1,9999-12-31T23:59:59.9+14:00\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := devices.NewReplay("boiler.csv", io.NopCloser(strings.NewReader(text)), 0)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "boiler.csv:") {
				t.Errorf("error %q names no line", err)
			}
			return
		}
		n := 0
		err = r.Run(t.Context(), func(_ context.Context, m devices.Message) error {
			n++
			if v, err := decode(m.Body); err != nil || v != m.Temperature || m.Device == "" {
				t.Errorf("body %q of %+v says %v, %v", m.Body, m, v, err)
			}
			return nil
		})
		if err != nil && !strings.HasPrefix(err.Error(), "boiler.csv:") {
			t.Errorf("error %q names no line", err)
		}
		if lines := strings.Count(text, "\n"); n > lines {
			t.Errorf("%d readings in %d lines and a header", n, lines)
		}
	})
}
