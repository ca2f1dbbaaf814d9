package azure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"alertworker/internal/humanize"
	"alertworker/internal/lease"
)

const (
	acquireTimeout = time.Minute // for one token: a developer's tools and a pod's first call take many seconds
	// the end of a token, if the identity does not say when; before that MSAL returns the same one
	refreshBefore = 5 * time.Minute
	expiryMargin  = 10 * time.Second // before the end of a token, within which it is not used any more
	acquirePause  = 5 * time.Second  // between the end of one attempt at a token and the next
)

// StorageScope, EventHubsScope, EventGridScope and MailScope are what the clients of these services ask tokens
// for. Cosmos DB has a scope for each account: CosmosScope.
var (
	StorageScope   = policy.TokenRequestOptions{Scopes: []string{"https://storage.azure.com/.default"}, EnableCAE: true}
	EventHubsScope = policy.TokenRequestOptions{Scopes: []string{"https://eventhubs.azure.net//.default"}}
	EventGridScope = policy.TokenRequestOptions{Scopes: []string{"https://eventgrid.azure.net/.default"}}
	// Exchange Online
	MailScope = policy.TokenRequestOptions{Scopes: []string{"https://outlook.office365.com/.default"}}
)

// A Credential is the identity of a process, shared by all its clients. It caches tokens
// and fetches each with a context of its own: a request that cannot wait for a slow
// identity fails, and the next one finds the token. A valid token is refreshed in the
// background. It is safe for concurrent use. Its owner ends with Close.
type Credential struct {
	source azcore.TokenCredential
	ctx    context.Context // of fetching
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	tokens map[tokenKey]*token
}

var _ azcore.TokenCredential = (*Credential)(nil)

type tokenKey struct {
	scopes, tenant string
	cae            bool
}

type token struct {
	azcore.AccessToken
	fetched chan struct{} // closed when the attempt under way ends; nil if none is
	claims  string        // of the last attempt
	next    time.Time     // not before then is another attempt made
	err     error         // why there is no valid one, if there is none
}

// NewCredential returns a Credential with the tokens of source.
func NewCredential(source azcore.TokenCredential) *Credential {
	c := &Credential{source: source, tokens: map[tokenKey]*token{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Close cancels and awaits the fetching of tokens. Valid tokens are still returned.
func (c *Credential) Close() {
	c.mu.Lock()
	c.cancel()
	c.mu.Unlock()
	c.work.Wait()
}

// Prefetch waits until there is a token for each of requests. It takes at most a minute for
// each, or until ctx ends. Its error is ErrNoToken.
func (c *Credential) Prefetch(ctx context.Context, requests ...policy.TokenRequestOptions) error {
	for _, r := range requests {
		if _, err := c.GetToken(ctx, r); err != nil {
			return err
		}
	}

	return nil
}

// GetToken returns a token that is still valid for some time. It waits for one only if
// there is none, and no longer than ctx; then its error is ErrNoToken, and
// fetching continues.
func (c *Credential) GetToken(ctx context.Context, r policy.TokenRequestOptions) (azcore.AccessToken, error) {
	key := tokenKey{strings.Join(r.Scopes, " "), r.TenantID, r.EnableCAE}
	for {
		c.mu.Lock()
		t := c.tokens[key]
		if t == nil {
			t = &token{err: noToken(r, ": stopping", context.Canceled)} // else it is fetched
			c.tokens[key] = t
		}
		if r.Claims != "" { // the service has just refused the token
			t.AccessToken, t.next = azcore.AccessToken{}, time.Time{}
		}

		now := time.Now()
		valid := now.Before(t.ExpiresOn.Add(-expiryMargin))
		// from then on it should be replaced although it may still be valid
		refresh := cmp.Or(t.RefreshOn, t.ExpiresOn.Add(-refreshBefore))
		due := !valid || !now.Before(refresh)
		if due && t.fetched == nil && !now.Before(t.next) && c.ctx.Err() == nil {
			t.fetched, t.claims = make(chan struct{}), r.Claims
			c.work.Go(func() { c.fetch(t, r) })
		}

		got, fetched, claimed, err := t.AccessToken, t.fetched, t.claims == r.Claims, t.err
		c.mu.Unlock()
		switch {
		case valid:
			return got, nil
		case fetched == nil:
			return azcore.AccessToken{}, err
		}

		select {
		case <-fetched:
			if claimed {
				r.Claims = "" // what has come has them
			}
		case <-ctx.Done():
			return azcore.AccessToken{}, noToken(r, " yet: the Azure identity is slow to respond", ctx.Err())
		}
	}
}

// TokenFirst returns a policy for each call of a client: it waits for a token of credential, for as long as the call
// may take. Without it, callers that have no token wait behind a lock of the SDK, which no context ends, and hear that
// the service did not answer.
func TokenFirst(credential azcore.TokenCredential, r policy.TokenRequestOptions) policy.Policy {
	return tokenFirst{credential, r}
}

type tokenFirst struct {
	credential azcore.TokenCredential
	request    policy.TokenRequestOptions
}

func (p tokenFirst) Do(r *policy.Request) (*http.Response, error) {
	if _, err := p.credential.GetToken(r.Raw().Context(), p.request); err != nil {
		return nil, err
	}
	return r.Next()
}

// fetch asks for a token once. If that fails, an existing token stays.
func (c *Credential) fetch(t *token, r policy.TokenRequestOptions) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, acquireTimeout, fmt.Errorf("no answer within %v", acquireTimeout))
	defer cancel()

	got, err := c.source.GetToken(ctx, r)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	if err == nil {
		t.AccessToken = got
		t.err = noToken(r, ": the one that the identity returned has expired; check this machine's clock", nil)
	} else {
		t.err = noToken(r, ": "+summarize(err.Error()), nil)
	}

	t.next = time.Now().Add(acquirePause)
	close(t.fetched)
	t.fetched = nil
}

// ErrNoToken means that an Azure identity has given no token.
var ErrNoToken = errors.New("no token")

// noToken returns the Failure of whoever needs a token, that is ErrNoToken: for which service there is none, which
// identities were tried, and what to do. ended is the error of the context that ended the wait, or nil.
func noToken(r policy.TokenRequestOptions, why string, ended error) error {
	service := strings.TrimRight(strings.TrimSuffix(strings.Join(r.Scopes, " "), "/.default"), "/")
	return &lease.Failure{
		Text:   "no token for " + service + why,
		Err:    errors.Join(ErrNoToken, ended),
		Cause:  lease.Refused,
		Status: http.StatusUnauthorized,
		Again:  true, // a token may come
	}
}

// identities are readable names of what azidentity tries.
var identities = map[string]string{
	"EnvironmentCredential":       "environment variables",
	"WorkloadIdentityCredential":  "workload identity",
	"ManagedIdentityCredential":   "managed identity",
	"AzureCLICredential":          "Azure CLI",
	"AzureDeveloperCLICredential": "Azure Developer CLI",
	"AzurePowerShellCredential":   "Azure PowerShell",
}

const (
	noIdentity = "assign a managed identity or a workload identity, set AZURE_TENANT_ID, AZURE_CLIENT_ID and " +
		"AZURE_CLIENT_SECRET, or sign in with az login"
	refusedIdentity = "check that the identity exists, that AZURE_CLIENT_ID names it, and that its secret or " +
		"federation is valid"
)

// summarize reduces an error of azidentity to one line: which identities it tried, why each
// failed, and what to do.
func summarize(text string) string {
	_, attempts, ok := strings.Cut(text, "Attempted credentials:\n")
	if !ok {
		return brief(text)
	}

	var tried []string
	advice := noIdentity
	for attempt := range strings.SplitSeq("\n"+attempts, "\n\t") {
		detail := answered.FindStringSubmatch(attempt)
		switch {
		case strings.TrimSpace(attempt) == "":

		case !strings.HasPrefix(attempt, "\t") || len(tried) == 0:
			end := strings.IndexAny(attempt+":", ": ")
			name := brief(attempt[:end])
			tried = append(tried, cmp.Or(identities[name], name)+": "+brief(strings.TrimLeft(attempt[end:], ": ")))

		case detail != nil: // the answer that one got
			advice = refusedIdentity
			tried[len(tried)-1] += ", " + brief(detail[1]+detail[2])
		}
	}

	return "tried " + strings.Join(tried, "; ") + ". To fix: " + advice
}

// answered finds the essential parts of a response, which azidentity prints in full.
var answered = regexp.MustCompile(`RESPONSE (\d+)|"error_description": "([^"\\]*)`)

// brief returns the first sentence of text, without links to documentation.
func brief(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	for _, end := range []string{". ", " See http", " To troubleshoot", " Trace ID"} {
		text, _, _ = strings.Cut(text, end)
	}

	return strings.TrimRight(humanize.Cut(text, 160), ". ")
}

// CosmosScope is the token scope of the Cosmos DB account at endpoint.
func CosmosScope(endpoint string) policy.TokenRequestOptions {
	scheme, rest, _ := strings.Cut(endpoint, "://")
	host, _, _ := strings.Cut(rest, "/")
	host, _, _ = strings.Cut(host, ":")

	return policy.TokenRequestOptions{Scopes: []string{scheme + "://" + host + "/.default"}, EnableCAE: true}
}
