package config

import (
	"bufio"
	"bytes"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"alertworker/internal/rules"
)

// Bounds of a file of devices.
const (
	maxDevicesFile = 1 << 20 // bytes
	maxDeviceID    = 256     // bytes; IoT Hub's have at most 128
)

// beside returns a function that reads files whose paths are relative to the folder of another.
func beside(path string) func(name string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		return readFile(name, maxDevicesFile)
	}
}

// expect reads the file of devices that n names, of which there are none if n is nil.
func (r *rulesReader) expect(n ast.Node) (devices []string) {
	if n == nil {
		return nil
	}

	name := scalar(n)
	if name == "" {
		r.wrong(n, "expect must be the path of a file with the IDs of devices, one on each line, such as devices.txt")
		return nil
	}

	content, err := r.read(name)
	switch {
	case err != nil:
		r.wrong(n, "expect: the file %s %v", show(name), withoutPath(err))
	case len(content) > maxDevicesFile:
		r.wrong(n, "expect: the file %s is larger than 1 MiB", show(name))
	case !utf8.Valid(content):
		r.wrong(n, "expect: the file %s is not UTF-8 text", show(name))
	default:
		devices = r.devices(n, name, content)
	}

	return devices
}

// devices reads a file of device IDs.
func (r *rulesReader) devices(n ast.Node, file string, content []byte) (devices []string) {
	seen := map[string]int{} // the line of each device
	number := 0
	lines := bufio.NewScanner(bytes.NewReader(bytes.TrimPrefix(content, []byte("\uFEFF"))))
	lines.Buffer(nil, maxDevicesFile+1)

	for lines.Scan() {
		number++
		device := strings.TrimSpace(lines.Text())
		switch earlier := seen[device]; {
		case device == "" || strings.HasPrefix(device, "#"):
			continue
		case len(device) > maxDeviceID || strings.ContainsFunc(device, unfitForDevice):
			r.wrong(n, "expect: line %d of %s must be the ID of one device, without spaces and of at most %d bytes",
				number, show(file), maxDeviceID)
		case earlier > 0:
			r.wrong(n, "expect: line %d of %s is the same as line %d: remove one of them", number, show(file), earlier)
		default:
			seen[device] = number
			devices = append(devices, device)
		}
	}

	switch {
	case len(devices) > rules.MaxExpected:
		r.wrong(n, "expect: the file %s has %d devices; must be at most %d", show(file), len(devices), rules.MaxExpected)
	case number == 0 || len(devices) == 0 && len(r.mistakes) == 0:
		r.wrong(n, "expect: the file %s has no devices: must have the ID of one on each line", show(file))
	}

	return devices
}

// unfitForDevice reports whether the ID of a device may not have c.
func unfitForDevice(c rune) bool { return unicode.IsSpace(c) || !unicode.IsPrint(c) }
