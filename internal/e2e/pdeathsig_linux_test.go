package e2e_test

import "syscall"

// attributes make a process die with the one that started it.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
