package emulators

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
	"github.com/google/uuid"

	"alertworker/internal/azure"
	"alertworker/internal/lab/process"
)

// AzuriteKey is the key of every Azurite's account, as its documentation says.
const AzuriteKey = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

// Azurite is an account of a blob service in memory.
type Azurite struct {
	*process.Process // the service, which others may share
	URL              string
	ConnectionString string

	transport http.RoundTripper
}

// accounts is how many tests share a service. It has one thread: more of them would wait for each other.
const accounts = 5

// A Sharing is the tests of a package, which share blob services: to start one takes three seconds of a core.
type Sharing struct{ m *testing.M }

// shared are the services that tests share.
var shared struct {
	sync.Mutex
	on       bool
	services []*process.Process
	left     []*Azurite // accounts that nobody has got yet
}

// Share has each test that calls [StartAzurite] get an account of its own, of a service that it shares with a few
// others. That is for tests to which it does not matter how long the service takes.
func Share(m *testing.M) Sharing { return Sharing{m} }

// Run runs the tests and ends the services.
func (s Sharing) Run() int {
	shared.Lock()
	shared.on = true
	shared.Unlock()

	code := s.m.Run()

	shared.Lock()
	defer shared.Unlock()

	for _, service := range shared.services {
		service.Kill()
	}

	return code
}

// StartAzurite returns an empty account of a blob service that runs until tb ends, or until all tests end that [Share]
// it.
func StartAzurite(tb testing.TB) *Azurite {
	tb.Helper()
	needNode(tb)

	shared.Lock()
	defer shared.Unlock()

	left := shared.left
	if len(left) == 0 {
		p, all, err := startService()
		if err != nil {
			tb.Fatal(err)
		}

		left = all
		if shared.on {
			shared.services = append(shared.services, p)
		} else {
			tb.Cleanup(p.Kill)
		}
	}

	azurite := left[0]
	azurite.transport = newTransport(tb)
	if shared.on {
		shared.left = left[1:]
	}

	return azurite
}

// startService starts a blob service on loopback, which is empty and saves nothing, and returns its accounts.
func startService() (p *process.Process, all []*Azurite, err error) {
	var names, keys []string
	for i := range accounts {
		names = append(names, fmt.Sprintf("account%d", i))
		keys = append(keys, names[i]+":"+AzuriteKey)
	}

	p, service, err := node(
		context.Background(),
		"Azurite",
		[]string{"AZURITE_ACCOUNTS=" + strings.Join(keys, ";")},
		regexp.MustCompile(`successfully listens on (http://\S+)`),
		"node_modules/azurite/dist/src/blob/main.js",
		"--blobHost",
		"127.0.0.1",
		"--blobPort",
		"0",
		"--silent",
		"--disableTelemetry",
		"--inMemoryPersistence",
	)

	for _, name := range names {
		url := service + "/" + name
		connect := fmt.Sprintf("DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;BlobEndpoint=%s;", name, AzuriteKey, url)
		all = append(all, &Azurite{Process: p, URL: url, ConnectionString: connect})
	}

	return p, all, err
}

// Transport returns what carries the requests of its containers.
func (a *Azurite) Transport() http.RoundTripper { return a.transport }

// NewContainer returns the name of a container that does not exist.
func (a *Azurite) NewContainer() string { return "c" + uuid.NewString() }

// Container returns a client of the named container that tries once, as a gate's
// does. Its requests go through via, by Transport if that is nil: then nothing but a busy machine holds them up.
func (a *Azurite) Container(tb testing.TB, name string, via http.RoundTripper) *container.Client {
	tb.Helper()
	return a.container(tb, name, via, azure.Once())
}

// RetryingContainer is like Container, but the client retries as the SDK does unless told otherwise.
func (a *Azurite) RetryingContainer(tb testing.TB, name string, via http.RoundTripper) *container.Client {
	tb.Helper()
	return a.container(tb, name, via, policy.RetryOptions{})
}

func (a *Azurite) container(
	tb testing.TB,
	name string,
	via http.RoundTripper,
	retry policy.RetryOptions,
) *container.Client {
	tb.Helper()
	c, err := container.NewClientFromConnectionString(a.ConnectionString, name, a.options(via, retry))
	if err != nil {
		tb.Fatalf("container client: %v", err)
	}

	return c
}

// SharedContainer is like Container, but signs in with a shared access signature
// for the account, which covers no headers: via may change them.
func (a *Azurite) SharedContainer(
	tb testing.TB,
	name string,
	via http.RoundTripper,
	may sas.AccountPermissions,
) *container.Client {
	tb.Helper()
	account, err := service.NewClientFromConnectionString(a.ConnectionString, nil)
	if err != nil {
		tb.Fatalf("account client: %v", err)
	}

	signed, err := account.GetSASURL(
		sas.AccountResourceTypes{Service: true, Container: true, Object: true},
		may,
		time.Now().Add(time.Hour),
		nil,
	)
	if err != nil {
		tb.Fatalf("shared access signature: %v", err)
	}

	_, signature, _ := strings.Cut(signed, "?")
	c, err := container.NewClientWithNoCredential(a.URL+"/"+name+"?"+signature, a.options(via, azure.Once()))
	if err != nil {
		tb.Fatalf("container client: %v", err)
	}

	return c
}

// tryTimeout is for one try: tests run on busy machines.
const tryTimeout = 20 * time.Second

// options are those of a client. Only requests that via may hold up on purpose have as little time as in production.
func (a *Azurite) options(via http.RoundTripper, retry policy.RetryOptions) *container.ClientOptions {
	retry.TryTimeout = tryTimeout
	transport := policy.Transporter(&http.Client{Transport: a.Transport()})
	if via != nil {
		transport = azure.LimitTries(&http.Client{Transport: via})
	}

	return &container.ClientOptions{ClientOptions: policy.ClientOptions{Retry: retry, Transport: transport}}
}
