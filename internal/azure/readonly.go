package azure

import "net/http"

// ReadOnly makes c, which is of NewHTTPClient, send no request that changes anything in a storage account or in Cosmos DB. Such requests fail.
func ReadOnly(c *http.Client) { c.Transport = readOnly{c.Transport.(*http.Transport)} }

type readOnly struct{ *http.Transport }

func (t readOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.Header.Get("x-ms-documentdb-isquery") != "" {
		return t.Transport.RoundTrip(r)
	}
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return nil, readOnlyError{}
}

// A readOnlyError is why a container that does not exist is not created.
type readOnlyError struct{}

func (readOnlyError) Error() string {
	return "it does not exist, and this command creates nothing: check its name, and whether it was deleted"
}
func (readOnlyError) NonRetriable() {}
