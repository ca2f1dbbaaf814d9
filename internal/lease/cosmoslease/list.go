package cosmoslease

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"alertworker/internal/azure"
	"alertworker/internal/lease"
)

// List implements lease.Lister. It reads the whole container, whatever the prefix, for nothing
// in it is indexed, 100 records a call.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[lease.Entry, error] {
	return s.items.list(ctx, prefix)
}

// pageSize is in items. A page has to come as soon as the answer to any other call, and must
// not use up the throughput that the gates need.
const pageSize = 100

func (i items) list(ctx context.Context, prefix string) iter.Seq2[lease.Entry, error] {
	return func(yield func(lease.Entry, error) bool) {
		var next *string // where the next page begins
		for more := true; more; more = next != nil {
			page, err := i.page(ctx, next)
			if err != nil {
				yield(lease.Entry{}, fmt.Errorf("list the items of container %q: %w", i.container.ID(), err))
				return
			}
			now, err := azure.Date(page.RawResponse)
			if err != nil {
				yield(lease.Entry{}, fmt.Errorf("list the items of container %q: %w", i.container.ID(), err))
				return
			}
			for _, body := range page.Items {
				e, ok := entry(body)
				e.Record.Now = now
				if ok && strings.HasPrefix(e.Key, prefix) && !yield(e, nil) {
					return
				}
			}
			next = page.ContinuationToken
		}
	}
}

// page returns the items from next on. A pager that has failed once is of no more use.
func (i items) page(ctx context.Context, next *string) (azcosmos.QueryItemsResponse, error) {
	for try := 0; ; try++ {
		pager := i.container.NewQueryItemsPager("SELECT * FROM c", azcosmos.NewPartitionKey(), &azcosmos.QueryOptions{
			PageSizeHint:      pageSize,
			ContinuationToken: next,
		})
		page, err := pager.NextPage(ctx)
		err = explain(err)
		if err == nil || !azure.Again(ctx, try, err) {
			return page, err
		}
	}
}

// entry returns the key and the record in an item, but for Now; false if it is no record.
func entry(body []byte) (e lease.Entry, ok bool) {
	r, err := decode(body)
	if err != nil {
		return e, false
	}
	e.Record = r.Record
	var d document
	if json.Unmarshal(body, &d) != nil {
		return e, false
	}
	if e.Key, ok = azure.Key(d.ID); ok {
		return e, true
	}
	return lease.Entry{Key: d.Key, Record: e.Record}, azure.Name(d.Key) == d.ID
}
