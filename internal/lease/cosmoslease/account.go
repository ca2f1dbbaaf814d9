package cosmoslease

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"alertworker/internal/lease"
)

// single is a policy that hides 408 and 5xx from the SDK, which would retry them, because the store does. It leaves
// failed connections to the SDK, which may know another region.
type single struct{}

func (single) Do(req *policy.Request) (*http.Response, error) {
	resp, err := req.Next()
	if err == nil && (resp.StatusCode == http.StatusRequestTimeout || resp.StatusCode >= http.StatusInternalServerError) {
		return nil, runtime.NewResponseError(resp)
	}

	return resp, err
}

// suitable is a policy that carries requests only to an account with one write
// region, whose reads heed session tokens. It learns that from the account's properties, which the client asks
// for before its first request and every few minutes thereafter.
type suitable struct {
	wrong atomic.Pointer[lease.Failure] // nil: nothing
}

func (s *suitable) Do(req *policy.Request) (*http.Response, error) {
	properties := req.Raw().Method == http.MethodGet && strings.Trim(req.Raw().URL.Path, "/") == ""
	if wrong := s.wrong.Load(); wrong != nil && !properties {
		return nil, wrong
	}

	resp, err := req.Next()
	if err != nil || !properties || resp.StatusCode != http.StatusOK {
		return resp, err
	}

	body, err := runtime.Payload(resp)
	if err != nil {
		return nil, err
	}

	var account struct {
		EnableMultipleWriteLocations bool              `json:"enableMultipleWriteLocations"`
		WritableLocations            []json.RawMessage `json:"writableLocations"`
		Consistency                  struct {
			Default string `json:"defaultConsistencyLevel"`
		} `json:"userConsistencyPolicy"`
	}
	if err := json.Unmarshal(body, &account); err != nil {
		return nil, fmt.Errorf("read the account's properties: %w", err)
	}

	s.wrong.Store(nil)

	if account.EnableMultipleWriteLocations || len(account.WritableLocations) > 1 {
		s.wrong.Store(misconfigured("the account has several write regions, where two replicas may both be granted a lease: " +
			"turn multi-region writes off, or use another account or store"))
	} else if level := account.Consistency.Default; level == "Eventual" || level == "ConsistentPrefix" {
		s.wrong.Store(misconfigured("the account's default consistency is " + level + ", where an old record may suppress " +
			"an alert: set it to Session or a stronger level"))
	}

	return resp, nil
}
