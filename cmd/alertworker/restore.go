package main

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"alertworker/internal/azure"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/telemetry/ownership"
)

// restorable returns c as a container that is created again when it is missing.
func restorable(c *container.Client, name string) *azure.Container {
	return azure.NewContainer(name, azure.ContainerMissing, func(ctx context.Context) error {
		_, err := c.Create(ctx, nil)
		if bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
			return nil
		}
		return err
	})
}

// restoredRecords are records in a container that is created again when somebody
// deletes it. A partition that is read writes its checkpoint anew.
type restoredRecords struct {
	in      *azure.Container
	records eventhubs.Records
}

func (r restoredRecords) List(ctx context.Context, prefix string) (all map[string]eventhubs.Record, err error) {
	err = r.in.Do(ctx, func() (err error) {
		all, err = r.records.List(ctx, prefix)
		return err
	})
	return all, err
}

func (r restoredRecords) Read(ctx context.Context, name string) (record eventhubs.Record, err error) {
	err = r.in.Do(ctx, func() (err error) {
		record, err = r.records.Read(ctx, name)
		return err
	})
	return record, err
}

func (r restoredRecords) Write(ctx context.Context, name string, values map[string]string, etag string) (written string, err error) {
	err = r.in.Do(ctx, func() (err error) {
		written, err = r.records.Write(ctx, name, values, etag)
		return err
	})
	return written, err
}

// restoredOwnership is an [ownership.Store] in a container that is created again
// when somebody deletes it.
type restoredOwnership struct {
	in    *azure.Container
	store ownership.Store
}

func (r restoredOwnership) List(ctx context.Context, scope string) (all ownership.Records, err error) {
	err = r.in.Do(ctx, func() (err error) {
		all, err = r.store.List(ctx, scope)
		return err
	})
	return all, err
}

func (r restoredOwnership) Claim(ctx context.Context, scope, partition, owner, version string) (ok bool, err error) {
	err = r.in.Do(ctx, func() (err error) {
		ok, err = r.store.Claim(ctx, scope, partition, owner, version)
		return err
	})
	return ok, err
}

func (r restoredOwnership) Beat(ctx context.Context, scope, owner string, leaving bool) error {
	return r.in.Do(ctx, func() error { return r.store.Beat(ctx, scope, owner, leaving) })
}

func (r restoredOwnership) Forget(ctx context.Context, scope, owner, version string) error {
	return r.in.Do(ctx, func() error { return r.store.Forget(ctx, scope, owner, version) })
}
