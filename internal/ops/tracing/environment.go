package tracing

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// enabled reports whether OpenTelemetry's variables ask for traces. The exporter reads them itself: an error is
// what it would silently ignore, and names the variable without its value.
func enabled() (bool, error) {
	variable, endpoint := setting("ENDPOINT")
	exporter := get("OTEL_TRACES_EXPORTER")
	if endpoint == "" || strings.EqualFold(get("OTEL_SDK_DISABLED"), "true") || exporter == "none" {
		return false, nil
	}
	if exporter != "" && exporter != "otlp" {
		return false, errors.New("OTEL_TRACES_EXPORTER: must be otlp, or none to disable tracing")
	}
	if variable, protocol := setting("PROTOCOL"); protocol == "grpc" {
		return false, fmt.Errorf("%s: gRPC is not supported: use http/protobuf, by convention on port 4318", variable)
	}
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return false, fmt.Errorf("%s: must be a URL such as http://host:4318 or https://…", variable)
	case u.User != nil:
		return false, fmt.Errorf("%s: credentials in the URL are not sent: put them into OTEL_EXPORTER_OTLP_HEADERS as authorization=Basic%%20…", variable)
	}
	return true, nil
}

func get(name string) string { return strings.TrimSpace(os.Getenv(name)) }

// setting returns a variable of the exporter and its value. What is set for traces takes precedence.
func setting(name string) (variable, value string) {
	variable = "OTEL_EXPORTER_OTLP_TRACES_" + name
	if get(variable) == "" {
		variable = "OTEL_EXPORTER_OTLP_" + name
	}
	return variable, get(variable)
}

// secrets returns the parts of the variables that must not be logged: headers, and the path of
// the endpoint, which may hold a key.
func secrets() []string {
	var all []string
	for _, name := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		for header := range strings.SplitSeq(get(name), ",") {
			_, written, _ := strings.Cut(header, "=")
			meant, _ := url.PathUnescape(written)
			all = append(all, strings.TrimSpace(written), strings.TrimSpace(meant))
		}
	}
	_, endpoint := setting("ENDPOINT")
	if u, err := url.Parse(endpoint); err == nil && len(u.Path) > 1 {
		all = append(all, u.Path, u.EscapedPath())
	}
	return all
}
