package worker_test

import (
	"encoding/csv"
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	partitions "alertworker/internal/partition"
	"alertworker/internal/rules"
)

// machineTemperature is one industrial machine of the Numenta Anomaly
// Benchmark, 22,695 readings in °F, 5 minutes apart.
const machineTemperature = "../../../shared/data/nab/machine_temperature_system_failure.csv"

type sample struct {
	at    time.Time
	value float64
}

func readSamples(t *testing.T) []sample {
	t.Helper()
	f, err := os.Open(machineTemperature)
	if os.IsNotExist(err) {
		t.Skip("the NAB data set is not here: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var samples []sample
	for _, row := range rows[1:] {
		at, err := time.Parse(time.DateTime, row[0])
		if err != nil {
			t.Fatal(err)
		}
		value, err := strconv.ParseFloat(row[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		samples = append(samples, sample{at, value})
	}
	return samples
}

// reference is what the worker promises for one device, in ten lines.
func reference(samples []sample, threshold float64, window time.Duration) (alerts []int64) {
	var last time.Time
	for i, s := range samples {
		if s.value >= threshold && s.at.Sub(last) >= window {
			alerts = append(alerts, int64(i+1))
			last = s.at
		}
	}
	return alerts
}

func TestRealReadingsGiveTheAlertsOfTheReference(t *testing.T) {
	t.Parallel()
	samples := readSamples(t)
	for _, tt := range []struct {
		threshold float64
		window    time.Duration
	}{{100, time.Minute}, {95, 30 * time.Minute}, {85, 7 * time.Hour}} {
		synctest.Test(t, func(t *testing.T) {
			p, r := newPartition("0"), &receiver{}
			s := newSetup(t, r)
			s.config.Rulebook.Rules = rules.Threshold("temperature", tt.threshold, tt.window)
			s.start(p)
			epoch := time.Now()
			for _, sample := range samples {
				// Rows with the time of the one before, or an earlier one, follow at once.
				time.Sleep(time.Until(epoch.Add(sample.at.Sub(samples[0].at))))
				p.publish("machine", sample.value)
				synctest.Wait()
			}
			pass(interval)
			if p.settled != int64(len(samples)) {
				t.Errorf("everything is settled up to %d of %d", p.settled, len(samples))
			}
			s.end()
			var got, backtested []int64
			for _, a := range r.alerts("") {
				got = append(got, a.Sequence)
			}
			b, err := partitions.NewBacktest(s.config.Rulebook.Rules, s.config.Rulebook.Receivers, partitions.Observer{
				Notice: func(n partitions.BacktestNotice) { backtested = append(backtested, n.Sequence) },
			})
			if err != nil {
				t.Fatal(err)
			}
			b.Take("0", p.log)
			b.Finish()
			if !slices.Equal(got, backtested) {
				t.Errorf("at %v, every %v: %d alerts, the backtest says %d", tt.threshold, tt.window, len(got), len(backtested))
			}
			want := reference(samples, tt.threshold, tt.window)
			if !slices.Equal(got, want) {
				t.Errorf("at %v, every %v: %d alerts, the reference gives %d", tt.threshold, tt.window, len(got), len(want))
			}
			t.Logf("at %v, every %v: %d readings, %d alerts", tt.threshold, tt.window, len(samples), len(got))
		})
	}
}
