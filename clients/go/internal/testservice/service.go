// Package testservice runs the real service for tests, with a proxy in front of it that fails on
// demand.
package testservice

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Service is a running FluxGate service.
type Service struct {
	// Address is host and port of its API.
	Address string
	// Gateway is host and port of its gateway, if the config has one.
	Gateway string

	pid int
}

// Start starts a service and stops it at the end of the test. In the config, ${API} and ${GATEWAY}
// stand for addresses that are free.
func Start(t testing.TB, config string) *Service {
	t.Helper()
	startHeart()
	service := &Service{Address: freeAddress(t), Gateway: freeAddress(t)}
	config = strings.NewReplacer("${API}", service.Address, "${GATEWAY}", service.Gateway).Replace(config)
	file := filepath.Join(t.TempDir(), "fluxgate.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var output strings.Builder
	command := exec.Command(Binary(t), "run", "--config", file)
	command.Stdout, command.Stderr = &output, &output
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	service.pid = command.Process.Pid
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() {
			t.Logf("the service wrote:\n%s", output.String())
		}
	})
	live := plainClient()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		response, err := live.Get("http://" + service.Address + "/livez")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return service
			}
		}
	}
	t.Fatal("the service did not start")
	return nil
}

// waits returns for how long each thread of the service has waited for a processor.
func (s *Service) waits() map[string]time.Duration {
	waits := make(map[string]time.Duration)
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", s.pid))
	for _, file := range files {
		text, err := os.ReadFile(file)
		var ran, waited int64
		// A thread may have ended.
		if _, scanned := fmt.Sscan(string(text), &ran, &waited); err == nil && scanned == nil {
			waits[file] = time.Duration(waited)
		}
	}
	return waits
}

// SlotsHeld returns how many slots the service holds, of all rules together.
func (s *Service) SlotsHeld() (int, error) {
	client := plainClient()
	response, err := client.Get("http://" + s.Address + "/metrics")
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	held := 0
	for _, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "fluxgate_slots_held{") {
			count, _ := strconv.Atoi(line[strings.LastIndexByte(line, ' ')+1:])
			held += count
		}
	}
	return held, err
}

// plainClient returns a client that leaves no connection open.
func plainClient() http.Client {
	return http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
}

// Binary returns the path of the service: FLUXGATE, or the debug build of the checkout.
func Binary(t testing.TB) string {
	t.Helper()
	path := os.Getenv("FLUXGATE")
	if path == "" {
		path = filepath.Join(Clients(), "..", "target", "debug", "fluxgate")
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the service is not built: set FLUXGATE to its path, or run `cargo build`: %v", err)
	}
	return path
}

// Clients returns the folder of all clients.
func Clients() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

func freeAddress(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// Resources counts the goroutines and sockets of this process.
func Resources() (goroutines, sockets int) {
	links, _ := os.ReadDir("/proc/self/fd")
	for _, link := range links {
		target, err := os.Readlink("/proc/self/fd/" + link.Name())
		if err == nil && strings.HasPrefix(target, "socket:") {
			sockets++
		}
	}
	return runtime.NumGoroutine(), sockets
}

// CheckLeaks fails a test that leaves more goroutines or sockets behind than there were when
// CheckLeaks was called. Call the function that it returns once everything is closed.
func CheckLeaks(t testing.TB) func() {
	t.Helper()
	goroutines, sockets := Resources()
	return func() {
		t.Helper()
		var left string
		for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			nowGoroutines, nowSockets := Resources()
			if nowGoroutines <= goroutines && nowSockets <= sockets {
				return
			}
			left = fmt.Sprintf("%d goroutines (%d before), %d sockets (%d before)",
				nowGoroutines, goroutines, nowSockets, sockets)
		}
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		t.Errorf("left behind: %s\n%s", left, stacks)
	}
}
