package fluxgate_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	fluxgate "github.com/openfluxgate/fluxgate/clients/go"
)

// The snippets of README.md, so that they compile; TestTheREADME compares them.

type session struct{ User, Plan string }

func sessionOf(*http.Request) session { return session{} }

func limitBySession(client *fluxgate.Client) func(http.Handler) http.Handler {
	limit := fluxgate.Middleware(client, "api-limits",
		fluxgate.User(func(r *http.Request) string { return sessionOf(r).User }),
		fluxgate.Attribute("plan", func(r *http.Request) string { return sessionOf(r).Plan }),
		fluxgate.TrustedProxies("10.0.0.0/8"),
		fluxgate.Exclude("/health", "/static/**"),
	)
	return limit
}

func limitOneRoute(client *fluxgate.Client, export http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /exports", fluxgate.Middleware(client, "api-limits")(export))
	return mux
}

func failClosed() *fluxgate.Client {
	client := fluxgate.New("http://127.0.0.1:8081",
		fluxgate.OnError(fluxgate.Deny),
		fluxgate.Deadline(50*time.Millisecond),
	)
	return client
}

func check(ctx context.Context, client *fluxgate.Client) error {
	decision, err := client.Check(ctx, "api-limits", fluxgate.Request{User: "ann", Path: "/api/x"})
	if err != nil {
		return err
	}
	if !decision.Allowed {
		return fmt.Errorf("try again in %v", decision.RetryAfter)
	}
	return nil
}

func complete(context.Context) (int64, error) { return 0, errors.New("not implemented") }

func settle(ctx context.Context, client *fluxgate.Client) error {
	hold, err := client.Hold(ctx, "tokens", fluxgate.Request{User: "ann", Cost: fluxgate.Units(4000)})
	if err != nil {
		return err // a *fluxgate.DeniedError has the decision
	}
	defer hold.Close()
	used, err := complete(ctx)
	if err != nil {
		return err
	}
	_, err = hold.Settle(ctx, fluxgate.Settlement{Cost: fluxgate.Units(used)})
	return err
}
