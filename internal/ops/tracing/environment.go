package tracing

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
)

// A signal is what is exported.
type signal string

const (
	traces  signal = "TRACES"
	metrics signal = "METRICS"
)

// enabled reports whether OpenTelemetry's variables ask for the signal. The exporter reads them itself: an error is
// what it would silently ignore, and names the variable without its value.
func (s signal) enabled() (bool, error) {
	variable, endpoint := s.setting("ENDPOINT")
	chooser := "OTEL_" + string(s) + "_EXPORTER"
	exporter := get(chooser)

	// Who scrapes metrics does not want them twice.
	isScraped := s == metrics && exporter != "otlp" && variable == "OTEL_EXPORTER_OTLP_ENDPOINT"
	isOff := exporter == "none" || strings.EqualFold(get("OTEL_SDK_DISABLED"), "true")
	if isScraped || isOff || endpoint == "" {
		return false, nil
	}

	if exporter != "" && exporter != "otlp" {
		return false, fmt.Errorf("%s: must be otlp, or none to disable the export", chooser)
	}

	if variable, protocol := s.setting("PROTOCOL"); protocol == "grpc" {
		return false, fmt.Errorf("%s: gRPC is not supported: use http/protobuf, by convention on port 4318", variable)
	}

	u, err := url.Parse(endpoint)
	if err != nil || !slices.Contains([]string{"http", "https"}, u.Scheme) || u.Hostname() == "" {
		return false, fmt.Errorf("%s: must be a URL such as http://host:4318 or https://…", variable)
	}

	if u.User != nil {
		return false, fmt.Errorf(
			"%s: credentials in the URL are not sent: put them into OTEL_EXPORTER_OTLP_HEADERS as authorization=Basic%%20…",
			variable,
		)
	}

	return true, nil
}

func get(name string) string { return strings.TrimSpace(os.Getenv(name)) }

// setting returns a variable of the exporter and its value. What is set for the signal takes precedence.
func (s signal) setting(name string) (variable, value string) {
	variable = "OTEL_EXPORTER_OTLP_" + string(s) + "_" + name
	if get(variable) == "" {
		variable = "OTEL_EXPORTER_OTLP_" + name
	}

	return variable, get(variable)
}

// secrets returns the parts of the variables that must not be logged: headers, and the paths of
// endpoints, which may hold a key.
func secrets() []string {
	var all []string
	for _, of := range []string{"", string(traces) + "_", string(metrics) + "_"} {
		for header := range strings.SplitSeq(get("OTEL_EXPORTER_OTLP_"+of+"HEADERS"), ",") {
			_, written, _ := strings.Cut(header, "=")
			meant, _ := url.PathUnescape(written)
			all = append(all, strings.TrimSpace(written), strings.TrimSpace(meant))
		}

		if u, err := url.Parse(get("OTEL_EXPORTER_OTLP_" + of + "ENDPOINT")); err == nil && len(u.Path) > 1 {
			all = append(all, u.Path, u.EscapedPath())
		}
	}

	return all
}
