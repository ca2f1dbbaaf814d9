package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"alertworker/internal/notify"
)

// Receivers, and how replicas reach them.

// An inbox is a receiver that drops what docs/receivers.md says. One that forgets what it got, or never drops anything,
// answers as it does, so that replicas can not tell them apart: see repeatsCount for what such a receiver hears more.
type inbox struct {
	planned
	name string
	ids  map[string]time.Time // until when an id is remembered
	last map[string]token
	all  []arrival

	choked map[string]choking // by alert
}

// A choking is how often an alert made a message for many fail, and how much the receiver had taken before the last.
type choking struct{ times, taken int }

type token struct {
	token int64
	until time.Time
}

// An arrival is an alert or a recovery at a receiver.
type arrival struct {
	notify.Alert
	at       time.Time
	heard    time.Time // when the replica heard that it was taken, at if it did not
	answered bool      // it did
	replayed bool      // it was a dead letter
	dropped  bool
}

// take is docs/receivers.md. The caller holds world.mu.
func (in *inbox) take(a notify.Alert) (dropped bool) {
	now := time.Now()
	key := a.Source + " " + a.About()
	last := in.last[key]
	if !now.Before(last.until) {
		last = token{}
	}
	dropped = now.Before(in.ids[a.Source+" "+a.ID]) || last.token > a.Token
	if a.Token >= last.token {
		in.last[key] = token{a.Token, now.Add(a.Remember)}
	}
	if !dropped {
		in.ids[a.Source+" "+a.ID] = now.Add(a.Window)
		if a.Resolved {
			in.ids[a.Source+" "+a.ID] = now.Add(a.Remember)
		}
	}
	if a.Device != noise {
		in.all = append(in.all, arrival{Alert: a, at: now, heard: now, dropped: dropped})
	}
	return dropped
}

// faultyReceiver is a receiver as a process reaches it.
type faultyReceiver struct {
	*process
	in *inbox
}

func (r faultyReceiver) Notify(ctx context.Context, alerts ...notify.Alert) error {
	if r.isDown(receiverDown + r.in.name) {
		if err := r.thaw(); err != nil {
			return err
		}
		if r.in.says != nil {
			return r.in.says
		}
		return errBusy
	}
	alerts = r.plainAll(alerts)
	var taken []int // places in the inbox
	err := r.call(ctx, callSend, tell(alerts[0]), func(ctx context.Context) error {
		select {
		case <-time.After(r.in.slow):
		case <-ctx.Done():
			return ctx.Err()
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		isAbout := func(device string) bool {
			return device != "" && slices.ContainsFunc(alerts, func(a notify.Alert) bool { return a.Device == device })
		}
		if isAbout(r.in.refuses) {
			r.noteLocked("%s refuses %s", r.in.name, tell(alerts[0]))
			return errRefused
		}
		if isAbout(r.in.chokes) {
			r.noteLocked("%s chokes on %s and %d others", r.in.name, tell(alerts[0]), len(alerts)-1)
			r.judgeChoking(r.in, alerts)
			return errChoked
		}
		for _, a := range alerts {
			dropped := r.in.take(a)
			if a.Device == noise {
				r.noteLocked("%s tells %s: %s", r.name, r.in.name, tell(a))
				continue
			}
			taken = append(taken, len(r.in.all)-1)
			r.judgeRecovery(a)
			r.judgeOwner(a)
			r.noteLocked("%s tells %s: %s, token %d (dropped: %v)", r.name, r.in.name, tell(a), a.Token, dropped)
		}
		return nil
	}, nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	if errors.Is(err, errRefused) && len(alerts) == 1 {
		r.refusals[r.in.name+alerts[0].ID] = time.Now()
	}
	if err == nil {
		if r.gone { // meanwhile, and has heard nothing
			return err
		}
		for _, i := range taken {
			a := &r.in.all[i]
			a.heard, a.answered = time.Now(), true
		}
	}
	return err
}

var errChoked = &notify.Error{Untaken: true, Status: 503, Err: errors.New("503 internal error")}

func tell(a notify.Alert) string {
	what := "ALERT"
	if a.Resolved {
		what = "RESOLVED"
	}
	return fmt.Sprintf("%s %s %s %s %s of %d, id %s", what, a.Device, a.PerValue, a.Rule, a.Level, a.Sequence, a.ID)
}
