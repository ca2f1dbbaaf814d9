// Package cosmoslease is a lease.Store on Azure Cosmos DB for NoSQL: an item for
// every key, changed by compare-and-swap on the item's ETag. It takes any ttl.
// A refused Acquire costs one call, a granted one two, an Extend or Release one.
//
// The service's clock counts in seconds, and its machines' clocks may be a second
// apart. A key frees when the clock is 2 s past the ttl: 1 to 3 s late, and never early.
//
// Every write is guarded by the ETag. Below strong and bounded staleness a read may be old: it costs Acquire a write
// that fails and another read, and it may show somebody who only looks an older record. Before anybody declines to take
// a key because of what a record says, it is read again with the session token of the last write, which costs two
// calls; so the account's default consistency must be Session or stronger.
//
// The account must have a single write region: with several the last writer wins
// silently.
package cosmoslease

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"alertworker/internal/azure"
	"alertworker/internal/lease"
	"alertworker/internal/lease/caslease"
)

// An Account is a Cosmos DB account and the credentials for it. Use WithKey or
// WithCredential.
type Account struct {
	Endpoint string // its address
	client   func(*azcosmos.ClientOptions) (*azcosmos.Client, error)
}

// address is what the address of an account looks like: a name and perhaps a port.
var address = regexp.MustCompile(`^(?i)https?://([\w.-]+|\[[\da-f:]+\])(:\d{1,5})?/*$`)

// WithKey returns the account that connectionString names:
// "AccountEndpoint=https://…;AccountKey=…". It connects to nothing.
// Errors say what is wrong with the string and hold no part of it.
func WithKey(connectionString string) (Account, error) {
	parts := map[string]string{}
	for part := range strings.SplitSeq(connectionString, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		parts[strings.ToLower(name)] = value
	}

	if _, ok := parts["database"]; ok {
		return Account{}, errors.New("names a Database, which is a setting of its own: remove it here")
	}

	endpoint, key := parts["accountendpoint"], parts["accountkey"]
	credential, err := azcosmos.NewKeyCredential(key)
	if err != nil || key == "" || !address.MatchString(endpoint) { // which may hold a secret in the wrong place
		return Account{}, errors.New("is incomplete or malformed: must be AccountEndpoint=https://ACCOUNT.documents.azure.com:443/;" +
			"AccountKey=KEY, with a key in base64: copy the whole string (portal: Cosmos DB account > Keys)")
	}

	return Account{endpoint, func(o *azcosmos.ClientOptions) (*azcosmos.Client, error) {
		return azcosmos.NewClientWithKey(endpoint, credential, o)
	}}, nil
}

// WithCredential returns the account at endpoint, an https address, to be used
// with credential. It connects to nothing.
func WithCredential(endpoint string, credential azcore.TokenCredential) (Account, error) {
	if err := azure.CheckEndpoint(endpoint, "https://ACCOUNT.documents.azure.com:443/"); err != nil {
		return Account{}, err
	}

	return Account{endpoint, func(o *azcosmos.ClientOptions) (*azcosmos.Client, error) {
		o.PerCallPolicies = append(o.PerCallPolicies, azure.TokenFirst(credential, azure.CosmosScope(endpoint)))
		return azcosmos.NewClient(endpoint, credential, o)
	}}, nil
}

// partitionKey is where the service finds an item's partition: every key is one
// of its own.
const partitionKey = "/id"

// A Config says where a store keeps its records. All fields but Created are required.
type Config struct {
	Account             Account
	Database, Container string
	Retention           time.Duration      // for which a record is kept after it was held
	Client              policy.Transporter // an azure.NewHTTPClient, within azure.LimitTries if that is to outlive Open
	// Created is called whenever the container has gone and was created again. It must not block.
	Created func(container string)
}

// Open returns the store in a container, which it creates when it is missing, as
// it does the database. It looks at the account first and refuses one with
// several write regions, and a container that would never delete an item.
//
// What only people can put right is a *lease.Failure that is Wrong. If the account itself does
// not answer, Open may take some 8 s longer than ctx.
func Open(ctx context.Context, c Config) (lease.Store, error) {
	transport := azure.LimitTries(c.Client)
	for try := 0; ; try++ {
		// A client of its own for every try: it keeps the failure of its very
		// first request for minutes.
		items, err := open(ctx, c, transport)
		if err == nil {
			items.retention = c.Retention
			items.home.Created = c.Created
			service := caslease.Service{
				Clock:  caslease.Clock{Resolution: time.Second, Skew: time.Second},
				Latest: items.Latest,
			}
			return caslease.New(items, service), nil
		}

		if !azure.ShouldRetry(ctx, try, err) {
			return nil, fmt.Errorf(
				"open Cosmos container %q in database %q at %s: %w",
				c.Container,
				c.Database,
				c.Account.Endpoint,
				err,
			)
		}
	}
}

// validName is what the service accepts as the name of a database or a container.
var validName = regexp.MustCompile(`^[^/\\?#;". ]([^/\\?#;"]{0,253}[^/\\?#;". ])?$`)

func open(ctx context.Context, config Config, transport policy.Transporter) (items, error) {
	for _, name := range []string{config.Database, config.Container} {
		if !validName.MatchString(name) {
			const text = "%q is not a valid name for a Cosmos database or container: use letters, digits and '-'"
			return items{}, misconfigured(fmt.Sprintf(text, name))
		}
	}

	c, err := config.Account.client(&azcosmos.ClientOptions{ClientOptions: azcore.ClientOptions{
		Retry:            azure.Once(),
		Transport:        transport,
		PerRetryPolicies: []policy.Policy{&suitable{}, single{}},
	}})
	if err != nil {
		return items{}, err
	}

	i, err := use(ctx, c, config.Database, config.Container)
	if err != nil {
		c.Close()
		return items{}, explain(err)
	}

	return i, nil
}

// use returns the items of a container that it creates if need be.
func use(ctx context.Context, c *azcosmos.Client, database, container string) (items, error) {
	d, err := c.NewDatabase(database)
	if err != nil {
		return items{}, err
	}

	i, err := d.NewContainer(container)
	if err != nil {
		return items{}, err
	}

	found, err := i.Read(ctx, nil)
	properties := found.ContainerProperties
	switch {
	case azure.Answer(err).StatusCode == http.StatusNotFound:
		err = create(ctx, c, d, container)
	case err != nil: // below
	case properties == nil || !slices.Equal(properties.PartitionKeyDefinition.Paths, []string{partitionKey}):
		err = misconfigured("the container's partition key is not " + partitionKey + ": name another container, or delete this one " +
			"and restart the worker, which creates it")
	case properties.DefaultTimeToLive == nil:
		err = misconfigured("the container's time to live is off, so records of devices that are gone would never be deleted: turn " +
			"it on without a default, with --ttl -1 of `az cosmosdb sql container update`")
	}
	if err != nil {
		return items{}, err
	}

	home := azure.NewContainer(
		database+"/"+container,
		func(err error) bool { return errors.Is(err, errNoContainer) },
		func(ctx context.Context) error {
			return explain(create(ctx, c, d, container))
		},
	)
	return items{container: i, home: home}, nil
}

// create creates the database and the container, as far as they are missing.
func create(ctx context.Context, c *azcosmos.Client, d *azcosmos.DatabaseClient, container string) error {
	_, err := c.CreateDatabase(ctx, azcosmos.DatabaseProperties{ID: d.ID()}, nil)
	if err == nil || azure.Answer(err).StatusCode == http.StatusConflict {
		neverByDefault := int32(-1)
		_, err = d.CreateContainer(ctx, azcosmos.ContainerProperties{
			ID:                     container,
			PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{partitionKey}, Version: 2},
			DefaultTimeToLive:      &neverByDefault, // items bring their own
			// Items are only read by id, so nothing else is indexed; a mode of
			// none would turn the time to live off.
			IndexingPolicy: &azcosmos.IndexingPolicy{
				Automatic:     true,
				IndexingMode:  azcosmos.IndexingModeConsistent,
				ExcludedPaths: []azcosmos.ExcludedPath{{Path: "/*"}},
			},
		}, nil)
	}

	switch azure.Answer(err).StatusCode {
	case http.StatusConflict: // another replica did
		return nil

	case http.StatusForbidden, http.StatusUnauthorized:
		return misconfigured("the container does not exist, and these credentials may not create it: create it, with the partition " +
			"key " + partitionKey + " and with time to live on but no default")
	}

	return err
}
