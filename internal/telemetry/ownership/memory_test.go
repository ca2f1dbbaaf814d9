package ownership_test

import (
	"testing"

	"alertworker/internal/telemetry/ownership"
	"alertworker/internal/telemetry/ownership/ownershiptest"
)

func TestMemory(t *testing.T) {
	ownershiptest.Run(t, func(*testing.T) ownership.Store { return &ownership.Memory{} })
}
