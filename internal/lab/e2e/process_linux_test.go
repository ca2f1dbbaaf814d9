package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// attributes make a process die with the one that started it.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// stopped says whether a process does nothing because of a signal.
func stopped(pid int) (bool, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // pid (name) state ..., and a name may hold anything
	return bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" T ")), err
}
