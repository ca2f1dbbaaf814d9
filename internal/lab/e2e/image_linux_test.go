package e2e_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"alertworker/internal/lab/busytest"
	"alertworker/internal/lab/emulators"
)

const (
	root = "../../.." // of the repository

	imageLimit   = 30_000_000 // bytes of all files in the image
	imageVersion = "1.2.3-test"
	imageCommit  = "0123456789abcdef0123456789abcdef01234567"
)

// Two builds of one commit are the same, byte for byte: one here, with what earlier builds left in
// the cache, and one elsewhere, with an empty cache and with nothing but what .dockerignore lets
// into the image's build.
func TestReproducible(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	here, there := filepath.Join(dir, "here"), filepath.Join(dir, "there")
	makeBuild(t, root, here)

	source := filepath.Join(dir, "elsewhere")
	ignore, err := os.ReadFile(root + "/.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(ignore)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "!"); ok {
			copyTree(t, filepath.Join(root, name), filepath.Join(source, name))
		}
	}
	makeBuild(t, source, there, "GOCACHE="+filepath.Join(dir, "cache"))

	if x, y := sum(t, here), sum(t, there); x != y {
		t.Errorf("two builds of one commit differ: SHA-256 %s and %s", x, y)
	}
}

// makeBuild runs make build in dir, with what the test stamps.
func makeBuild(t *testing.T, dir, output string, env ...string) {
	t.Helper()
	cmd := exec.Command("make", "build", "OUTPUT="+output, "VERSION="+imageVersion, "COMMIT="+imageCommit)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
}

// copyTree copies a file or a directory but tests, as .dockerignore does.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(name string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "testdata":
			return filepath.SkipDir
		case d.IsDir() || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rest, _ := filepath.Rel(from, name)
		return write(filepath.Join(to, rest), content)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func sum(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(content))
}

// write writes a file that anybody may run, and the directories above it.
func write(file string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o755)
}

// The image is small, holds nothing but the binary and certificates, and says what it is. Workers run
// in it as it should be run: as a user without a name, on a file system that cannot be written,
// without capabilities.
func TestImage(t *testing.T) {
	t.Parallel()
	img := buildImage(t)

	size := int64(0)
	for _, n := range img.files {
		size += n
	}
	if size > imageLimit {
		t.Errorf("the image has %d bytes, want at most %d. Does something import text/template, or a package that does? Then the linker keeps every method", size, imageLimit)
	}
	if names := slices.Sorted(maps.Keys(img.files)); !slices.Equal(names, []string{"alertworker", "etc/ssl/certs/ca-certificates.crt"}) {
		t.Errorf("the image holds %v", names)
	}
	c := img.config
	if c.Config.User != "65532:65532" || !slices.Equal(c.Config.Entrypoint, []string{"/alertworker"}) || c.OS != "linux" || c.Architecture != runtime.GOARCH {
		t.Errorf("its configuration is %+v", c)
	}
	for name, want := range map[string]string{"title": "alertworker", "version": imageVersion, "revision": imageCommit, "licenses": "MIT"} {
		if got := c.Config.Labels["org.opencontainers.image."+name]; got != want {
			t.Errorf("its label %s is %q, want %q", name, got, want)
		}
	}
	if out, err := img.command(nil, "version").Output(); err != nil || string(out) != fmt.Sprintf("alertworker %s %s %s\n", imageVersion, imageCommit, runtime.Version()) {
		t.Errorf("it says %q, %v", out, err)
	}
	t.Logf("built by %s: %d bytes", img.builder, size)

	busytest.Run(t, func(t *busytest.Attempt) {
		w := newWorld(t, emulators.StartAzurite(t.T).ConnectionString, settings{command: func(env []string) *exec.Cmd { return img.command(env) }})
		w.start("a", "b")
		w.ready()
		if img.root != "" {
			for _, p := range w.workers {
				restricted(t.T, p.cmd.Process.Pid)
			}
		}
		for i := range 40 {
			w.publish(fmt.Sprint("oven ", i%8), threshold+float64(i%3))
		}
		w.finish()
	})
}

// restricted checks what a process may do.
func restricted(t *testing.T, pid int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Uid:\t65532\t65532\t65532\t65532\n", "Gid:\t65532\t65532\t65532\t65532\n", "Groups:\t \n",
		"CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n", "NoNewPrivs:\t1\n",
	} {
		if !bytes.Contains(status, []byte(want)) {
			t.Errorf("its status lacks %q:\n%s", want, status)
		}
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil || !regexp.MustCompile(`(?m)^\d+ \d+ \S+ \S+ / ro\b`).Match(mounts) {
		t.Errorf("its root can be written: %v\n%s", err, mounts)
	}
}

// An image is one that was built for a test.
type image struct {
	builder, name string
	env           []string // of the builder
	config        imageConfig
	files         map[string]int64 // sizes
	root          string           // the unpacked image, where the builder cannot run it
}

type imageConfig struct {
	Architecture, OS string
	Config           struct {
		User       string
		Entrypoint []string
		Labels     map[string]string
	}
}

// buildImage builds the image with whatever this machine has. It does not run the build stage,
// whose base is in a registry: what that would make is made here, by the same make build.
func buildImage(t *testing.T) *image {
	t.Helper()
	img := &image{name: "localhost/alertworker-test:" + imageVersion, env: os.Environ(), files: map[string]int64{}}
	for _, b := range []string{"docker", "podman", "buildah"} { // as make image does
		// With buildah the test runs the image itself, which takes root.
		if exec.Command(b, "info").Run() == nil && (b != "buildah" || exec.Command("unshare", "--mount", "true").Run() == nil) {
			img.builder = b
			break
		}
	}
	if img.builder == "" {
		t.Skip("no image: neither docker nor podman works here, nor buildah as root. On Debian: apt-get install --no-install-recommends buildah")
	}
	dir := t.TempDir()
	if img.builder == "buildah" { // runs anywhere, with a storage of its own
		conf := fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n", dir+"/images", dir+"/run")
		if err := write(dir+"/storage.conf", []byte(conf)); err != nil {
			t.Fatal(err)
		}
		img.env = append(img.env, "CONTAINERS_STORAGE_CONF="+dir+"/storage.conf", "BUILDAH_ISOLATION=chroot")
	}

	stage := filepath.Join(dir, "stage")
	makeBuild(t, root, filepath.Join(stage, "out/alertworker-"+runtime.GOARCH))
	certificates, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
	if err != nil {
		t.Skipf("no image: this machine has no certificates for it: %v", err)
	}
	if err := write(filepath.Join(stage, "etc/ssl/certs/ca-certificates.crt"), certificates); err != nil {
		t.Fatal(err)
	}
	img.run(t, "make", "-C", root, "image", "IMAGE="+img.name, "VERSION="+imageVersion, "COMMIT="+imageCommit, "ARGS=--platform linux/"+runtime.GOARCH+" --build-context build="+stage)

	archive := filepath.Join(dir, "image.tar")
	if img.builder == "buildah" {
		img.root = filepath.Join(dir, "root")
		img.run(t, "buildah", "push", img.name, "docker-archive:"+archive)
	} else {
		t.Cleanup(func() { img.run(t, img.builder, "rmi", "--force", img.name) })
		img.run(t, img.builder, "save", "--output", archive, img.name)
	}
	img.unpack(t, archive)
	return img
}

func (img *image) run(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = img.env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
}

// unpack reads an archive as docker save writes it.
func (img *image) unpack(t *testing.T, archive string) {
	t.Helper()
	content := map[string][]byte{}
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	each(t, f, func(name string, file []byte) { content[name] = file })

	var manifest []struct {
		Config string
		Layers []string
	}
	if err := json.Unmarshal(content["manifest.json"], &manifest); err != nil || len(manifest) != 1 {
		t.Fatalf("the archive's manifest is %s: %v", content["manifest.json"], err)
	}
	if err := json.Unmarshal(content[manifest[0].Config], &img.config); err != nil {
		t.Fatalf("the image's configuration is %s: %v", content[manifest[0].Config], err)
	}
	for _, layer := range manifest[0].Layers {
		each(t, bytes.NewReader(content[layer]), func(name string, file []byte) {
			img.files[name] = int64(len(file))
			if img.root != "" {
				if err := write(filepath.Join(img.root, name), file); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// each calls do with every file in an archive.
func each(t *testing.T, archive io.Reader, do func(name string, content []byte)) {
	t.Helper()
	for files := tar.NewReader(archive); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		content, readErr := io.ReadAll(files)
		if err != nil || readErr != nil {
			t.Fatalf("read an archive: %v", errors.Join(err, readErr))
		}
		if header.Typeflag == tar.TypeReg {
			do(strings.TrimPrefix(header.Name, "./"), content)
		}
	}
}

// restrict makes of its first argument the root of a process, read-only, and runs the others in it as
// the image's user. The mounts are gone with the process.
const restrict = `
	mount --bind "$1" "$1"
	mount -o remount,bind,ro "$1"
	exec setpriv --no-new-privs chroot --userspec=65532:65532 --groups= "$@"`

// command runs the image with the restrictions that deploy/ has.
func (img *image) command(env []string, args ...string) *exec.Cmd {
	if img.root != "" {
		cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-ec", restrict, "sh", img.root, "/alertworker"}, args...)...)
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
		return cmd
	}
	run := []string{"run", "--rm", "--network=host", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges"}
	for _, v := range env {
		run = append(run, "--env="+v)
	}
	return exec.Command(img.builder, append(append(run, img.name), args...)...)
}
