package cosmoslease

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"alertworker/internal/azure"
	"alertworker/internal/lease"
	"alertworker/internal/lease/caslease"
)

// items are the caslease.Records of one container. Their errors are explained
// and wrap what azure.ShouldRetry looks for.
type items struct {
	container *azcosmos.ContainerClient
	home      *azure.Container
	// retention is how long after the end of its hold the service deletes an item: longer than an
	// event that could ask for it may come late. Nothing depends on its being soon, or at all.
	retention time.Duration
}

// Read implements caslease.Records. The record may be an old one: replicas lag
// behind.
func (i items) Read(ctx context.Context, key string) (r caslease.Record, err error) {
	err = i.home.Do(ctx, func() (err error) {
		r, err = i.read(ctx, key, nil)
		return err
	})
	return r, err
}

// Latest is Read of a record that is not older than the call. A write that must fail is answered, like every write,
// by the replica that knows of all writes: with its session token, as SDKs that manage sessions use those of 404, 409
// and 412. A read with that token is not older. (A token of the read before would prove nothing, and an account whose
// consistency is weaker than Session heeds none.)
func (i items) Latest(ctx context.Context, key string) (r caslease.Record, err error) {
	name := azure.Name(key)
	never := azcore.ETag(`"00000000-0000-0000-0000-000000000000"`)
	err = i.home.Do(ctx, func() error {
		_, err := i.container.ReplaceItem(
			ctx,
			azcosmos.NewPartitionKeyString(name),
			name,
			fmt.Appendf(nil, `{"id":%q}`, name),
			&azcosmos.ItemOptions{IfMatchEtag: &never},
		)
		err = explain(err)
		answer := azure.Answer(err)
		if answer.StatusCode != http.StatusPreconditionFailed && answer.StatusCode != http.StatusNotFound {
			return fmt.Errorf("ask for the last write of item %q: %w", name, err)
		}

		var session *string
		if token := answer.RawResponse.Header.Get("X-Ms-Session-Token"); token != "" { // else the service has none
			session = &token
		}

		r, err = i.read(ctx, key, session)
		return err
	})
	return r, err
}

// read reads a record, of session or later.
func (i items) read(ctx context.Context, key string, session *string) (caslease.Record, error) {
	name := azure.Name(key)
	resp, err := i.container.ReadItem(
		ctx,
		azcosmos.NewPartitionKeyString(name),
		name,
		&azcosmos.ItemOptions{SessionToken: session},
	)
	if err != nil {
		err = explain(err)
		answer := azure.Answer(err)
		if answer.StatusCode == http.StatusNotFound && answer.RawResponse.Header.Get(subStatus) != readSessionNotAvailable {
			now, err := azure.Date(answer.RawResponse)
			return caslease.Record{Record: lease.Record{Now: now}}, err
		}

		return caslease.Record{}, fmt.Errorf("read item %q: %w", name, err)
	}

	now, err := azure.Date(resp.RawResponse)
	if err != nil {
		return caslease.Record{}, fmt.Errorf("read item %q: %w", name, err)
	}
	if resp.ETag == "" {
		return caslease.Record{}, fmt.Errorf("read item %q: the answer lacks an ETag", name)
	}

	r, err := decode(resp.Value)
	if err != nil {
		return caslease.Record{}, lease.NewWrong(fmt.Sprintf("read item %q: %v: delete the item", name, err))
	}

	r.Now = now
	r.Exists = true
	r.Version = string(resp.ETag)

	return r, nil
}

// Write implements caslease.Records. A version is an ETag.
func (i items) Write(ctx context.Context, key string, prev, r caslease.Record) (version string, err error) {
	name := azure.Name(key)
	partition := azcosmos.NewPartitionKeyString(name)
	body, _ := json.Marshal(document{ // strings, finite numbers and a time: cannot fail
		ID:          name,
		Document:    r.Document(key),
		LeasedUntil: time.Now().Add(r.Hold).UTC().Format(time.RFC3339),
		TTL:         int32(min(int64((r.Hold+i.retention)/time.Second), math.MaxInt32)),
	})
	err = i.home.Do(ctx, func() (err error) {
		var resp azcosmos.ItemResponse
		if prev.Exists {
			match := azcore.ETag(prev.Version)
			resp, err = i.container.ReplaceItem(ctx, partition, name, body, &azcosmos.ItemOptions{IfMatchEtag: &match})
		} else {
			resp, err = i.container.CreateItem(ctx, partition, body, nil)
		}

		if err != nil {
			return fmt.Errorf("write item %q: %w", name, explain(err))
		}
		if resp.ETag == "" {
			return fmt.Errorf("write item %q: the answer lacks an ETag", name)
		}

		version = string(resp.ETag)
		return nil
	})

	return version, err
}

// A document is an item.
type document struct {
	ID string `json:"id"`
	caslease.Document
	LeasedUntil string `json:"leasedUntil"`   // RFC 3339, by the writer's clock: for people, nothing decides on it
	TTL         int32  `json:"ttl"`           // in seconds, from the write: the service then deletes the item
	Written     int64  `json:"_ts,omitempty"` // in Unix seconds, set by the service
}

func decode(body []byte) (caslease.Record, error) {
	var d document
	if err := json.Unmarshal(body, &d); err != nil {
		return caslease.Record{}, fmt.Errorf("it is not a lease: %w", err)
	}
	if d.Written <= 0 {
		return caslease.Record{}, fmt.Errorf("it is not a lease: _ts is not a time: %v", d.Written)
	}

	return d.Record(time.Unix(d.Written, 0).UTC())
}
