package tracing

import (
	"context"
	"errors"
	"net"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"alertworker/internal/throttle"
	"alertworker/internal/worker"
)

// Attributes of our own.
const (
	deviceKey     = attribute.Key("alertworker.device")
	alertKey      = attribute.Key("alertworker.alert.id")
	receiverKey   = attribute.Key("alertworker.receiver")
	outcomeKey    = attribute.Key("alertworker.outcome") // of a flight, a call or an attempt
	suppressedKey = attribute.Key("alertworker.suppressed")
	storeKey      = attribute.Key("alertworker.store")
	tokenKey      = attribute.Key("alertworker.token")
)

// Outcomes of flights besides those of the gate.
const (
	outcomeDeadLetter = "dead_letter"
	outcomeUnsettled  = "unsettled" // the partition ended first
)

// Flights is a worker.Config's Trace: nil if t is.
func (t *Tracing) Flights() func(worker.Departure) worker.Trace {
	if t == nil {
		return nil
	}
	return t.depart
}

func (t *Tracing) depart(d worker.Departure) worker.Trace {
	attributes := []attribute.KeyValue{
		deviceKey.String(d.Device),
		alertKey.String(d.AlertID),
		receiverKey.String(d.Receiver),
	}
	kind, of := trace.SpanKindInternal, d.Partition
	if d.FromHub {
		kind, of = trace.SpanKindConsumer, t.source.Hub
		attributes = append(attributes, t.source.attributes()...)
		attributes = append(attributes,
			semconv.MessagingDestinationPartitionID(d.Partition),
			semconv.MessagingMessageID(strconv.FormatInt(d.Sequence, 10)), // all the hub calls it by
			semconv.MessagingEventHubsMessageEnqueuedTime(int(d.Enqueued.Unix())),
		)
	}
	_, span := t.tracer.Start(context.Background(), "process "+of, trace.WithSpanKind(kind), trace.WithAttributes(attributes...))
	return flight{span}
}

func (s Source) attributes() []attribute.KeyValue {
	all := []attribute.KeyValue{
		semconv.MessagingSystemEventHubs,
		semconv.MessagingOperationTypeProcess,
		semconv.MessagingOperationName("process"),
		semconv.MessagingDestinationName(s.Hub),
		semconv.MessagingConsumerGroupName(s.ConsumerGroup),
	}
	host, port, err := net.SplitHostPort(s.Host)
	if err != nil {
		return append(all, semconv.ServerAddress(s.Host))
	}
	if n, err := strconv.Atoi(port); err == nil {
		all = append(all, semconv.ServerPort(n))
	}
	return append(all, semconv.ServerAddress(host))
}

// A flight is a worker.Trace.
type flight struct{ span trace.Span }

func (f flight) Under(ctx context.Context) context.Context {
	return trace.ContextWithSpan(ctx, f.span)
}

func (f flight) End(l worker.Landing) {
	outcome := l.Outcome.String()
	switch {
	case !l.Settled:
		outcome = outcomeUnsettled
	case l.Outcome == throttle.Failed:
		outcome = outcomeDeadLetter
	}
	f.span.SetAttributes(outcomeKey.String(outcome), suppressedKey.Int64(l.Suppressed))
	if !l.Settled && l.Err != nil || outcome == outcomeDeadLetter {
		fail(f.span, outcome, l.Err)
	}
	f.span.End()
}

// fail gives span the status of an error of some type, one of few.
func fail(span trace.Span, errorType string, err error) {
	span.SetAttributes(semconv.ErrorTypeKey.String(errorType))
	if err == nil {
		err = errors.New(errorType)
	}
	span.SetStatus(codes.Error, err.Error())
}
