package main

import (
	"context"
	"errors"
)

func local(ctx context.Context, args []string) error { return errors.New("todo") }
