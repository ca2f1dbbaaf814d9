package rules

import (
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// scraped are the labels that Prometheus adds.
var scraped = map[string]string{"job": "alertworker", "instance": "a:8080"}

func matches(m model.Metric, by []*labels.Matcher) bool {
	return !slices.ContainsFunc(by, func(l *labels.Matcher) bool {
		if v, ok := scraped[l.Name]; ok {
			return !l.Matches(v)
		}
		return !l.Matches(string(m[model.LabelName(l.Name)]))
	})
}

// A history is what Prometheus kept of some scrapes, but for buckets, which no
// alert asks about: a storage.Queryable.
type history map[model.Fingerprint]*kept

type kept struct {
	metric  model.Metric
	samples []chunks.Sample
}

func (h history) scrape(found model.Vector, now model.Time) {
	for _, s := range found {
		if strings.HasSuffix(string(s.Metric[model.MetricNameLabel]), "_bucket") {
			continue
		}
		id := s.Metric.Fingerprint()
		if h[id] == nil {
			h[id] = &kept{metric: s.Metric}
		}
		h[id].samples = append(h[id].samples, sample{int64(now), float64(s.Value)})
	}
}

func (h history) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, by ...*labels.Matcher) storage.SeriesSet {
		set := &seriesSet{}
		for _, k := range h {
			if matches(k.metric, by) {
				with := maps.Clone(scraped)
				for name, value := range k.metric {
					with[string(name)] = string(value)
				}
				set.rest = append(set.rest, storage.NewListSeries(labels.FromMap(with), k.samples))
			}
		}
		return set
	}}, nil
}

type seriesSet struct {
	at   storage.Series
	rest []storage.Series
}

func (s *seriesSet) Next() bool {
	if len(s.rest) == 0 {
		return false
	}
	s.at, s.rest = s.rest[0], s.rest[1:]
	return true
}
func (s *seriesSet) At() storage.Series                { return s.at }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// A sample is a chunks.Sample.
type sample struct {
	t int64
	f float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) F() float64                    { return s.f }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
