package main

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"alertworker/internal/audit"
	"alertworker/internal/notify/inbox"
	"alertworker/internal/notify/webhook"
)

// receiverName is what the audit calls the receiver.
const receiverName = "inbox"

// A receiver takes the alerts of all workers, on loopback.
type receiver struct {
	http.Server
	url, secret string
	served      chan error
}

// listenInbox starts a receiver that tells screen what it gets, and judge what it
// gets about these devices. Others are of people who try the HTTP trigger, and
// open windows perhaps.
func listenInbox(devices []string, judge *audit.Log, screen *view) (*receiver, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	slices.Sort(devices)
	r := &receiver{secret: "whsec_" + base64.StdEncoding.EncodeToString(key), served: make(chan error, 1)}
	secret, err := webhook.ParseSecret(r.secret)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for alerts: %w", err)
	}
	r.url = "http://" + listener.Addr().String() + "/alerts"
	r.ReadHeaderTimeout = 10 * time.Second
	r.Handler = inbox.New(secret, func(d inbox.Delivery) {
		if _, judged := slices.BinarySearch(devices, d.Alert.Device); judged {
			judge.Delivered(audit.Delivery{Device: d.Alert.Device, ID: d.Alert.ID, Token: d.Alert.Token, At: d.At, Receiver: receiverName})
		}
		screen.Alert(d)
	})
	go func() { r.served <- r.Serve(listener) }()
	return r, nil
}

// Close ends the receiver and waits for it.
func (r *receiver) Close() {
	_ = r.Server.Close()
	<-r.served
}
