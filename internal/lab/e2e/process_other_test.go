//go:build unix && !linux

package e2e_test

import (
	"bytes"
	"fmt"
	"os/exec"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return nil }

func stopped(pid int) (bool, error) {
	state, err := exec.Command("ps", "-o", "state=", "-p", fmt.Sprint(pid)).Output()
	return bytes.HasPrefix(state, []byte("T")), err
}
