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

// A Board is a store whose heartbeats carry reports: what a replica tells the others about itself. It
// costs no writes besides theirs.
type Board struct {
	records.Store
	report func() []byte
	expiry time.Duration

	mu     sync.Mutex
	prefix string // of the names of heartbeats; empty before the first
	mine   string // the name of this replica's
	posted time.Time
}

// NewBoard returns next with report's result, at most 64 KiB of JSON, in the heartbeats that are written through it. A
// report that is older than expiry is of a replica that is gone.
func NewBoard(next records.Store, report func() []byte, expiry time.Duration) *Board {
	return &Board{Store: next, report: report, expiry: expiry}
}

// Write is that of the store; it adds the report to a heartbeat.
func (b *Board) Write(ctx context.Context, r records.Record) (string, error) {
	i := strings.LastIndex(r.Name, heartbeats)
	if i < 0 {
		return b.Store.Write(ctx, r)
	}
	now := time.Now()
	b.mu.Lock()
	b.prefix, b.mine = r.Name[:i+len(heartbeats)], r.Name
	due := now.Sub(b.posted) >= postEvery
	b.mu.Unlock()
	if due {
		if content := b.report(); len(content) <= maxReport {
			r.Content, r.Type = content, "application/json"
		}
	}
	etag, err := b.Store.Write(ctx, r)
	if err == nil && due {
		b.mu.Lock()
		b.posted = now
		b.mu.Unlock()
	}
	return etag, err
}

// Others returns the reports of the other replicas that are alive.
func (b *Board) Others(ctx context.Context) (reports [][]byte, err error) {
	b.mu.Lock()
	prefix, mine := b.prefix, b.mine
	b.mu.Unlock()
	if prefix == "" {
		return nil, nil
	}
	all, err := records.All(ctx, b.Store, prefix)
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if r.Name == mine || r.Age() >= b.expiry {
			continue
		}
		r, err := b.Store.Read(ctx, r.Name, maxReport)
		if err != nil && err != records.ErrNotFound {
			return nil, err
		}
		if len(r.Content) > 0 {
			reports = append(reports, r.Content)
		}
	}
	return reports, nil
}
