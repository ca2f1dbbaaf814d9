// Package rules evaluates the alert rules in deploy/prometheus with Prometheus' own engine.
package rules

import (
	"context"
	"errors"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
)

// Read returns the alert rules in a file.
func Read(file string) ([]rulefmt.Rule, error) {
	groups, errs := rulefmt.ParseFile(file, false, model.LegacyValidation)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	var all []rulefmt.Rule
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	return all, nil
}

// firing evaluates r every minute, and returns for each series for which it held for long enough when it did first.
func (h history) firing(ctx context.Context, r rulefmt.Rule, start, end time.Time) ([]promql.Sample, error) {
	const step = time.Minute
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})
	defer engine.Close()
	q, err := engine.NewRangeQuery(ctx, h, nil, r.Expr, start.Add(step), end, step)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	matrix, err := q.Exec(ctx).Matrix()
	if err != nil {
		return nil, err
	}
	var fired []promql.Sample
	for _, series := range matrix {
		since := int64(-1)
		for i, p := range series.Floats {
			if i == 0 || p.T-series.Floats[i-1].T > step.Milliseconds() {
				since = p.T
			}
			if time.Duration(p.T-since)*time.Millisecond >= time.Duration(r.For) {
				fired = append(fired, promql.Sample{Metric: series.Metric, T: p.T, F: p.F})
				break
			}
		}
	}
	return fired, nil
}

const (
	scrapeInterval = 15 * time.Second
	goesOn         = 20 * time.Minute
)

// Fire returns the names of those of rules that fire within twenty minutes if it goes on as some answers of /metrics,
// one after the other, show: gauges as in these, again and again, and counters that grow by as much each time.
// Before, they stood still.
func Fire(ctx context.Context, all []rulefmt.Rule, scrapes []string) (names []string, err error) {
	var vectors []model.Vector
	counters := map[model.Fingerprint]bool{}
	for _, text := range scrapes {
		v, err := parse(text, counters)
		if err != nil {
			return nil, err
		}
		vectors = append(vectors, v)
	}
	if len(vectors) == 0 {
		return nil, errors.New("nothing was scraped")
	}
	grows := map[model.Fingerprint]model.SampleValue{} // in all scrapes
	for _, s := range vectors[len(vectors)-1] {
		grows[s.Metric.Fingerprint()] += s.Value
	}
	for _, s := range vectors[0] {
		grows[s.Metric.Fingerprint()] -= s.Value
	}
	h := history{}
	start := time.Now()
	for at := start.Add(-goesOn); at.Before(start); at = at.Add(scrapeInterval) { // counters stood still before
		var then model.Vector
		for _, s := range vectors[0] {
			if counters[s.Metric.Fingerprint()] {
				then = append(then, s)
			}
		}
		h.scrape(then, model.TimeFromUnixNano(at.UnixNano()))
	}
	end := start
	for n := 0; end.Sub(start) < goesOn; n++ {
		end = start.Add(time.Duration(n) * scrapeInterval)
		var now model.Vector
		for _, s := range vectors[n%len(vectors)] {
			value := s.Value
			if id := s.Metric.Fingerprint(); counters[id] {
				value += grows[id] * model.SampleValue(n/len(vectors))
			}
			now = append(now, &model.Sample{Metric: s.Metric, Value: value})
		}
		h.scrape(now, model.TimeFromUnixNano(end.UnixNano()))
	}
	for _, r := range all {
		fired, err := h.firing(ctx, r, start, end)
		if err != nil {
			return nil, err
		}
		if len(fired) > 0 {
			names = append(names, r.Alert)
		}
	}
	return names, nil
}

// parse returns the samples in an answer of /metrics, and adds to counters which of them are.
func parse(text string, counters map[model.Fingerprint]bool) (all model.Vector, err error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	for _, f := range families {
		samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{}, f)
		if err != nil {
			return nil, err
		}
		for _, s := range samples {
			if f.GetType() != dto.MetricType_GAUGE {
				counters[s.Metric.Fingerprint()] = true
			}
		}
		all = append(all, samples...)
	}
	return all, nil
}
