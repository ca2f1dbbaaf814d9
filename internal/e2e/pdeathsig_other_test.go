//go:build unix && !linux

package e2e_test

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }
