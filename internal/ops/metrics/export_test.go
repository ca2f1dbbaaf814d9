package metrics

import dto "github.com/prometheus/client_model/go"

// Gather is what Handler serves, not yet written down.
func (m *Metrics) Gather() ([]*dto.MetricFamily, error) { return m.registry.Gather() }
