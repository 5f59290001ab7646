package fluxgate_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/openfluxgate/fluxgate/clients/go/internal/testservice"
)

// blocks returns the code blocks of a document in one language, without their indentation.
func blocks(t *testing.T, file, language string) []string {
	t.Helper()
	document, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	pattern := regexp.MustCompile("(?ms)^( *)```" + language + "\n(.*?)^ *```$")
	for _, match := range pattern.FindAllStringSubmatch(string(document), -1) {
		found = append(found, regexp.MustCompile("(?m)^"+match[1]).ReplaceAllString(match[2], ""))
	}
	return found
}

// TestTheREADME follows it: the service, the module, the program, the requests.
func TestTheREADME(t *testing.T) {
	configs, programs := blocks(t, "README.md", "yaml"), blocks(t, "README.md", "go")
	if len(configs) != 1 || len(programs) < 4 {
		t.Fatal(len(configs), len(programs))
	}
	service := testservice.Start(t, strings.NewReplacer("127.0.0.1:8081", "${API}", "3/m", "3/h").Replace(configs[0]))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()

	folder := t.TempDir()
	program := strings.NewReplacer("127.0.0.1:8081", service.Address, "127.0.0.1:3000", address).Replace(programs[0])
	if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	here, _ := os.Getwd()
	run := func(arguments ...string) {
		t.Helper()
		command := exec.Command("go", arguments...)
		command.Dir = folder
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", arguments, err, output)
		}
	}
	for _, line := range strings.Split(strings.Join(blocks(t, "README.md", "sh"), ""), "\n") {
		if strings.HasPrefix(line, "go mod ") {
			line = strings.ReplaceAll(line, "PATH-OF-THE-CHECKOUT/clients/go", here)
			run(strings.Fields(line)[1:]...)
		}
	}
	run("build", "-o", "hello", ".")
	server := exec.Command(filepath.Join(folder, "hello"))
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if connection, err := net.Dial("tcp", address); err == nil {
			connection.Close()
			break
		}
	}
	for _, status := range []int{200, 200, 200, 429} {
		expectStatus(t, status, "http://"+address+"/", "X-User-Id: ann")
	}
	expectStatus(t, 200, "http://"+address+"/", "X-User-Id: bob")
}

// TestTheSnippets compares those of the documents with the ones that are compiled.
func TestTheSnippets(t *testing.T) {
	var compiled string
	for _, file := range []string{"example_test.go", "fluxgategrpc/example_test.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		compiled += regexp.MustCompile(`(?m)^\t`).ReplaceAllString(string(text), "")
	}
	for _, document := range []string{"README.md"} {
		for _, block := range blocks(t, document, "go") {
			if !strings.HasPrefix(block, "package main") && !strings.Contains(compiled, block) {
				t.Errorf("%s: this is not in example_test.go:\n%s", document, block)
			}
		}
	}
}
