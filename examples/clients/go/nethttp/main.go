// An HTTP server that limits pages per user, and holds the charge of a job until the job has ended.
//
//	go run ./nethttp [SERVICE [ADDRESS]]
package main

import (
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	fluxgate "github.com/openfluxgate/fluxgate/clients/go"
)

func main() {
	service, address := "http://127.0.0.1:8081", "127.0.0.1:3000"
	if len(os.Args) > 1 {
		service = os.Args[1]
	}
	if len(os.Args) > 2 {
		address = os.Args[2]
	}
	client := fluxgate.New(service, fluxgate.OnError(fluxgate.Allow), fluxgate.Deadline(100*time.Millisecond))
	defer client.Close()

	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "up") })
	mux.HandleFunc("/hello", func(w http.ResponseWriter, r *http.Request) {
		left := fluxgate.FromContext(r.Context()).Decision.Remaining
		fmt.Fprintf(w, "hello, %d left\n", left)
	})
	mux.HandleFunc("/quota", func(w http.ResponseWriter, r *http.Request) { showQuota(client, w, r) })
	mux.HandleFunc("/jobs", func(w http.ResponseWriter, r *http.Request) { runJob(client, w, r) })

	// A server would authenticate the user first: otherwise a new name is a new quota.
	user := fluxgate.User(func(r *http.Request) string { return r.Header.Get("X-User-Id") })
	limit := fluxgate.Middleware(client, "pages", user, fluxgate.Exclude("/health", "/quota", "/jobs"))

	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on http://%s", listener.Addr())
	log.Fatal(http.Serve(listener, limit(mux)))
}

// showQuota asks without charging.
func showQuota(client *fluxgate.Client, w http.ResponseWriter, r *http.Request) {
	decision, err := client.Peek(r.Context(), "pages", fluxgate.Request{User: r.Header.Get("X-User-Id")})
	switch {
	case err != nil:
		http.Error(w, "try again later", http.StatusServiceUnavailable)
	case !decision.Allowed:
		fmt.Fprintf(w, "used up; try again in %v\n", decision.RetryAfter)
	default:
		fmt.Fprintf(w, "%d of %d left\n", decision.Remaining, decision.Limit)
	}
}

// runJob holds the charge of a job until the job has ended.
func runJob(client *fluxgate.Client, w http.ResponseWriter, r *http.Request) {
	hold, err := client.Hold(r.Context(), "jobs", fluxgate.Request{User: r.Header.Get("X-User-Id")})
	var denied *fluxgate.DeniedError
	switch {
	case errors.As(err, &denied):
		fluxgate.WriteRefusal(w, r, denied.Decision)
		return
	case err != nil:
		http.Error(w, "try again later", http.StatusServiceUnavailable)
		return
	}
	defer hold.Close() // Returns the units of a job that fails.

	fmt.Fprintln(w, "the job is done")
	if _, err := hold.Settle(r.Context(), fluxgate.Settlement{}); err != nil {
		log.Printf("cannot settle a job: %v", err)
	}
}
