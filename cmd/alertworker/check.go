package main

import (
	"context"
	"errors"
)

func check(ctx context.Context, args []string) error { return errors.New("todo") }
