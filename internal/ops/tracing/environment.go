package tracing

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// environment reports whether OpenTelemetry's variables enable tracing, and
// which of their values must not be logged. The SDK reads the variables itself; what it would
// only log, with the value, is an error here.
func environment() (on bool, secrets []string, err error) {
	general, ofTraces := get("OTEL_EXPORTER_OTLP_ENDPOINT"), get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if general == "" && ofTraces == "" || strings.EqualFold(get("OTEL_SDK_DISABLED"), "true") || get("OTEL_TRACES_EXPORTER") == "none" {
		return false, nil, nil
	}
	var wrong []error
	complain := func(name string, err error) {
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", name, err))
		}
	}
	for _, signal := range []string{"", "TRACES_"} {
		name := "OTEL_EXPORTER_OTLP_" + signal
		complain(name+"ENDPOINT", checkEndpoint(get(name+"ENDPOINT")))
		values, err := headers(get(name + "HEADERS"))
		complain(name+"HEADERS", err)
		secrets = append(secrets, values...)
	}
	name := "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	if get(name) == "" {
		name = "OTEL_EXPORTER_OTLP_PROTOCOL"
	}
	if p := get(name); p != "" && p != "http/protobuf" && p != "http/json" {
		complain(name, errors.New("must be http/protobuf, by convention on port 4318; gRPC is not supported"))
	}
	if e := get("OTEL_TRACES_EXPORTER"); e != "" && e != "otlp" {
		complain("OTEL_TRACES_EXPORTER", errors.New("must be otlp, or none to disable tracing"))
	}
	return true, secrets, errors.Join(wrong...)
}

func get(name string) string { return strings.TrimSpace(os.Getenv(name)) }

func checkEndpoint(endpoint string) error {
	if endpoint == "" {
		return nil
	}
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New("must be a URL such as http://host:4318 or https://…")
	case u.User != nil:
		return errors.New("credentials in the URL are not sent: put them into OTEL_EXPORTER_OTLP_HEADERS as authorization=Basic%20…")
	}
	return nil
}

// headers returns the values in a list such as "api-key=a,b=c%20d", both encoded and decoded.
func headers(list string) (values []string, err error) {
	if list == "" {
		return nil, nil
	}
	for i, header := range strings.Split(list, ",") {
		name, written, ok := strings.Cut(header, "=")
		meant, err := url.PathUnescape(written)
		if name = strings.TrimSpace(name); !ok || err != nil || name == "" || strings.Trim(name, nameChars) != "" {
			return nil, fmt.Errorf("header %d must be name=value, with %%XX for special characters", i+1)
		}
		for _, v := range []string{strings.TrimSpace(meant), strings.TrimSpace(written)} {
			if v != "" {
				values = append(values, v)
			}
		}
	}
	return values, nil
}

// nameChars are the characters allowed in the name of a header.
const nameChars = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
