package fluxgategrpc_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/openfluxgate/fluxgate/clients/go/internal/testservice"
)

// startExample runs a program in examples/clients/go with the service of all examples, and returns
// the address it listens on.
func startExample(t *testing.T, name string) string {
	t.Helper()
	examples := filepath.Join(testservice.Clients(), "..", "examples")
	config, err := os.ReadFile(filepath.Join(examples, "fluxgate.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	service := testservice.Start(t, strings.NewReplacer("127.0.0.1:8081", "${API}", "127.0.0.1:8083", "127.0.0.1:0").Replace(string(config)))
	program := filepath.Join(t.TempDir(), name)
	build := exec.Command("go", "build", "-o", program, "./"+name)
	build.Dir = filepath.Join(examples, "clients", "go")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	command := exec.Command(program, "http://"+service.Address, "127.0.0.1:0")
	output, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, address, found := strings.Cut(strings.TrimSpace(line), "listening on ")
	if !found {
		t.Fatal(line)
	}
	return address
}

func TestTheExampleForHTTP(t *testing.T) {
	address := startExample(t, "nethttp")
	get := func(path string) (int, string) {
		request, err := http.NewRequest(http.MethodGet, address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-User-Id", "ann")
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(body)
	}
	if status, body := get("/quota"); status != 200 || body != "3 of 3 left\n" {
		t.Error(status, body)
	}
	for _, body := range []string{"hello, 2 left\n", "hello, 1 left\n", "hello, 0 left\n"} {
		if status, found := get("/hello"); status != 200 || found != body {
			t.Error(status, found)
		}
	}
	if status, _ := get("/hello"); status != 429 {
		t.Error(status)
	}
	if status, body := get("/quota"); status != 200 || !strings.HasPrefix(body, "used up; try again in ") {
		t.Error(status, body)
	}
	for range 3 {
		if status, body := get("/jobs"); status != 200 {
			t.Error(status, body)
		}
	}
	if status, body := get("/jobs"); status != 429 || !strings.Contains(body, "per-user/burst") {
		t.Error(status, body)
	}
	if status, _ := get("/health"); status != 200 {
		t.Error(status)
	}
}

func TestTheExampleForGRPC(t *testing.T) {
	connection, err := grpc.NewClient(startExample(t, "grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	caller := health.NewHealthClient(connection)
	ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(context.Background(), metadata.Pairs("x-user-id", "ann")), 10*time.Second)
	defer cancel()
	for i := range 4 {
		_, err := caller.Check(ctx, &health.HealthCheckRequest{})
		if expected := map[bool]codes.Code{true: codes.OK, false: codes.ResourceExhausted}[i < 3]; status.Code(err) != expected {
			t.Error(i, err)
		}
	}
}
