package process

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

// parentEnv set to 1 makes the test binary a parent that waits to be killed.
const parentEnv = "PROCESS_TEST_PARENT"

// beParent starts a child that holds descriptor 3 open, and hangs.
func beParent() {
	runtime.LockOSThread()
	child := exec.Command("sleep", "60")
	child.ExtraFiles = []*os.File{os.NewFile(3, "held")}
	p, err := Start("child", child, func(string) {})
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString("ready\n")
	<-p.done
}

// A child ends with a parent that is killed.
func TestChildrenDieWithUs(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can do it")
	}
	held, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"=1")
	parent.ExtraFiles = []*os.File{hold}
	said, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	_ = hold.Close()
	if line, err := bufio.NewReader(said).ReadString('\n'); line != "ready\n" {
		t.Errorf("the parent said %q (%v)", line, err)
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()

	// The pipe ends once nobody holds it.
	_ = held.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := held.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("the child lives on: %v", err)
	}
}
