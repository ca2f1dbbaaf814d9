package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/build"
	"alertworker/internal/config"
	"alertworker/internal/httpapi"
	"alertworker/internal/ops/admin"
	"alertworker/internal/ops/leader"
	"alertworker/internal/telemetry/ingest"
	"alertworker/internal/throttle"
	"alertworker/internal/worker"
)

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 16 << 10 // bytes

	// callerPatience is how long callers of the HTTP trigger keep waiting for an
	// outcome when the replica stops.
	callerPatience = 3 * time.Second

	closeTimeout = 5 * time.Second
)

// An httpServer serves a replica's status, metrics and HTTP trigger.
type httpServer struct {
	admin    *admin.Admin
	intake   *worker.Intake  // nil without HTTP_INGEST_TOKEN
	trigger  *ingest.Handler // hands readings to intake
	listener net.Listener
	server   *http.Server
	log      *zap.Logger
}

// listenHTTP listens, so that an HTTP_ADDR that cannot be used fails the start.
func listenHTTP(c config.Config, shared stores, r *replica, metrics http.Handler, recorder *admin.Recorder, log *zap.Logger) (*httpServer, error) {
	o := admin.Options{
		Source:     c.Scope(),
		Replica:    c.ReplicaName,
		Version:    build.Version(),
		Threshold:  c.TemperatureThreshold,
		Window:     c.ThrottleWindow,
		Worker:     r.worker,
		Recorder:   recorder,
		Metrics:    metrics,
		Token:      c.HTTPAdminToken.Reveal(),
		Reading:    r.source.Stats,
		Standby:    r.waiting,
		Missing:    shared.missing.reason,
		Partitions: r.source.Ownerships,
		Log:        log,
	}
	for _, to := range r.worker.Config.Receivers {
		o.Receivers = append(o.Receivers, admin.Receiver{Name: to.Name, Gate: to.Gate})
	}
	if r.duties != nil {
		o.Duties = func(ctx context.Context) (leader.Status, error) {
			return leader.ReadStatus(ctx, r.leases, leader.Key(c.Scope()))
		}
	}
	s := &httpServer{log: log}
	if token := c.HTTPIngestToken.Reveal(); token != "" {
		s.intake = r.worker.NewIntake(context.Background(), "http")
		s.trigger = ingest.New(ingest.Config{Intake: s.intake, Token: token, Timeout: throttle.ClaimTTL(c.NotifyTimeout)})
		o.Ingest = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if r.waiting() == "" {
				s.trigger.ServeHTTP(w, req)
				return
			}
			w.Header().Set("Retry-After", "10")
			httpapi.Fail(w, httpapi.Problem{Status: http.StatusServiceUnavailable, Detail: "this replica is standing by: try again, another replica may accept it"})
		})
	}
	var err error
	if s.listener, err = net.Listen("tcp", c.HTTPAddr); err != nil {
		return nil, fmt.Errorf("HTTP_ADDR: %w: set another one, or an empty one to turn HTTP off", err)
	}
	s.admin = admin.New(o)
	s.server = &http.Server{
		Handler:           s.admin,
		ReadHeaderTimeout: headerTimeout,
		WriteTimeout:      throttle.ClaimTTL(c.NotifyTimeout) + 3*httpapi.BodyTimeout, // waiting for a reading's outcome takes as long as a claim
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          zap.NewStdLog(log),
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
	s.admin.Run(ctx)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if s.server.Shutdown(closing) != nil {
		_ = s.server.Close()
	}
	<-done
}

// closeTrigger waits until ctx ends, then takes no more readings and settles those
// that it has.
func (s *httpServer) closeTrigger(ctx context.Context) {
	<-ctx.Done()
	if s.trigger == nil {
		return
	}
	waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), callerPatience)
	defer cancel()
	s.trigger.Close(waiting)
	s.intake.Close()
}
