package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Record returns a Tracing whose spans r sees.
func Record(c Config, r sdktrace.SpanProcessor) *Tracing {
	return start(c, sdktrace.WithSpanProcessor(r))
}

// SetFlush sets how long Close takes at most.
func (t *Tracing) SetFlush(d time.Duration) { t.flush = d }

// ForceFlush exports what there is.
func (t *Tracing) ForceFlush() { otel.Handle(t.provider.ForceFlush(context.Background())) }
