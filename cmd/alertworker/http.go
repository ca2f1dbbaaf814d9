package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/build"
	"alertworker/internal/config"
	"alertworker/internal/httpapi"
	"alertworker/internal/ops/admin"
	"alertworker/internal/ops/status"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/ingest"
	"alertworker/internal/throttle"
)

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 16 << 10 // bytes
	maxConns      = 512      // up to 28 KiB each

	// callerPatience is how long callers of the HTTP trigger keep waiting for another
	// replica's claim to end when this one stops.
	callerPatience = 3 * time.Second

	closeTimeout = 5 * time.Second
)

// An httpServer serves what handle was given last.
type httpServer struct {
	listener net.Listener
	server   *http.Server
	handler  atomic.Pointer[admin.Admin]
	log      *zap.Logger
}

// listenHTTP listens, so that an HTTP_ADDR that cannot be used fails the start.
func listenHTTP(c config.Config, log *zap.Logger) (*httpServer, error) {
	s := &httpServer{log: log}
	errorLog, err := zap.NewStdLogAt(log, zap.ErrorLevel) // of handlers that panic, with their stacks
	if err != nil {
		return nil, err
	}
	if s.listener, err = net.Listen("tcp", c.HTTPAddr); err != nil {
		return nil, fmt.Errorf("HTTP_ADDR: %w: set another one, or an empty one to turn HTTP off", err)
	}

	s.server = &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.handler.Load().ServeHTTP(w, r) }),
		ReadHeaderTimeout: headerTimeout,
		// a reading's outcome may take another replica's claim, and then one of its own
		WriteTimeout:   2*throttle.ClaimTTL(c.NotifyTimeout) + 3*httpapi.BodyTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeader,
		ConnState:      httpapi.NewConnLimit(maxConns).Changed,
		ErrorLog:       errorLog,
	}
	return s, nil
}

// serve serves until ctx ends and then finishes responses under way.
func (s *httpServer) serve(ctx context.Context) {
	s.log.Info("serving HTTP", zap.Stringer("addr", s.listener.Addr()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("HTTP server stopped", zap.Error(err))
		}
	}()

	<-ctx.Done()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if s.server.Shutdown(closing) != nil {
		_ = s.server.Close()
	}

	<-done
}

// adminOptions returns what the pages of a replica have in common from its start on.
func adminOptions(c config.Config, o *operations, log *zap.Logger) admin.Options {
	return admin.Options{
		Source:   c.Scope(),
		Replica:  c.ReplicaName,
		Version:  build.Version(),
		Rules:    c.Rules(),
		Zone:     c.Zone(),
		Started:  o.started,
		Recorder: o.recorder,
		Metrics:  o.metrics.Handler(),
		Hosts:    c.Hosts(),
		Token:    c.HTTPAdminToken.Reveal(),
		Self:     func() status.Statement { return status.Statement{Replica: c.ReplicaName, Status: o.monitor.Report()} },
		Log:      log,
	}
}

// newAdmin returns the page of a replica, with its HTTP trigger.
func (r *replica) newAdmin() *admin.Admin {
	c := r.config
	o := adminOptions(c, r.ops, r.log)
	o.Worker = r.worker
	o.Partitions = func(ctx context.Context) ([]telemetry.PartitionStatus, error) {
		return r.source.Ownerships(ctx, true)
	}
	o.Receivers = r.gates
	o.Shared = sharedOf(c, r.stores, r.receivers)
	o.Incidents = incidents(c, r.stores.records)
	o.Silences = r.muting
	o.Others = r.source.Reports
	o.Self = r.self

	if token := c.HTTPIngestToken.Reveal(); token != "" {
		r.intake = r.worker.NewIntake(context.Background(), "http")
		r.trigger = ingest.New(ingest.Config{Intake: r.intake, Token: token, Timeout: throttle.ClaimTTL(c.NotifyTimeout)})
		o.Ingest = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if r.waiting() == "" {
				r.trigger.ServeHTTP(w, req)
				return
			}

			w.Header().Set("Retry-After", "10")
			httpapi.Fail(w, httpapi.Problem{
				Status: http.StatusServiceUnavailable,
				Detail: "this replica is standing by: try again, another replica may accept it",
			})
		})
	}

	return admin.New(o)
}

// closeTrigger waits until ctx ends, then takes no more readings over HTTP, and answers those
// that it has.
func (r *replica) closeTrigger(ctx context.Context) {
	<-ctx.Done()
	defer time.AfterFunc(r.config.DrainTimeout, r.intake.Cut).Stop()
	waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), callerPatience)
	defer cancel()
	r.trigger.Close(waiting)
	r.intake.Cut()
}
