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

	"alertworker/internal/delivery"
)

// Attributes of our own.
const (
	deviceKey     = attribute.Key("alertworker.device")
	sensorKey     = attribute.Key("alertworker.sensor") // of the device; absent: its own readings
	alertKey      = attribute.Key("alertworker.alert.id")
	ruleKey       = attribute.Key("alertworker.rule")
	levelKey      = attribute.Key("alertworker.level")
	resolvedKey   = attribute.Key("alertworker.resolved")
	receiverKey   = attribute.Key("alertworker.receiver")
	outcomeKey    = attribute.Key("alertworker.outcome") // of a delivery, a call or an attempt
	suppressedKey = attribute.Key("alertworker.suppressed")
	storeKey      = attribute.Key("alertworker.store")
	tokenKey      = attribute.Key("alertworker.token")
)

// Deliveries returns the Trace of a worker.Config; nil if t is.
func (t *Tracing) Deliveries() func(delivery.Start) delivery.Trace {
	if t == nil {
		return nil
	}
	return t.begin
}

func (t *Tracing) begin(d delivery.Start) delivery.Trace {
	attributes := []attribute.KeyValue{
		deviceKey.String(d.Device),
		alertKey.String(d.AlertID),
		ruleKey.String(d.Rule),
		resolvedKey.Bool(d.Recovery),
		receiverKey.String(d.Receiver),
	}

	if d.Sensor != "" {
		attributes = append(attributes, sensorKey.String(d.Sensor))
	}

	if d.Level != "" {
		attributes = append(attributes, levelKey.String(d.Level))
	}

	kind, of := trace.SpanKindInternal, d.Partition

	if d.FromHub {
		kind, of = trace.SpanKindConsumer, t.source.Hub
		attributes = append(attributes, t.source.attributes()...)
		attributes = append(attributes,
			semconv.MessagingDestinationPartitionID(d.Partition),
			semconv.MessagingMessageID(strconv.FormatInt(d.Sequence, 10)), // the only id that the hub gives it
			semconv.MessagingEventHubsMessageEnqueuedTime(int(d.Enqueued.Unix())),
		)
	}

	_, span := t.tracer.Start(
		context.Background(),
		"process "+of,
		trace.WithSpanKind(kind),
		trace.WithAttributes(attributes...),
	)
	return traced{span}
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

// A traced delivery is a delivery.Trace.
type traced struct{ span trace.Span }

func (d traced) Under(ctx context.Context) context.Context {
	return trace.ContextWithSpan(ctx, d.span)
}

func (d traced) End(end delivery.End) {
	d.span.SetAttributes(outcomeKey.String(end.Outcome), suppressedKey.Int64(end.Suppressed))
	if end.Outcome == delivery.OutcomeDeadLetter || end.Outcome == delivery.OutcomeUnsettled && end.Err != nil {
		fail(d.span, end.Outcome, end.Err)
	}
	d.span.End()
}

// fail sets the status of span to an error; errorType has few values.
func fail(span trace.Span, errorType string, err error) {
	span.SetAttributes(semconv.ErrorTypeKey.String(errorType))
	if err == nil {
		err = errors.New(errorType)
	}
	span.SetStatus(codes.Error, err.Error())
}
