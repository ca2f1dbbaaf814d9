package main

import "context"

func (b *bench) roundtrip(context.Context) error { return nil }
func (b *bench) latency(context.Context) error   { return nil }
func (b *bench) storm(context.Context) error     { return nil }
func (b *bench) memory(context.Context) error    { return nil }
