package process

import (
	"os/exec"
	"syscall"
)

// bind makes cmd a child that gets no Ctrl-C from our terminal and that the kernel
// kills when the thread that starts it ends.
func bind(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
