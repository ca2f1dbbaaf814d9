package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"alertworker/internal/azure"
	"alertworker/internal/lease"
)

// A container that is missing and may not be created shows until a call finds it.
func TestMissingContainers(t *testing.T) {
	gone, denied := errors.New("gone"), errors.New("denied")
	there, allowed := false, false
	call := func() error {
		if !there {
			return gone
		}
		return nil
	}
	c := azure.NewContainer("windows", func(err error) bool { return err == gone }, func(context.Context) error {
		if !allowed {
			return denied
		}
		return nil
	})
	m := &missingContainers{checkpoints: []*azure.Container{c}}
	want := func(missing bool) {
		t.Helper()
		if reason := m.reason(); (reason != "") != missing || missing && !strings.Contains(reason, `"windows" does not exist`) {
			t.Errorf("reason %q, want one: %v", reason, missing)
		}
	}
	want(false)
	lost := c.Do(t.Context(), call)
	want(true)
	there = true // somebody has created it
	if err := c.Do(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	want(false)

	// The same of the throttle store, whose calls are observed.
	ends := func(outcome lease.Outcome, err error) {
		_, end := m.observe(t.Context(), lease.OpAcquire)
		end(lease.Call{Outcome: outcome, Err: err})
	}
	ends(lease.OutcomeError, fmt.Errorf("acquire: %w", lost))
	want(true)
	ends(lease.OutcomeError, errors.New("no answer")) // says nothing about the container
	want(true)
	ends(lease.OutcomeHeld, &lease.HeldError{})
	want(false)

	if reason := (*missingContainers)(nil).reason(); reason != "" {
		t.Errorf("without Azure: %q", reason)
	}
}
