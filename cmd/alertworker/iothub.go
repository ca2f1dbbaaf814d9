package main

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"alertworker/internal/azure"
	"alertworker/internal/config"
	"alertworker/internal/telemetry/iothub"
	"alertworker/internal/telemetry/transport"
)

// findHub is resolveHub; it also waits for a token if the hub is read without a key.
func (s stores) findHub(ctx context.Context, c config.Config, log *zap.Logger) (config.Config, error) {
	if c.EventHubNamespace != "" {
		if err := s.identity.Prefetch(ctx, azure.EventHubsScope); err != nil {
			return c, fmt.Errorf("use EVENTHUB_NAMESPACE=%s: %w", c.EventHubNamespace, err)
		}
	}
	return s.resolveHub(ctx, c, log)
}

// resolveHub returns c reading from the Event Hubs endpoint of its
// IOTHUB_CONNECTION_STRING, or c itself if it has none.
func (s stores) resolveHub(ctx context.Context, c config.Config, log *zap.Logger) (config.Config, error) {
	if !c.IoTHubConnectionString.IsSet() {
		return c, nil
	}
	endpoint, err := s.askIoTHub(ctx, c)
	if err != nil {
		return config.Config{}, err
	}
	c.EventHubName = "" // the endpoint names the hub
	if c, err = c.WithHub(endpoint); err != nil {
		return config.Config{}, err
	}
	hub := c.Hub()
	log.Info("IoT Hub resolved", zap.String("namespace", hub.Host), zap.String("hub", hub.Name))
	return c, nil
}

// askIoTHub returns the connection string of the Event Hubs endpoint.
func (s stores) askIoTHub(ctx context.Context, c config.Config) (string, error) {
	network := transport.Network{Connect: s.network.dial}
	return iothub.Resolve(ctx, transport.Transport(c.EventHubTransport), network, c.IoTHubConnectionString.Reveal())
}
