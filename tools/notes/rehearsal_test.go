package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"
)

// A workflow is what the rehearsal knows of release.yaml.
type workflow struct {
	Env  map[string]string
	Jobs map[string]struct {
		Strategy struct {
			Matrix struct{ Include []map[string]string }
		}
		Outputs map[string]string
		Steps   []struct {
			ID, Uses, Run string
			Env           map[string]string
			With          map[string]any
		}
	}
}

// stand-ins for what needs the network. They log how they are called.
var programs = map[string]string{
	"docker": `echo certificates`,
	"cosign": `while [ $# -gt 1 ]; do [ "$1" != --bundle ] || echo signature > "$2"; shift; done`,
	"gh":     ``,
	// Go builds for this machine alone: for others that takes minutes.
	"make": `if [ "$GOOS-$GOARCH" = ` + runtime.GOOS + "-" + runtime.GOARCH + ` ]; then exec /usr/bin/env PATH="$REALPATH" make "$@"; fi
		for a; do case $a in OUTPUT=*) mkdir -p "$(dirname "${a#OUTPUT=}")"; echo foreign > "${a#OUTPUT=}";; esac; done`,
}

const commit, digest = "0123456789abcdef0123456789abcdef01234567", "sha256:cafe"

// A tag v1.0.0 becomes a release, as far as that goes on one machine: each step of the workflow runs, and actions are
// replaced by what they do to files.
func TestRehearsal(t *testing.T) {
	var w workflow
	if err := yaml.Unmarshal([]byte(read(t, "../../.github/workflows/release.yaml")), &w); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	calls, artifacts, bin := filepath.Join(dir, "calls"), filepath.Join(dir, "artifacts"), filepath.Join(dir, "bin")
	sh := func(where string, env map[string]string, script string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "-e", "-c", script)
		cmd.Dir = where
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "REALPATH="+os.Getenv("PATH"))
		for name, value := range env {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s\n%v: %s", script, err, out)
		}
		return string(out)
	}
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, script := range programs {
		text := fmt.Sprintf("#!/usr/bin/env bash\necho \"%s $*\" >> '%s'\n%s\n", name, calls, script)
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	known := map[string]string{ // expressions
		"github.repository": "Owner/Repository", "github.server_url": "https://github.com", "github.actor": "owner", "github.sha": commit,
		"github.token": "token", "secrets.GITHUB_TOKEN": "token", "steps.push.outputs.digest": digest,
	}
	expression := regexp.MustCompile(`\$\{\{ *(.*?) *\}\}`)
	expand := func(s string) string {
		return expression.ReplaceAllStringFunc(s, func(e string) string {
			name := expression.FindStringSubmatch(e)[1]
			value, ok := known[name]
			if !ok {
				t.Errorf("%s is not known", e)
			}
			return value
		})
	}
	var last string // checkout
	for _, name := range []string{"binary", "image", "release"} {
		job := w.Jobs[name]
		include := job.Strategy.Matrix.Include
		if include == nil {
			include = []map[string]string{{}}
		}
		for i, matrix := range include {
			known["matrix.extension"] = ""
			for key, value := range matrix {
				known["matrix."+key] = value
			}
			checkout := filepath.Join(dir, fmt.Sprint(name, i))
			last = checkout
			for _, s := range job.Steps {
				with := map[string]string{}
				for key, value := range s.With {
					with[key] = expand(fmt.Sprint(value))
				}
				env := map[string]string{"GITHUB_REF_NAME": "v1.0.0", "GITHUB_SHA": commit, "GITHUB_OUTPUT": filepath.Join(checkout, "outputs")}
				for _, more := range []map[string]string{w.Env, s.Env} {
					for key, value := range more {
						env[key] = expand(value)
					}
				}
				action, _, _ := strings.Cut(s.Uses, "@")
				switch action {
				case "":
					sh(checkout, env, expand(s.Run))
				case "actions/checkout": // of a commit made as docs/releases.md says
					sh("../..", nil, "git checkout-index -a --prefix='"+checkout+"/'")
					name := filepath.Join(checkout, "CHANGELOG.md")
					text := strings.Replace(read(t, name), "## [1.0.0]\n", "## [1.0.0] - 2026-12-01\n", 1)
					if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				case "actions/upload-artifact":
					sh(checkout, nil, "mkdir -p '"+artifacts+"/"+with["name"]+"' && cp -r "+with["path"]+". '"+artifacts+"/"+with["name"]+"'")
				case "actions/download-artifact": // which keeps no mode
					sh(checkout, nil, "mkdir -p "+with["path"]+" && cp -r '"+artifacts+"'/"+with["pattern"]+"/. "+with["path"]+" && chmod -R a-x,u+X "+with["path"])
				case "anchore/sbom-action":
					sh(checkout, nil, "ls "+with["path"]+" > "+with["output-file"])
				case "docker/build-push-action":
					if with["tags"] != "ghcr.io/owner/repository:1.0.0" {
						t.Errorf("the image is %q", with["tags"])
					}
					sh(checkout, nil, "cd "+strings.TrimPrefix(with["build-contexts"], "build=")+" && test -x out/alertworker-amd64 && test -x out/alertworker-arm64 && grep -q certificates etc/ssl/certs/ca-certificates.crt")
				case "actions/attest-build-provenance", "actions/attest-sbom":
					for _, file := range []string{with["subject-path"], with["sbom-path"]} {
						sh(checkout, nil, "ls "+file)
					}
				case "actions/setup-go", "docker/setup-buildx-action", "docker/login-action", "sigstore/cosign-installer":
				default:
					t.Errorf("%s is not known", s.Uses)
				}
				if outputs, err := os.ReadFile(env["GITHUB_OUTPUT"]); err == nil && s.ID != "" {
					for line := range strings.Lines(string(outputs)) {
						key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
						known["steps."+s.ID+".outputs."+key] = value
					}
				}
			}
			for key, value := range maps.All(job.Outputs) {
				known["needs."+name+".outputs."+key] = expand(value)
			}
		}
	}

	sh(last, nil, "cd dist && sha256sum --check --strict SHA256SUMS && [ $(wc -l < SHA256SUMS) = 5 ] && [ -e SHA256SUMS.sigstore.json ]")
	sh(last, nil, "chmod +x dist/alertworker-*")
	if got := sh(last, nil, "dist/alertworker-"+runtime.GOOS+"-"+runtime.GOARCH+" version"); !strings.Contains(got, "1.0.0") || !strings.Contains(got, commit[:7]) {
		t.Errorf("the binary says %q", got)
	}
	if notes := read(t, filepath.Join(last, "notes.md")); !strings.Contains(notes, "### Added") || !strings.HasSuffix(notes, "Image: `ghcr.io/owner/repository:1.0.0@"+digest+"`\n") {
		t.Errorf("the notes are %s", notes)
	}
	// The last step again, for a tag that is not to be the latest release.
	steps := w.Jobs["release"].Steps
	changes := filepath.Join(last, "CHANGELOG.md")
	if err := os.WriteFile(changes, []byte(strings.Replace(read(t, changes), "## [1.0.0] ", "## [1.0.0-rc.1] ", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	sh(last, map[string]string{"GITHUB_REF_NAME": "v1.0.0-rc.1", "IMAGE": "image", "DIGEST": digest}, steps[len(steps)-1].Run)
	for _, want := range []string{"gh release create v1.0.0-rc.1 --verify-tag --prerelease --title", "cosign sign --yes ghcr.io/owner/repository@" + digest, "gh release create v1.0.0 --verify-tag --title v1.0.0 --notes-file notes.md dist/SHA256SUMS dist/SHA256SUMS.sigstore.json dist/alertworker-"} {
		if all := read(t, calls); !strings.Contains(all, want) {
			t.Errorf("nobody called %s:\n%s", want, all)
		}
	}
}
