package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"alertworker/internal/azure"
	"alertworker/internal/config"
)

// What ends soon is logged every day from 14 days before its end, when it ends, and after.
func TestEndsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		ends := []config.Ending{{Credential: "STORAGE_CONNECTION_STRING", What: "the signature", At: time.Now().Add(16*day + time.Hour)}}
		core, logs := observer.New(zap.InfoLevel)
		ctx, cancel := context.WithTimeout(t.Context(), 20*day)
		defer cancel()
		warnOfEnds(ctx, ends, zap.New(core))
		var said []string
		for _, l := range logs.All() {
			said = append(said, fmt.Sprint(l.Level, " ", l.Message, ": ", l.ContextMap()["error"]))
		}
		if len(said) != 14+4 || !strings.HasPrefix(said[0], "warn a credential ends soon: the signature in STORAGE_CONNECTION_STRING ends in 13 days, at 2000-01-17T01:00:00Z") ||
			!strings.HasPrefix(said[14], "error a credential has ended: the signature in STORAGE_CONNECTION_STRING ended 0 ms ago") {
			t.Errorf("%d lines: %s", len(said), strings.Join(said, "\n"))
		}
	})
}

// A service that refuses a credential is named with what has ended, and no other error is.
func TestRefusalNamesWhatHasEnded(t *testing.T) {
	ends := []config.Ending{
		{Credential: "STORAGE_CONNECTION_STRING", What: "the signature", At: time.Now().Add(-2 * time.Hour)},
		{Credential: "NOTIFY_URLS", What: "the token", At: time.Now().Add(time.Hour)},
	}
	for status, want := range map[int]string{403: "; the signature in STORAGE_CONNECTION_STRING ended 2 h ago, at ", 503: ""} {
		err := azure.Explain(&azcore.ResponseError{StatusCode: status, RawResponse: &http.Response{}})
		got := endedToo(err, ends)
		if !errors.Is(got, err) || !strings.HasPrefix(got.Error(), err.Error()+want) || strings.Contains(got.Error(), "NOTIFY_URLS") {
			t.Errorf("%d: %v, want %q after %v", status, got, want, err)
		}
	}
}

func TestCheckNamesEnds(t *testing.T) {
	for left, want := range map[time.Duration]string{
		3*24*time.Hour + time.Minute: "! credential  the signature in NOTIFY_URLS ends in 3 days, at ",
		-2 * time.Hour:               "✗ credential  the signature in NOTIFY_URLS ended 2 h ago, at ",
		15 * 24 * time.Hour:          "",
	} {
		to := receiverUp(t, func(*http.Request) int { return http.StatusOK })
		out, code := runCheck(t, hubWith(t).ConnectionString(), map[string]string{
			"NOTIFY_URLS": fmt.Sprintf("%s?sr=x&se=%d&sig=y", to, time.Now().Add(left).Unix()),
		})
		out = strings.Join(strings.Fields(strings.ReplaceAll(out, "\n", " | ")), " ")
		want = strings.Join(strings.Fields(want), " ")
		if !strings.Contains(out, want) || want == "" && strings.Contains(out, "credential") || (code == 0) != (left > 0) {
			t.Errorf("%v before: exit code %d, %s; want %q", left, code, out, want)
		}
	}
}
