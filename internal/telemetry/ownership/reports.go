package ownership

import (
	"context"
	"strings"
	"sync"
	"time"

	"alertworker/internal/records"
)

const (
	postEvery = 10 * time.Second
	maxReport = 64 << 10 // bytes
)

// Reports is a store whose heartbeats carry reports: what a replica tells the others about itself. It
// costs no writes besides theirs.
type Reports struct {
	records.Store
	report func() []byte
	expiry time.Duration

	mu     sync.Mutex
	prefix string // of the names of heartbeats; empty before the first
	mine   string // the name of this replica's
	posted time.Time
}

// NewReports returns next with report's result, at most 64 KiB of JSON, in the heartbeats that are written through it. A
// report that is older than expiry is of a replica that is gone.
func NewReports(next records.Store, report func() []byte, expiry time.Duration) *Reports {
	return &Reports{Store: next, report: report, expiry: expiry}
}

// Write is that of the store; it adds the report to a heartbeat.
func (rs *Reports) Write(ctx context.Context, r records.Record) (string, error) {
	i := strings.LastIndex(r.Name, heartbeats)
	if i < 0 {
		return rs.Store.Write(ctx, r)
	}
	now := time.Now()
	rs.mu.Lock()
	rs.prefix, rs.mine = r.Name[:i+len(heartbeats)], r.Name
	due := now.Sub(rs.posted) >= postEvery
	rs.mu.Unlock()
	if due {
		if content := rs.report(); len(content) <= maxReport {
			r.Content, r.Type = content, "application/json"
		}
	}
	etag, err := rs.Store.Write(ctx, r)
	if err == nil && due {
		rs.mu.Lock()
		rs.posted = now
		rs.mu.Unlock()
	}
	return etag, err
}

// Others returns the reports of the other replicas that are alive.
func (rs *Reports) Others(ctx context.Context) (reports [][]byte, err error) {
	rs.mu.Lock()
	prefix, mine := rs.prefix, rs.mine
	rs.mu.Unlock()
	if prefix == "" {
		return nil, nil
	}
	all, err := records.All(ctx, rs.Store, prefix)
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if r.Name == mine || r.Age() >= rs.expiry {
			continue
		}
		r, err := rs.Store.Read(ctx, r.Name, maxReport)
		if err != nil && err != records.ErrNotFound {
			return nil, err
		}
		if len(r.Content) > 0 {
			reports = append(reports, r.Content)
		}
	}
	return reports, nil
}
